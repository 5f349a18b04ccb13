"""Complete configurations by name."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from spherelm import presets
from spherelm.config_io import override, read_toml, to_toml
from spherelm.errors import UserError
from spherelm.model.config import SCALE_NAMES

SIZES = [name.removeprefix("ngpt-") for name in presets.names() if name.startswith("ngpt-")]
PAPER = [f"{size}-{context}" for size in ("0.5b", "1b") for context in ("1k", "4k", "8k")]


def test_names() -> None:
    """Those that others rely on are there, and every size in both kinds."""
    assert {"debug", "nano", "small", *PAPER} <= set(SIZES)
    assert set(presets.names()) == {f"{arch}-{size}" for arch in ("gpt", "ngpt") for size in SIZES}


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_is_what_its_name_says(name: str) -> None:
    assert presets.get(name).model.arch == name.partition("-")[0]


@pytest.mark.parametrize("size", PAPER)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_models_of_the_paper(arch: str, size: str) -> None:
    """Its tables 'Model Parameters' and 'Optimization Parameters'."""
    config = presets.get(f"{arch}-{size}")
    model, optim = config.model, config.optim
    width, _, context = size.partition("-")
    shape = (model.n_layers, model.d_model, model.n_heads)
    assert shape == {"0.5b": (24, 1024, 16), "1b": (36, 1280, 20)}[width]
    assert model.d_k == 64
    assert model.mlp_width == 4 * model.d_model
    assert model.context == {"1k": 1024, "4k": 4096, "8k": 8192}[context]
    assert (model.vocab_size, model.rope_base) == (32000, 10000)
    assert config.train.batch_size == 512
    assert optim.final_lr == 0
    assert optim.weight_decay == (0.1 if arch == "gpt" else 0)
    assert optim.warmup_steps == (2000 if arch == "gpt" else 0)


@pytest.mark.parametrize("size", PAPER)
def test_only_the_sensitive_model_stores_alpha_at_a_tenth(size: str) -> None:
    """'The increasing sensitivity of the 1B nGPT model on 8k': its α are stored at 0.1."""
    model = presets.get(f"ngpt-{size}").model
    default = 1 / math.sqrt(model.d_model)
    for name in SCALE_NAMES:
        scale = model.resolve_scale(name)
        if name.startswith("alpha"):
            assert scale.init == 0.05
            assert scale.scale == (0.1 if size == "1b-8k" else default)
        elif name in ("s_u", "s_nu"):
            assert scale.scale == 1.0
        else:
            assert scale.scale == default


@pytest.mark.parametrize("size", SIZES)
def test_the_two_models_of_a_size_differ_only_in_kind(size: str) -> None:
    """The same shape, tokens and steps: a comparison compares architectures."""
    gpt, ngpt = presets.get(f"gpt-{size}"), presets.get(f"ngpt-{size}")
    shape = ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "context")
    for name in (*shape, "rope_base"):
        assert getattr(gpt.model, name) == getattr(ngpt.model, name)
    assert gpt.optim.algorithm == ngpt.optim.algorithm
    assert gpt.train == ngpt.train
    assert gpt.data == ngpt.data
    assert gpt.optim.weight_decay == 0.1
    assert gpt.optim.warmup_steps > 0


def test_the_strongest_gpt_has_all_that_makes_one_better() -> None:
    """What the study's best baseline has; nGPT ends no lower with ties (docs/tuning.md)."""
    gpt, ngpt = presets.get("gpt-nano-muon"), presets.get("ngpt-nano-muon")
    assert (gpt.model.gpt_qk_norm, gpt.model.tie_embeddings) == (True, True)
    assert not ngpt.model.tie_embeddings
    assert gpt.optim.algorithm == "muon"
    plain = {name: getattr(presets.get("gpt-nano").train, name) for name in ("steps", "batch_size")}
    assert all(getattr(gpt.train, name) == value for name, value in plain.items())


def test_a_name_without_kind_means_ngpt() -> None:
    assert presets.get("nano") == presets.get("ngpt-nano")
    assert presets.get("0.5b-1k") == presets.get("ngpt-0.5b-1k")


@pytest.mark.parametrize("name", ["ngpt-nanno", "nanno", "nano-ngpt", "", "gpt", "ngpt-0.5b-2k"])
def test_an_unknown_name_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match="unknown preset") as refusal:
        presets.get(name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["medium", "large", "124m", "gpt2", "ngpt-350m", "ngpt"])
def test_a_size_that_there_is_not_is_told_all(name: str) -> None:
    """None is near: that all begin with ngpt- does not make two of them alike."""
    with pytest.raises(
        UserError, match=r"; valid: ngpt-0.5b-1k, .*, ngpt-nano, ngpt-nano-muon, ngpt-small$"
    ):
        presets.get(name)
    with pytest.raises(
        UserError, match=r"; valid: gpt-0.5b-1k, .*, gpt-nano, gpt-nano-muon, gpt-small$"
    ):
        presets.get("gpt-large")


def test_a_misspelt_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'ngpt-nano'"):
        presets.get("ngpt-nanno")


@pytest.mark.parametrize("name", presets.names())
def test_a_file_that_is_whole_needs_no_preset(name: str, tmp_path: Path) -> None:
    """What it leaves unset is not taken from nano, whose starting values suit nano alone."""
    file = tmp_path / "config.toml"
    file.write_text(to_toml(presets.get(name)))
    assert read_toml(file, presets.under(file)) == presets.get(name)
    file.write_text(f'[model]\narch = "{presets.get(name).model.arch}"\n')
    assert presets.under(file) == presets.get("nano", presets.get(name).model.arch)


def test_a_warmup_is_shorter_than_the_run_however_short_that_is() -> None:
    long = override(presets.get("ngpt-nano"), {"train.steps": 10, "optim.warmup_steps": 9})
    assert [presets.warmup_for(long, steps) for steps in (1, 2, 10, 100)] == [0, 1, 9, 90]


def test_the_architecture_of_a_flag_wins_over_that_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for arch, other in (("gpt", "ngpt"), ("ngpt", "gpt")):
        file.write_text(f'[model]\narch = "{arch}"\n')
        assert presets.under(file).model.arch == arch
        assert presets.under(file, other).model.arch == other


def test_a_pass_of_the_papers_models_has_as_many_tokens_at_every_context() -> None:
    for name in ("0.5b-1k", "0.5b-4k", "1b-8k"):
        run = presets.get(name)
        assert run.train.micro_batch_size is not None
        assert run.train.micro_batch_size * run.model.context == 32768
