"""The generation loop: prefill once, then decode token by token.

    engine = Engine(model)
    for tokens in engine.stream(prompts, max_new_tokens=64): ...     # as they are generated
    engine.generate(prompts, max_new_tokens=64)                      # all at the end

Prompts of different lengths share a batch; each sequence has its own position. On CUDA a decode
step is a CUDA graph, captured once for each span of the cache; reading prompts is one, too,
captured when a length occurs for the second time.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm.errors import UserError
from spherelm.generation.cached import Cache, check_fits, decode, new_cache, prefill
from spherelm.generation.sampling import choose
from spherelm.generation.settings import PLAIN, Sampling
from spherelm.model.fold import FoldedTransformer
from spherelm.model.part import AUTO, Ops, computing_with
from spherelm.model.transformer import RunBlock, Transformer, run_block
from spherelm.ops.choose import Choice
from spherelm.ops.choose import choose as choose_ops
from spherelm.ops.interface import Operations
from spherelm.validate import require_int

SHORTEST_SPAN = 256
"""The shortest span of the cache for a CUDA graph; each further span is twice as long."""

MOST_READ = 16_384
"""Most prompt tokens read by a CUDA graph: with more, the device is busy enough without one."""

LOOK_EVERY = 16
"""Steps between checks whether all sequences have stopped: a check waits for the device."""

Read = Callable[[Tensor, Tensor], Tensor]
"""tokens (B, T), last (B,): position of each prompt's last token -> logits (B, V) there"""

Step = Callable[[Tensor, Tensor, int], Tensor]
"""tokens (B,), positions (B,), entries of the cache in use -> logits (B, V)"""


@dataclass(frozen=True)
class _Decoder:
    """A cache for some sequences, and the two functions that fill it."""

    cache: Cache
    rope: Tensor
    """Kept alive because captured graphs read this table at its address."""
    read: Read
    step: Step


class Engine:
    """A model ready to generate: with folded scales and, on CUDA, the decode step as a graph."""

    def __init__(
        self,
        model: Transformer,
        dtype: torch.dtype | None = None,
        *,
        ops: Ops = AUTO,
        compile: bool = False,
        fused: bool = True,
        cuda_graphs: bool = True,
    ) -> None:
        """`dtype` is that of products and cache, by default the model's. On CUDA a decode step is
        replayed as a graph; `fused` uses our kernels for a batch of one; `compile` compiles the
        step for everything else, which takes some seconds but makes tokens faster."""
        self.model = FoldedTransformer(model, dtype, ops)
        self.device = self.model.E_input.device
        self.graphed = cuda_graphs and self.device.type == "cuda"
        self.fused = fused and self.graphed
        self._kept: _Decoder | None = None
        """The last decoder, for reuse; None while it is in use."""
        self._decoding = self.model
        self._run: RunBlock = run_block
        if compile and self.graphed:
            if ops == AUTO and self.model.ops.kernels:
                self._decoding = computing_with(self.model, self._plain())
            self._run = torch.compile(
                self._run,
                dynamic=False,
                fullgraph=True,
                options={"coordinate_descent_tuning": True, "triton.cudagraphs": False},
            )

    def _plain(self) -> Operations:
        """Plain operations, which the compiler fuses best, on weights packed as for the kernels."""
        config, plain = self.model.config, Choice(kernels="reference", packed=True)
        return choose_ops(plain, config.update, config.d_model, self.device, self.model.dtype)

    def _decode(self, tokens: Tensor, positions: Tensor, cache: Cache, span: int) -> Tensor:
        return decode(self._decoding, tokens, positions, cache, span, self._run)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = PLAIN,
        stop_ids: AbstractSet[int] = frozenset(),
    ) -> list[list[int]]:
        """The new tokens of each prompt, up to but excluding the first one in `stop_ids`."""
        columns: list[Tensor] = []
        stops = torch.tensor(sorted(stop_ids), dtype=torch.long, device=self.device)
        stopped = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        for tokens in self._steps(prompts, max_new_tokens, sampling):
            columns.append(tokens)
            if stop_ids:
                stopped |= torch.isin(tokens, stops)
                if len(columns) % LOOK_EVERY == 0 and bool(stopped.all()):
                    break
        if not columns:
            return [[] for _ in prompts]
        rows = torch.stack(columns, dim=1).tolist()
        return [list(itertools.takewhile(lambda t: t not in stop_ids, row)) for row in rows]

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        sampling: Sampling = PLAIN,
        stop_ids: AbstractSet[int] = frozenset(),
    ) -> Iterator[list[int | None]]:
        """Yield the next token of each prompt, step by step; None for those that have stopped."""
        going = [True] * len(prompts)
        for tokens in self._steps(prompts, max_new_tokens, sampling):
            row = tokens.tolist()
            going = [g and t not in stop_ids for g, t in zip(going, row, strict=True)]
            if not any(going):
                return
            yield [t if g else None for g, t in zip(going, row, strict=True)]

    @torch.no_grad()
    def _steps(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, sampling: Sampling
    ) -> Iterator[Tensor]:
        """The tokens of each step, (B,), on the device; stops after `max_new_tokens`."""
        prompts = [list(map(operator.index, prompt)) for prompt in prompts]  # or rows of a tensor
        self._check(prompts, max_new_tokens)
        if max_new_tokens == 0:
            return
        model, device = self.model, self.device
        lengths = [len(prompt) for prompt in prompts]
        longest = max(lengths)
        check_fits(model, len(prompts), longest, max_new_tokens)
        decoder = self._decoder(len(prompts), longest + max_new_tokens)
        padded = torch.tensor([[*p, *[0] * (longest - len(p))] for p in prompts], device=device)
        positions = torch.tensor(lengths, device=device)
        generator = torch.Generator(device).manual_seed(sampling.seed)
        seen = _seen(prompts, model.config.vocab_size, device, sampling)

        try:
            logits = decoder.read(padded, positions - 1)
            for n in range(max_new_tokens):
                tokens = choose(logits, sampling, seen, generator, model.ops.argmax)  # (B,)
                yield tokens
                if n + 1 == max_new_tokens:
                    return
                if seen is not None:
                    seen.scatter_(1, tokens[:, None], True)
                logits = decoder.step(tokens, positions + n, longest + n + 1)
        finally:
            if self.graphed:
                self._kept = decoder

    def _decoder(self, batch: int, length: int) -> _Decoder:
        """A cache for at least `length` entries, with the functions that use it."""
        if not self.graphed:
            cache = new_cache(self.model, batch, length)
            return _Decoder(
                cache,
                self.model.rope.table,
                lambda tokens, last: prefill(self.model, tokens, cache, last),
                lambda tokens, positions, used: self._decode(tokens, positions, cache, used),
            )
        length = _span(length)
        kept, self._kept = self._kept, None  # a stream begun in the meantime makes its own
        if kept is not None and (kept.cache.batch, kept.cache.length) == (batch, length):
            return kept  # old entries in its cache are overwritten or masked
        del kept  # to free its memory first
        cache = new_cache(self.model, batch, length)
        read, step = self._graphed_read(cache), self._graphed_step(batch, cache)
        return _Decoder(cache, self.model.rope.table, read, step)

    def _graphed_read(self, cache: Cache) -> Read:
        """Read prompts with graphs. Prompts are padded to a few lengths, so that a graph serves
        many; a length that occurs only once is not worth capturing. The padding is the same with
        and without a graph, so a prompt always gives the same logits."""
        from spherelm.generation.graph import Graph

        def read(tokens: Tensor, last: Tensor) -> Tensor:
            return prefill(self.model, tokens, cache, last)

        graphs: dict[int, Graph] = {}
        met: set[int] = set()

        def graphed(tokens: Tensor, last: Tensor) -> Tensor:
            length = padded_length(tokens.shape[1])
            if tokens.shape[0] * length > MOST_READ:
                return read(tokens, last)
            tokens = F.pad(tokens, (0, length - tokens.shape[1]))
            if length not in met:
                met.add(length)
                return read(tokens, last)
            if length not in graphs:
                graphs[length] = Graph(read, tokens, last)
            return graphs[length](tokens, last)

        return graphed

    def _graphed_step(self, batch: int, cache: Cache) -> Step:
        from spherelm.generation.graph import Graph

        decode = self._decode
        if self.fused and self.model.ops.kernels:
            from spherelm.generation.fused import FusedDecode, applies

            if applies(self.model, batch):
                decode = FusedDecode(self.model).decode
        graphs: dict[int, Graph] = {}

        def step(tokens: Tensor, positions: Tensor, used: int) -> Tensor:
            span = min(_span(used), cache.length)
            if span not in graphs:
                graphs[span] = Graph(lambda t, p: decode(t, p, cache, span), tokens, positions)
            return graphs[span](tokens, positions)

        return step

    def _check(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> None:
        require_int("max_new_tokens", max_new_tokens, at_least=0)
        if not prompts:
            raise UserError("there is no prompt; give at least one")
        vocab_size = self.model.config.vocab_size
        for prompt in prompts:
            if not prompt:
                raise UserError("a prompt has no tokens; give it at least one")
            if not 0 <= min(prompt) <= max(prompt) < vocab_size:
                wrong = next(t for t in prompt if not 0 <= t < vocab_size)
                raise UserError(
                    f"a prompt has the id {wrong}; the model knows 0 to {vocab_size - 1}"
                )


def _seen(
    prompts: Sequence[Sequence[int]], vocab_size: int, device: torch.device, sampling: Sampling
) -> Tensor | None:
    """Which tokens occur in each prompt, (B, V); None if `sampling` does not need it."""
    if sampling.repetition_penalty == 1.0:
        return None
    seen = torch.zeros(len(prompts), vocab_size, dtype=torch.bool)
    for row, prompt in zip(seen, prompts, strict=True):
        row[list(prompt)] = True
    return seen.to(device)


def _span(used: int) -> int:
    """The power of two that covers the entries in use, so that one graph serves many steps."""
    return max(SHORTEST_SPAN, 1 << (used - 1).bit_length())


def padded_length(length: int) -> int:
    """The next of four lengths in every doubling, from 16 up: at most a quarter is padding."""
    quarter = max(16, (1 << (length - 1).bit_length()) // 8)
    return -(-length // quarter) * quarter
