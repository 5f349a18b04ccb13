"""What a model is: one frozen, validated description for GPT, nGPT and every variant of the paper.

Variants are fields, not classes. A field that only nGPT has must keep its default in a GPT.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from spherelm.errors import UserError
from spherelm.ops.names import Update
from spherelm.validate import check_fields

Arch = Literal["gpt", "ngpt"]
ARCHS: tuple[Arch, ...] = ("gpt", "ngpt")
ARCH_NAMES: dict[Arch, str] = {"gpt": "GPT", "ngpt": "nGPT"}
"""Their names in text and plots."""
ScaleMode = Literal["vector", "scalar", "fixed"]

SCALE_NAMES = ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z")
"""The six learned vectors of factors: α_A, α_M, s_qk, s_u, s_ν and s_z."""
PAPER_STD = 0.02
"""Initial standard deviation of GPT's matrices, for the paper's d_model of 1024 and 1280."""


@dataclass(frozen=True)
class ScaleConfig:
    """One learned vector of factors: stored at `scale`, read as `stored · init / scale`.

    Under Adam its effective learning rate is lr · init / scale (paper, 'Effective learning rates').
    """

    init: float | None = None
    """Value at the start of training. Unset: the paper's, 0.05 for alpha and 1 for the others."""
    scale: float | None = None
    """Value at which it is stored. Unset: the paper's, 1 for s_u and s_nu, else 1/sqrt(d_model)."""
    mode: ScaleMode = "vector"
    """vector: one factor per element; scalar: one per layer; fixed: not learned."""


@dataclass(frozen=True)
class ResolvedScale:
    """A `ScaleConfig` with the paper's values filled in for a given d_model."""

    init: float
    scale: float
    mode: ScaleMode


@dataclass(frozen=True)
class ModelConfig:
    """A Transformer: `arch` chooses the column of the paper's Table 1."""

    arch: Arch = "ngpt"
    """gpt: the baseline (left column); ngpt: the normalized Transformer (right column)."""
    vocab_size: int = 32000
    """V, the number of tokens."""
    d_model: int = 1024
    """D, the embedding dimension: the dimension of the sphere's space."""
    n_layers: int = 24
    """L, the number of layers, each one attention and one MLP block."""
    n_heads: int = 16
    """H, the number of attention heads; d_k = d_model / n_heads."""
    n_kv_heads: int | None = None
    """Heads of k and v for grouped-query attention. Unset: as many as n_heads."""
    d_mlp: int | None = None
    """F, the width of the MLP. Unset: 4 · d_model, as in the paper."""
    context: int = 1024
    """T, the tokens of a sequence in training; `generate` and `eval` may go beyond it."""
    rope_base: float = 10000.0
    """Base of the rotary position embedding."""
    update: Update = "lerp"
    """How a block moves the hidden state on the sphere (nGPT)."""
    qk_norm: bool = True
    """Whether q and k are normalized per head, after the rotation (nGPT)."""
    gpt_qk_norm: bool = False
    """Whether q and k are normalized per head, after the rotation, with a learned gain (GPT)."""
    signed_alpha: bool = False
    """Whether eigen learning rates may be negative; if not, |alpha| is used (nGPT)."""
    normalize_in_forward: bool = False
    """Whether matrices are normalized in the forward pass too, not only after a step (nGPT)."""
    tie_embeddings: bool = False
    """Whether E_output is E_input."""
    init_std: float | None = None
    """Standard deviation of matrices at the start. Unset: the paper's 0.02, which is meant for
    d_model of 1024 and more; 1/sqrt(d_model) suits narrower models (GPT)."""
    alpha_attn: ScaleConfig = ScaleConfig()
    """alpha_A, the eigen learning rates of the attention block (nGPT)."""
    alpha_mlp: ScaleConfig = ScaleConfig()
    """alpha_M, the eigen learning rates of the MLP block (nGPT)."""
    s_qk: ScaleConfig = ScaleConfig()
    """Factors on the normalized q and k, one vector per head (nGPT)."""
    s_u: ScaleConfig = ScaleConfig()
    """Factors on u, the linear branch of the MLP (nGPT)."""
    s_nu: ScaleConfig = ScaleConfig()
    """Factors on nu, the gate of the MLP, beside sqrt(d_model) (nGPT)."""
    s_z: ScaleConfig = ScaleConfig()
    """Factors on the logits, one per token of the vocabulary (nGPT)."""

    def __post_init__(self) -> None:
        check_fields(self, "model.")
        if self.d_model % self.n_heads:
            raise UserError(
                f"model.n_heads must divide model.d_model = {self.d_model}, not be {self.n_heads}"
            )
        if self.d_k % 2:
            raise UserError(
                f"model.d_model / model.n_heads must be even: RoPE rotates pairs of coordinates, "
                f"not {self.d_model} / {self.n_heads} = {self.d_k}"
            )
        if self.n_heads % self.kv_heads:
            raise UserError(
                f"model.n_kv_heads must divide model.n_heads = {self.n_heads}, not {self.kv_heads}"
            )
        for name in SCALE_NAMES:
            check_fields(getattr(self, name), f"model.{name}.")
        if self.arch == "gpt":
            self._forbid_ngpt_fields()
        elif self.init_std is not None:
            raise UserError("model.init_std is for GPT alone; nGPT's rows start with unit norm")
        elif self.gpt_qk_norm:
            raise UserError("model.gpt_qk_norm is for GPT alone; nGPT's field is model.qk_norm")

    def _forbid_ngpt_fields(self) -> None:
        ngpt_only = ("update", "qk_norm", "signed_alpha", "normalize_in_forward", *SCALE_NAMES)
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        for name in ngpt_only:
            if getattr(self, name) != defaults[name]:
                raise UserError(f"model.{name} is for nGPT alone; a GPT has no such thing")

    @property
    def d_k(self) -> int:
        """K, the dimension of one head."""
        return self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        """The number of heads of k and v."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def mlp_width(self) -> int:
        """F, the width of the MLP."""
        return 4 * self.d_model if self.d_mlp is None else self.d_mlp

    @property
    def softmax_scale(self) -> float:
        """1/sqrt(d_k) for GPT; sqrt(d_k) for nGPT, whose q·k has variance 1/d_k (point 4).

        A GPT with QK-norm takes sqrt(d_k) too: Norm gives q and k length 1, where RMSNorm would
        give sqrt(d_k)."""
        return math.sqrt(self.d_k) if self.has_s_qk else 1 / math.sqrt(self.d_k)

    @property
    def has_s_qk(self) -> bool:
        """Whether attention has the factors s_qk: in nGPT, and as the gain of a GPT's QK-norm."""
        return self.arch == "ngpt" or self.gpt_qk_norm

    @property
    def matrix_std(self) -> float:
        """Standard deviation of the initial matrices; nGPT then normalizes their rows."""
        if self.arch == "ngpt":
            return 1 / math.sqrt(self.d_model)
        return PAPER_STD if self.init_std is None else self.init_std

    def resolve_scale(self, name: str) -> ResolvedScale:
        """The configuration of the factors `name`, with the paper's values for what is unset."""
        given: ScaleConfig = getattr(self, name)
        paper_init = 0.05 if name.startswith("alpha") else 1.0
        plain = name in ("s_u", "s_nu") or self.arch == "gpt"  # GPT's only one is QK-norm's gain
        paper_scale = 1.0 if plain else 1 / math.sqrt(self.d_model)
        return ResolvedScale(
            init=paper_init if given.init is None else float(given.init),
            scale=paper_scale if given.scale is None else float(given.scale),
            mode=given.mode,
        )
