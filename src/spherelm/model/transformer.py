"""The Transformer: E_input, L blocks, E_output; GPT or nGPT by its config.

Shapes: B batch, T time, D d_model, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spherelm import ops
from spherelm.errors import UserError
from spherelm.model.block import GPTBlock, NGPTBlock, RMSNorm
from spherelm.model.config import ModelConfig
from spherelm.model.init import initialize_
from spherelm.model.rope import RopeTable
from spherelm.model.scale import Scale
from spherelm.model.sphere import as_read, mark_matrices, retract_strays_
from spherelm.ops.names import IGNORE_INDEX as IGNORE_INDEX
from spherelm.validate import require_int


class Transformer(nn.Module):
    """A decoder-only Transformer: `model(tokens)` gives logits, `model.loss(...)` a scalar."""

    def __init__(self, config: ModelConfig) -> None:
        if not isinstance(config, ModelConfig):
            raise UserError(f"a Transformer is made from a ModelConfig, not {config!r}")
        super().__init__()
        self.config = config
        ngpt = config.arch == "ngpt"
        block = NGPTBlock if ngpt else GPTBlock
        self.E_input = nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        self.rope = RopeTable(config.context, config.d_k, config.rope_base)
        self.blocks = nn.ModuleList(block(config) for _ in range(config.n_layers))
        self.final_norm = None if ngpt else RMSNorm(config.d_model)
        self.E_output = (
            None
            if config.tie_embeddings
            else nn.Parameter(torch.empty(config.vocab_size, config.d_model))
        )
        self.s_z = Scale(config.vocab_size, config.resolve_scale("s_z")) if ngpt else None
        mark_matrices(self, on_sphere=ngpt)
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda module, _: retract_strays_(module)
        )
        self.reset_parameters()

    @property
    def spherical(self) -> bool:
        """Whether the rows of all matrices are unit vectors: nGPT."""
        return self.config.arch == "ngpt"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of hidden states and products where autocast is off: that of gains or of s_z.

        Matrices may be stored in less (`train.weight_storage`).
        """
        if self.final_norm is not None:
            return self.final_norm.gain.dtype
        assert self.s_z is not None
        return self.s_z.stored.dtype

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the way to fill a model that was built on the meta device."""
        initialize_(self, self.config)

    def extend_context(self, length: int) -> None:
        """Allow sequences of up to `length` tokens; RoPE goes on with the same angles."""
        require_int("length", length)
        self.rope.rebuild(max(length, self.rope.length))

    def hidden(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """The hidden state after the last block: (B, T) -> (B, T, D); in nGPT on the unit sphere.

        `documents`, (B, T), numbers the document of each token; attention then stays inside it.
        `position_ids`, (B, T), are the positions of the tokens; without them a row counts from 0,
        through all of its documents and any padding on its left. With a vector s_qk, nGPT's scores
        depend on absolute positions (`spherelm.model.rope`), so a document then has other logits
        than alone; with `restarting_positions(documents)` it has the same.
        """
        self._check(tokens, documents, position_ids)
        # Widened before the look-up, so that the gradients of a row are summed in float32.
        h = F.embedding(tokens, as_read(self.E_input, self.dtype))  # (B, T, D)
        if self.config.normalize_in_forward:
            h = ops.normalize(h)
        h = h.to(self._stream_dtype())
        rope = self.rope(tokens.shape[1], position_ids)
        mask = None if documents is None else _document_mask(documents)
        for block in self.blocks:
            h = block(h, rope, mask)
        return h if self.final_norm is None else self.final_norm(h)

    def forward(
        self,
        tokens: Tensor,
        documents: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Logits z = (E_output h) · s_z: (B, T) -> (B, T, V), at least float32.

        A row padded on the left needs both `documents` and `position_ids`: see `hidden`.
        """
        h = self.hidden(tokens, documents, position_ids)
        logits = ops.reference.at_least_float32(F.linear(h, self._output_embedding(h.dtype)))
        return logits if self.s_z is None else logits * self.s_z()

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        documents: Tensor | None = None,
        reduction: Literal["mean", "sum"] = "mean",
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Cross-entropy of the next token, over the targets that are not `IGNORE_INDEX`."""
        _check_shape("targets", targets, tokens)
        self._check_ids("targets", targets, allow=IGNORE_INDEX)
        h = self.hidden(tokens, documents, position_ids)
        return ops.linear_cross_entropy(
            h,
            self._output_embedding(h.dtype),
            None if self.s_z is None else self.s_z(),
            targets,
            IGNORE_INDEX,
            reduction,
        )

    def _output_embedding(self, dtype: torch.dtype) -> Tensor:
        E_output = self.E_input if self.E_output is None else self.E_output
        return as_read(E_output, dtype, self.config.normalize_in_forward)

    def _stream_dtype(self) -> torch.dtype:
        """The dtype of hidden states and products: autocast's where it is on."""
        device = self.E_input.device.type
        if torch.is_autocast_enabled(device):
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
        """Refuse ids outside the vocabulary; only on the CPU, where to look does not stall."""
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


def _document_mask(documents: Tensor) -> Tensor:
    """True where position i may see position j: j ≤ i in the same document.  -> (B, 1, T, T)"""
    same = documents[:, :, None] == documents[:, None, :]
    return same.tril()[:, None]
