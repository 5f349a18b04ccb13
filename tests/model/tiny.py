"""Models small enough to check with explicit loops, and away from where they start."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from spherelm import ModelConfig, Transformer, retract_
from spherelm.model.config import Arch, ScaleConfig

ARCHS: tuple[Arch, ...] = ("gpt", "ngpt")
UPDATES = ("lerp", "slerp", "riemannian")

# Each variant the paper names, and each that it does not but the config has.
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt": {"arch": "gpt"},
    "gpt, grouped heads": {"arch": "gpt", "n_kv_heads": 2},
    "gpt, tied": {"arch": "gpt", "tie_embeddings": True},
    "lerp": {},
    "slerp": {"update": "slerp"},
    "riemannian": {"update": "riemannian"},
    "no qk norm": {"qk_norm": False},
    "signed alpha": {"signed_alpha": True},
    "signed alpha, slerp": {"signed_alpha": True, "update": "slerp"},
    "signed alpha, riemannian": {"signed_alpha": True, "update": "riemannian"},
    "grouped heads": {"n_kv_heads": 2},
    "one kv head, no qk norm": {"n_kv_heads": 1, "qk_norm": False},
    "tied": {"tie_embeddings": True},
    "normalized in forward": {"normalize_in_forward": True},
    "normalized in forward, tied": {"normalize_in_forward": True, "tie_embeddings": True},
    "another rope base": {"rope_base": 50.0},
    "scales: other values": {
        "alpha_attn": ScaleConfig(init=0.3, scale=0.1),
        "alpha_mlp": ScaleConfig(init=0.2, scale=0.7),
        "s_qk": ScaleConfig(init=0.33, scale=1.0),
        "s_u": ScaleConfig(init=0.5, scale=0.25),
        "s_nu": ScaleConfig(init=2.0, scale=0.125),
        "s_z": ScaleConfig(init=4.0, scale=0.5),
    },
    "scales: scalar": {
        name: ScaleConfig(mode="scalar")
        for name in ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z")
    },
    "scales: fixed": {
        name: ScaleConfig(init=0.6, mode="fixed")
        for name in ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z")
    },
}


def tiny_config(**fields: Any) -> ModelConfig:
    """Two layers, four heads of dimension 4, no two sizes alike."""
    sizes = {
        "vocab_size": 13,
        "d_model": 16,
        "n_layers": 2,
        "n_heads": 4,
        "d_mlp": 10,
        "context": 7,
    }
    return ModelConfig(**{**sizes, **fields})


def perturbed(config: ModelConfig, seed: int = 0) -> Transformer:
    """A float64 model as training might leave it: nothing at its starting value.

    Factors differ from element to element and are negative here and there, so that a wrong axis, a
    forgotten factor or a forgotten |α| shows; GPT's matrices are large enough for its nonlinear
    parts to matter. Rows of an nGPT are on the sphere, unless its forward pass puts them there.
    """
    torch.manual_seed(seed)
    model = Transformer(config).double()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.mul_(torch.empty_like(p).uniform_(0.5, 1.5))
                p.mul_(torch.where(torch.rand_like(p) < 0.2, -1.0, 1.0))
            else:
                p.copy_(torch.randn_like(p) * 0.4)
    if not config.normalize_in_forward:
        retract_(model)
    return model


def random_tokens(config: ModelConfig, batch: int = 2, length: int | None = None) -> Tensor:
    """Tokens of the vocabulary: (batch, length), `length` the context if not given."""
    return torch.randint(config.vocab_size, (batch, length or config.context))


@st.composite
def small_configs(draw: st.DrawFn, **fixed: Any) -> ModelConfig:
    """Any valid shape and variant, small: odd sizes, one head, one layer, one token of context."""
    arch = draw(st.sampled_from(ARCHS)) if "arch" not in fixed else fixed["arch"]
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 2))
    fields: dict[str, Any] = {
        "arch": arch,
        "vocab_size": draw(st.integers(1, 9)),
        "d_model": heads * 2 * draw(st.integers(1, 3)),
        "n_layers": draw(st.integers(1, 2)),
        "n_heads": heads,
        "n_kv_heads": draw(st.sampled_from([None, kv_heads])),
        "d_mlp": draw(st.sampled_from([None, 1, 5])),
        "context": draw(st.integers(1, 6)),
        "tie_embeddings": draw(st.booleans()),
    }
    if arch == "ngpt":
        fields |= {
            "update": draw(st.sampled_from(UPDATES)),
            "qk_norm": draw(st.booleans()),
            "signed_alpha": draw(st.booleans()),
            "normalize_in_forward": draw(st.booleans()),
        }
        for name in ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z"):
            fields[name] = ScaleConfig(mode=draw(st.sampled_from(["vector", "scalar", "fixed"])))
    return ModelConfig(**{**fields, **fixed})
