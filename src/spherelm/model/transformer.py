"""The Transformer: E_input, L blocks, E_output; GPT or nGPT by its config.

Shapes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spherelm.errors import UserError
from spherelm.model.attend import CAUSAL, Attend, within
from spherelm.model.block import Block, GPTBlock, NGPTBlock, RMSNorm
from spherelm.model.config import ModelConfig
from spherelm.model.init import initialize_
from spherelm.model.part import AUTO, Ops, Part
from spherelm.model.rope import RopeTable
from spherelm.model.scale import Scale
from spherelm.model.scaling import scaled_pass
from spherelm.model.sphere import as_read, mark_matrices, retract_strays_
from spherelm.ops.names import IGNORE_INDEX
from spherelm.ops.reference import at_least_float32, normalize
from spherelm.validate import require_choice, require_int

RunBlock = Callable[[nn.Module, Tensor, Tensor, Attend], Tensor]
Reduction = Literal["mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


def run_block(block: nn.Module, h: Tensor, rope: Tensor, attend: Attend) -> Tensor:
    """One block, as a function that can be compiled in place of the block's own call."""
    out: Tensor = block(h, rope, attend)
    return out


class Transformer(Part):
    """A decoder-only Transformer: `model(tokens)` gives logits, `model.loss(...)` a scalar.

    `ops` chooses the kernels: see `spherelm.ops.choose`.
    """

    def __init__(self, config: ModelConfig, ops: Ops = AUTO) -> None:
        super().__init__(config, ops)
        ngpt = config.arch == "ngpt"
        block = NGPTBlock if ngpt else GPTBlock
        self.E_input = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.rope = RopeTable(config.context, config.d_k, config.rope_base)
        self.blocks = nn.ModuleList(block(config, ops) for _ in range(config.n_layers))
        self.final_norm = None if ngpt else RMSNorm(config, ops)
        self.E_output = (
            None
            if config.tie_embeddings
            else nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        )
        self.s_z = Scale(config.vocab_size, config.resolve_scale("s_z")) if ngpt else None
        mark_matrices(self, on_sphere=ngpt)
        self.register_load_state_dict_post_hook(_after_loading)  # type: ignore[no-untyped-call]
        self.reset_parameters()

    @property
    def spherical(self) -> bool:
        """Whether the rows of all matrices are unit vectors: nGPT."""
        return self.config.arch == "ngpt"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of hidden states and products without autocast: that of the gains or of s_z.

        Matrices may be stored in a narrower one (`train.weight_storage`).
        """
        if self.final_norm is not None:
            return self.final_norm.gain.dtype
        assert self.s_z is not None
        return self.s_z.stored.dtype

    @property
    def layers(self) -> list[Block]:
        """The blocks, typed as blocks."""
        return cast("list[Block]", list(self.blocks))

    def reset_parameters(self) -> None:
        """Initialize all parameters; also fills a model that was built on the meta device."""
        initialize_(self, self.config)

    def extend_context(self, length: int) -> None:
        """Allow sequences of up to `length` tokens; RoPE continues with the same angles."""
        require_int("length", length)
        self.rope.rebuild(max(length, self.rope.length))

    def hidden(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """The hidden state after the last block: (B, T) -> (B, T, D); in nGPT on the unit sphere.

        `documents`, (B, T), is the number of each token's document; attention then stays inside it.
        `position_ids`, (B, T), are the positions of the tokens; by default a row counts from 0,
        through all of its documents and any padding on its left. With a vector s_qk, nGPT's scores
        depend on absolute positions (`spherelm.model.rope`), so by default a document's logits
        depend on where it stands in its row; with `restarting_positions(documents)` they do not.
        """
        self._check(tokens, documents, position_ids)
        attend = CAUSAL if documents is None else within(documents)
        rope = self.rope(tokens.shape[1], position_ids)
        in_8_bits = self.ops.hold is not None
        with scaled_pass(self.layers, tokens.numel()) if in_8_bits else nullcontext():
            return self.run_blocks(self.embed(tokens), rope, [attend] * len(self.blocks))

    def embed(self, tokens: Tensor) -> Tensor:
        """The rows of E_input: (B, T) -> (B, T, D)"""
        # Widened before the lookup, so that the gradients of a row are summed in float32.
        h = F.embedding(tokens, as_read(self.E_input, self.dtype))
        if self.config.normalize_in_forward:
            h = normalize(h)
        return h.to(self._stream_dtype())

    def run_blocks(
        self, h: Tensor, rope: Tensor, attends: Iterable[Attend], run: RunBlock = run_block
    ) -> Tensor:
        """The blocks, each with its own attention mask, and GPT's final norm.

        h: (B, T, D), rope: (2, T, K/2) or (2, B, T, K/2) -> (B, T, D)
        """
        for block, attend in zip(self.blocks, attends, strict=True):
            h = run(block, h, rope, attend)
        return h if self.final_norm is None else self.final_norm(h)

    def forward(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Logits z = (E_output h) · s_z: (B, T) -> (B, T, V), at least float32.

        `documents` and `position_ids`, both (B, T), are those of `hidden`. A row padded on the left
        needs both.
        """
        return self.logits(self.hidden(tokens, documents, position_ids))

    def logits(self, h: Tensor) -> Tensor:
        """z = (E_output h) · s_z: (..., D) -> (..., V), at least float32."""
        logits = at_least_float32(F.linear(h, self.output_embedding(h.dtype)))
        return logits if self.s_z is None else logits * self.s_z()

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        documents: Tensor | None = None,
        reduction: Reduction = "mean",
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Cross-entropy of the next token, over the targets that are not `IGNORE_INDEX`."""
        require_choice("reduction", reduction, REDUCTIONS)
        _check_shape("targets", targets, tokens)
        self._check_ids("targets", targets, allow=IGNORE_INDEX)
        h = self.hidden(tokens, documents, position_ids)
        s_z = None if self.s_z is None else self.s_z()
        return self.ops.loss(h, self.output_embedding(h.dtype), s_z, targets, reduction)

    def output_embedding(self, dtype: torch.dtype) -> Tensor:
        """E_output for the logits, at least in `dtype`: (V, D)"""
        E_output = self.E_input if self.E_output is None else self.E_output
        return as_read(E_output, dtype, self.config.normalize_in_forward)

    def scaled_output_embedding(self, dtype: torch.dtype) -> Tensor:
        """E_output with s_z multiplied into its rows: (V, D)"""
        E_output = self.output_embedding(dtype)
        return E_output if self.s_z is None else E_output * self.s_z()[:, None]

    def _stream_dtype(self) -> torch.dtype:
        """The dtype of hidden states and products: autocast's if it is on."""
        device = self.E_input.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
        return self.dtype

    def _check(self, tokens: Tensor, documents: Tensor | None, position_ids: Tensor | None) -> None:
        _check_tensor("tokens", tokens)
        if tokens.ndim != 2 or tokens.numel() == 0:
            raise UserError(f"tokens must be a non-empty (batch, time), not {tuple(tokens.shape)}")
        self._check_ids("tokens", tokens)
        for name, given in (("documents", documents), ("position_ids", position_ids)):
            if given is not None:
                _check_shape(name, given, tokens)

    def _check_ids(self, name: str, ids: Tensor, allow: int | None = None) -> None:
        """Refuse ids outside the vocabulary; only on the CPU: on a GPU, checking would stall."""
        _check_tensor(name, ids)
        if ids.dtype != torch.long:
            raise UserError(f"{name} must be ids of dtype torch.long, not {ids.dtype}")
        if ids.device.type != "cpu" or torch.compiler.is_compiling():
            return
        outside = (ids < 0) | (ids >= self.config.vocab_size)
        if allow is not None:
            outside &= ids != allow
        if bool(outside.any()):
            raise UserError(
                f"{name} must be ids from 0 to {self.config.vocab_size - 1} (vocab_size), "
                f"not {int(ids[outside][0])}"
            )


def _check_tensor(name: str, given: object) -> None:
    if not isinstance(given, Tensor):
        raise UserError(f"{name} must be a torch.Tensor of ids, not {type(given).__name__}")


def _check_shape(name: str, given: Tensor, tokens: Tensor) -> None:
    _check_tensor("tokens", tokens)
    _check_tensor(name, given)
    if given.shape != tokens.shape:
        raise UserError(
            f"{name} must have the shape of tokens {tuple(tokens.shape)}, not {tuple(given.shape)}"
        )


def _after_loading(model: Transformer, _: object) -> None:
    """Loaded weights may be off the sphere, and assigned ones of another device or dtype."""
    retract_strays_(model)
    if not model.E_input.is_meta:
        model.rope.follow(model.E_input.device, model.dtype)  # no state dict holds a table
    for module in model.modules():
        if isinstance(module, Part):
            module.choose_ops()
