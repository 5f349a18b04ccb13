"""A model's answers to the questions of lm-evaluation-harness, saved in a journal one by one."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from spherelm.data.tokenizer import Tokenizer
from spherelm.eval.journal import Journal, digest
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.generation.text import encode_prompt, generate_text
from spherelm.model.transformer import Transformer
from spherelm.ops.device import in_precision

MAX_NEW_TOKENS = 256
"""The harness's own limit on text until a stop string."""

LENGTH_STEP = 32
"""Row lengths, and the number of logits per batch, are padded to a multiple of this: each new shape
costs cuDNN a new plan."""


@dataclass(frozen=True)
class Answers:
    """A model's answers to the harness, in batches of similar length."""

    model: Transformer
    tokenizer: Tokenizer
    batch_size: int = 16
    dtype: torch.dtype | None = None
    """Of matrix products; None for that of the weights."""
    journal: Journal = field(default_factory=Journal)
    """Known answers; new ones are added."""

    @property
    def context(self) -> int:
        return self.model.config.context

    @functools.cached_property
    def engine(self) -> Engine:
        """Generates text; created only on demand, as most tasks need none."""
        return Engine(self.model, self.dtype)

    def loglikelihoods(
        self, pairs: Sequence[tuple[list[int], list[int]]]
    ) -> list[tuple[float, bool]]:
        """log p(continuation | context), and whether greedy decoding would give the same."""
        scores = self._ask(
            [("loglikelihood", *pair) for pair in pairs],
            [len(context) + len(target) for context, target in pairs],
            lambda batch: self._score([pairs[i] for i in batch]),
        )
        return [(value, greedy) for value, greedy in scores]

    @torch.no_grad()
    def _score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """The same for one batch; rows that exceed the context are cut off on the left."""
        rows = [(context + target)[-(self.context + 1) :] for context, target in pairs]
        longest = max(map(len, rows)) - 1
        width = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, self.context) + 1
        device = self.model.E_input.device
        # Padding comes after a row's tokens, where causal attention does not see it.
        filled = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=device)
        ends = [len(row) - 1 for row in rows]
        counts = [min(len(pair[1]), end) for pair, end in zip(pairs, ends, strict=True)]
        asked = [
            (i, position)
            for i, (n, end) in enumerate(zip(counts, ends, strict=True))
            for position in range(end - n, end)
        ]
        asked += [(0, 0)] * (LENGTH_STEP - len(asked) % LENGTH_STEP)
        row, at = torch.tensor(asked, device=device).unbind(1)
        with in_precision("bf16" if self.dtype == torch.bfloat16 else "fp32", device):
            h = self.model.hidden(filled[:, :-1])  # (B, T, D)
            logits = self.model.logits(h[row, at])  # (n, V): only where they are needed
        wanted = filled[row, at + 1]
        logp = -F.cross_entropy(logits, wanted, reduction="none")
        greedy = logits.argmax(-1) == wanted
        # One transfer for all rows, so that the device does not wait between them.
        values, hits = torch.stack([logp, greedy.to(logp.dtype)]).tolist()
        starts = itertools.accumulate(counts, initial=0)
        parts = [slice(start, start + n) for start, n in zip(starts, counts, strict=False)]
        return [(math.fsum(values[part]), all(hits[part])) for part in parts]

    def rolling(self, text: str) -> float:
        """log p(text) as one document, in windows of the context that predict each token once.

        The last window predicts the remaining tokens, with as much text before them as fits.
        """
        ids = [self.tokenizer.end_of_document, *self.tokenizer.encode(text)]
        windows = []
        for start in range(1, len(ids), self.context):
            end = min(start + self.context, len(ids))
            seen = max(0, end - 1 - self.context)
            windows.append((ids[seen:start], ids[start:end]))
        return sum(value for value, _ in self.loglikelihoods(windows))

    def texts(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        """Greedy text after each context, until one of its stop strings."""
        prompts, questions = [], []
        for context, settings in requests:
            until = settings.get("until") or []
            stop = [until] if isinstance(until, str) else list(until)
            budget = int(settings.get("max_gen_toks", MAX_NEW_TOKENS))
            room = self.context - min(budget, self.context // 2)  # for the prompt
            prompts.append(encode_prompt(self.tokenizer, context)[-room:])
            questions.append(("text", prompts[-1], stop, budget))

        def write(batch: list[int]) -> list[str]:
            _, _, stop, budget = questions[batch[0]]  # the same for all questions of a task
            return generate_text(
                self.engine,
                self.tokenizer,
                [prompts[i] for i in batch],
                max_new_tokens=min(budget, self.context // 2),
                sampling=Sampling(temperature=0),
                stop=stop,
            )

        return self._ask(questions, [len(prompt) for prompt in prompts], write)

    def _ask(
        self,
        questions: Sequence[tuple[Any, ...]],
        lengths: Sequence[int],
        answer: Callable[[list[int]], Sequence[Any]],
    ) -> list[Any]:
        """The answer to each question, from the journal or by `answer`, which gets a batch of
        indices. The longest come first, so that a lack of memory shows at once."""
        keys = list(map(digest, questions))
        answers = [self.journal.get(key) for key in keys]
        left = [i for i, known in enumerate(answers) if known is None]
        left.sort(key=lambda i: -lengths[i])
        for start in range(0, len(left), self.batch_size):
            batch = left[start : start + self.batch_size]
            for i, new in zip(batch, answer(batch), strict=True):
                answers[i] = self.journal[keys[i]] = new
            if sys.stderr.isatty():
                done = start + len(batch)
                end = "\n" if done == len(left) else "\r"
                print(f"{done:,} of {len(left):,} answered", end=end, file=sys.stderr)
        return answers
