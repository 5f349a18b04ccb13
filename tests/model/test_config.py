"""`ModelConfig`: the paper's values by default, and one line for each mistake."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from spherelm import ModelConfig, Transformer
from spherelm.errors import UserError
from spherelm.model.config import SCALE_NAMES, ScaleConfig

NAN, INFINITY = float("nan"), float("inf")

SIZES = ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "context")
SWITCHES = ("qk_norm", "signed_alpha", "normalize_in_forward", "tie_embeddings")

MISTAKES: list[tuple[str, dict[str, Any]]] = [
    ("n_heads must divide model.d_model", {"d_model": 100, "n_heads": 16}),
    ("d_model / model.n_heads must be even", {"d_model": 12, "n_heads": 4}),
    ("n_kv_heads must divide model.n_heads", {"n_heads": 16, "n_kv_heads": 3}),
    ("n_kv_heads must divide model.n_heads", {"n_heads": 16, "n_kv_heads": 32}),
    ("arch must be one of gpt, ngpt", {"arch": "llama"}),
    ("arch must be one of gpt, ngpt", {"arch": None}),
    ("update must be one of lerp, slerp, riemannian", {"update": "nlerp"}),
    *(
        (f"{name} must be a whole number of at least 1", {name: value})
        for name in SIZES
        for value in (0, -4, 64.0, NAN, "64", True)
    ),
    *((f"{name} must be true or false", {name: value}) for name in SWITCHES for value in (1, None)),
    *(
        ("rope_base must be a finite number above 0", {"rope_base": value})
        for value in (0, -1.0, NAN, INFINITY, "10000", None)
    ),
    *(
        (f"{name}.{field} must be a finite number above 0", {name: ScaleConfig(**{field: value})})
        for name in SCALE_NAMES
        for field in ("init", "scale")
        for value in (0.0, -0.05, NAN, INFINITY, "1")
    ),
    *(
        (f"{name}.mode must be one of vector, scalar, fixed", {name: ScaleConfig(mode="matrix")})
        for name in SCALE_NAMES
    ),
    ("s_z must be a ScaleConfig", {"s_z": 1.0}),
    *(("init_std must be", {"arch": "gpt", "init_std": value}) for value in (0.0, -0.02, NAN, "1")),
    ("init_std is for GPT alone", {"init_std": 0.02}),
    *(
        (f"{name} is for nGPT alone", {"arch": "gpt", name: value})
        for name, value in [
            ("update", "slerp"),
            ("qk_norm", False),
            ("signed_alpha", True),
            ("normalize_in_forward", True),
            *((name, ScaleConfig(init=0.1)) for name in SCALE_NAMES),
        ]
    ),
]


@pytest.mark.parametrize(("message", "fields"), MISTAKES, ids=lambda value: str(value)[:60])
def test_mistakes_name_the_field(message: str, fields: dict[str, Any]) -> None:
    with pytest.raises(UserError) as refusal:
        ModelConfig(**fields)
    assert str(refusal.value).startswith(f"model.{message}")
    assert "\n" not in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


def test_a_config_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelConfig().d_model = 3  # type: ignore[misc]


def test_a_changed_config_is_checked_again() -> None:
    with pytest.raises(UserError, match=r"model\.n_heads must divide model\.d_model"):
        dataclasses.replace(ModelConfig(), n_heads=7)


def test_defaults_are_the_paper_s() -> None:
    config = ModelConfig()
    assert config.arch == "ngpt"
    assert (config.update, config.qk_norm, config.signed_alpha) == ("lerp", True, False)
    assert not config.normalize_in_forward
    assert not config.tie_embeddings
    assert config.rope_base == 10000
    assert config.mlp_width == 4 * config.d_model
    assert config.kv_heads == config.n_heads
    assert config.softmax_scale == math.sqrt(64)
    assert ModelConfig(arch="gpt").softmax_scale == 1 / math.sqrt(64)


@pytest.mark.parametrize("d_model", [16, 1024, 1280])
def test_factors_of_the_paper(d_model: int) -> None:
    """Point 3 to 6 of 'Summary of modifications'."""
    config = ModelConfig(d_model=d_model, n_heads=4)
    root = 1 / math.sqrt(d_model)
    found = {name: dataclasses.astuple(config.resolve_scale(name)) for name in SCALE_NAMES}
    assert found == {
        "alpha_attn": (0.05, root, "vector"),
        "alpha_mlp": (0.05, root, "vector"),
        "s_qk": (1.0, root, "vector"),
        "s_u": (1.0, 1.0, "vector"),
        "s_nu": (1.0, 1.0, "vector"),
        "s_z": (1.0, root, "vector"),
    }


def test_a_given_value_replaces_only_itself() -> None:
    config = ModelConfig(s_z=ScaleConfig(init=10.0), s_u=ScaleConfig(scale=0.5, mode="scalar"))
    assert dataclasses.astuple(config.resolve_scale("s_z")) == (10.0, 1 / 32, "vector")
    assert dataclasses.astuple(config.resolve_scale("s_u")) == (1.0, 0.5, "scalar")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="n_head"):
        ModelConfig(n_head=4)  # type: ignore[call-arg]


def test_a_refused_config_leaves_no_model() -> None:
    """A config is checked before anything is built from it."""
    with pytest.raises(UserError):
        Transformer(ModelConfig(d_model=10**9 + 1))
