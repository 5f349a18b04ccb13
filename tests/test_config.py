"""The tree of a run's settings: checks, TOML in and out, overrides."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spherelm import ModelConfig, RunConfig, presets
from spherelm.config import (
    OWN_RATES,
    Algorithm,
    DataConfig,
    OptimConfig,
    ParallelConfig,
    TrainConfig,
)
from spherelm.config_io import from_dict, merge, override, read_toml, to_dict, to_toml
from spherelm.errors import UserError
from spherelm.ops.names import AttentionBackend
from tests.model.tiny import small_configs

NAN, INFINITY = float("nan"), float("inf")


def positive(*names: str) -> list[tuple[str, Any]]:
    return [(name, value) for name in names for value in (0, -1.0, NAN, INFINITY, "1", None, True)]


def not_negative(*names: str) -> list[tuple[str, Any]]:
    return [(name, value) for name in names for value in (-1e-9, NAN, INFINITY, "0", None, True)]


def fractions(*names: str) -> list[tuple[str, Any]]:
    return [(name, value) for name in names for value in (-0.1, 1.0, NAN, "0.9", None)]


def whole(*names: str, least: int) -> list[tuple[str, Any]]:
    return [(name, value) for name in names for value in (least - 1, 1.5, NAN, "3", True)]


def switches(*names: str) -> list[tuple[str, Any]]:
    return [(name, value) for name in names for value in (0, "yes", None)]


MISTAKES: dict[type, list[tuple[str, Any]]] = {
    OptimConfig: [
        *positive("lr", "eps", "decay_share", "log_rho", "gate_exponent", "gate_eps"),
        *not_negative("final_lr", "weight_decay", "grad_clip"),
        *fractions("beta1", "beta2", "muon_momentum"),
        ("decay_share", 1.1),
        ("schedule", "cosin"),
        ("algorithm", "sgd"),
        *((n, v) for n, v in positive(*OWN_RATES, "angle_cap") if v is not None),
        *switches("logit_preconditioning"),
        ("lr_groups", "two"),
        *whole("base_d_model", "base_steps", least=1),
        *whole("warmup_steps", least=0),
    ],
    DataConfig: [("path", 3), *switches("within_documents", "restart_positions")],
    TrainConfig: [
        *whole("steps", "batch_size", "micro_batch_size", "log_every", "eval_sequences", least=1),
        *whole("keep_last", least=1),
        *whole("seed", "eval_every", "checkpoint_every", least=0),
        *switches("activation_checkpointing", "compile", "deterministic", "tensorboard"),
        *switches("background_checkpoints", "cuda_graphs"),
        ("device", 0),
        ("precision", "fp16"),
        ("attention", "slow"),
        ("weight_storage", "auto"),
        ("wandb_project", 3),
    ],
    ParallelConfig: [
        *whole("tensor", "replicate", least=1),
        *positive("timeout", "start_timeout"),
    ],
}
SECTIONS = {
    OptimConfig: "optim",
    DataConfig: "data",
    TrainConfig: "train",
    ParallelConfig: "parallel",
}
CASES = [
    pytest.param(cls, name, value, id=f"{SECTIONS[cls]}.{name}={value!r}")
    for cls, mistakes in MISTAKES.items()
    for name, value in mistakes
]


@pytest.mark.parametrize(("cls", "name", "value"), CASES)
def test_mistakes_name_the_field(cls: type, name: str, value: Any) -> None:
    with pytest.raises(UserError) as refusal:
        cls(**{name: value})
    assert str(refusal.value).startswith(f"{SECTIONS[cls]}.{name} must be")
    assert "\n" not in str(refusal.value)


def test_every_field_has_a_mistake() -> None:
    """A field added without a check, or a check without a test, shows here."""
    for cls, mistakes in MISTAKES.items():
        assert {f.name for f in dataclasses.fields(cls)} == {name for name, _ in mistakes}


def test_ngpt_has_no_weight_decay() -> None:
    with pytest.raises(UserError, match=r"optim\.weight_decay must be 0 for nGPT.* not 0\.1"):
        RunConfig(optim=OptimConfig(weight_decay=0.1))
    RunConfig(model=ModelConfig(arch="gpt"), optim=OptimConfig(weight_decay=0.1))


def test_warmup_ends_before_the_run_does() -> None:
    with pytest.raises(UserError, match=r"optim\.warmup_steps must be below train\.steps = 10"):
        RunConfig(optim=OptimConfig(warmup_steps=10), train=TrainConfig(steps=10))


def test_tokens_per_step() -> None:
    assert presets.get("ngpt-0.5b-4k").tokens_per_step == 512 * 4096


# --- TOML ----------------------------------------------------------------------------------------


def through_toml(config: RunConfig, folder: Path) -> RunConfig:
    path = folder / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    return read_toml(path, RunConfig())


@pytest.mark.parametrize("name", presets.names())
def test_presets_survive_toml(name: str, tmp_path: Path) -> None:
    config = presets.get(name)
    assert through_toml(config, tmp_path) == config


def finite(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, exclude_min=True, exclude_max=True)


@st.composite
def run_configs(draw: st.DrawFn) -> RunConfig:
    """Settings of every type, at values whose spelling is a trap: exponents, quotes, accents."""
    model = draw(small_configs())
    steps, lr = draw(st.integers(1, 10**12)), draw(finite(0.0, 1e300))
    text = st.text(st.characters(codec="utf-8"), max_size=8)
    return RunConfig(
        model=model,
        optim=OptimConfig(
            lr=lr,
            final_lr=draw(st.floats(0.0, lr)),
            eps=draw(finite(0.0, 1e-6)),
            beta1=draw(st.floats(0.0, 1.0, exclude_max=True)),
            weight_decay=draw(finite(0.0, 1.0)) if model.arch == "gpt" else 0.0,
            warmup_steps=draw(st.integers(0, steps - 1)),
        ),
        data=DataConfig(
            path=draw(st.none() | text.filter(bool)), within_documents=draw(st.booleans())
        ),
        train=TrainConfig(
            steps=steps,
            micro_batch_size=draw(st.none() | st.integers(1, 9)),
            precision=draw(st.sampled_from(["auto", "fp32", "bf16"])),
            wandb_project=draw(st.none() | text),
        ),
        parallel=ParallelConfig(tensor=draw(st.integers(1, 8))),
    )


@given(config=run_configs())
@example(config=RunConfig(data=DataConfig(path='quote " backslash \\ tab \t delete \x7f é')))
def test_any_config_survives_toml(
    config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert through_toml(config, tmp_path_factory.mktemp("run")) == config


@given(config=run_configs())
def test_any_config_survives_dictionaries(config: RunConfig) -> None:
    assert from_dict(RunConfig, to_dict(config)) == config


def test_a_file_gives_only_what_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[model]\nupdate = "slerp"\n[model.s_z]\ninit = 10\n[optim]\nlr = 1\nmuon_lr = 2\n'
    )
    base = presets.get("ngpt-nano")
    config = read_toml(path, base)
    assert config.model.update == "slerp"
    assert config.model.s_z == dataclasses.replace(base.model.s_z, init=10.0)
    for rate in (config.optim.lr, config.optim.muon_lr):
        assert isinstance(rate, float)  # a whole number where a float is meant
    assert config.train == base.train


def test_a_file_as_other_systems_write_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nsteps = 7\r\n")
    assert read_toml(path, RunConfig()).train.steps == 7


def test_a_run_is_not_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    with pytest.raises(UserError, match=r"Is a directory$"):
        read_toml(tmp_path, RunConfig())
    file.write_text("")
    with pytest.raises(UserError, match=re.escape(f"did you mean {file}?")):
        read_toml(tmp_path, RunConfig())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nn_head = 4\n", "unknown key model.n_head; did you mean 'n_heads'?"),
        ("[modle]\nn_heads = 4\n", "unknown key modle; did you mean 'model'?"),
        ("[model.s_z]\nintit = 4\n", "unknown key model.s_z.intit; did you mean 'init'?"),
        ("[optim]\nzzz = 4\n", "unknown key optim.zzz; valid: algorithm, angle_cap, base"),
        ("[model]\ns_z = 4\n", "model.s_z must be a table of fields, not 4"),
        ("model = 4\n", "model must be a table of fields, not 4"),
        ("[optim]\nlr = true\n", "optim.lr must be a finite number above 0, not True"),
        ("[optim]\nlr = nan\n", "optim.lr must be a finite number above 0, not nan"),
        ("[optim]\nlr = -inf\n", "optim.lr must be a finite number above 0, not -inf"),
        (
            "[model]\nd_model = 12.0\n",
            "model.d_model must be a whole number",
        ),
        ("[model]\nd_model = \n", "is not TOML"),
        ("[model]\nrope_base = 1" + "0" * 400 + "\n", "rope_base must be a finite number"),
        ("seed = 1\n", "unknown key seed; did you mean train.seed?"),
        ("[model]\ninit = 1\n", "unknown key model.init; did you mean 'init_std'?"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError) as refusal:
        read_toml(path, RunConfig())
    assert str(refusal.value).startswith(str(path))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the config .*none\.toml: No such file"):
        read_toml(tmp_path / "none.toml", RunConfig())
    with pytest.raises(UserError, match="cannot read the config"):
        read_toml(tmp_path, RunConfig())
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"TOML, which is UTF-8 text: .* start byte at byte 0$"):
        read_toml(binary, RunConfig())


# --- overrides -----------------------------------------------------------------------------------


def test_overrides_reach_any_depth() -> None:
    config = override(
        RunConfig(), {"model.s_z.init": 10, "model.s_z.mode": "scalar", "optim.lr": 1}
    )
    assert config.model.s_z.init == 10.0
    assert config.model.s_z.mode == "scalar"
    assert config.optim.lr == 1.0
    assert config.train == RunConfig().train


def test_an_unknown_override_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown key model\.n_layer; did you mean 'n_layers'"):
        override(RunConfig(), {"model.n_layer": 3})


def test_overrides_are_checked_together() -> None:
    """8 does not divide by the 16 heads of the default; with 4 heads it does."""
    config = override(RunConfig(), {"model.d_model": 8, "model.n_heads": 4})
    assert config.model.d_k == 2
    with pytest.raises(UserError, match=r"model\.n_heads must divide model\.d_model"):
        override(RunConfig(), {"model.d_model": 8})


def test_overrides_that_contradict_each_other_are_one_line() -> None:
    with pytest.raises(UserError, match=r"model\.d_model cannot be set beside model = 3"):
        override(RunConfig(), {"model": 3, "model.d_model": 64})


def test_merging_needs_a_table() -> None:
    with pytest.raises(UserError, match="must be a table of fields"):
        merge(RunConfig(), [1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize("attention", ["flash", "fa3", "fa4"])
def test_attention_without_masks_cannot_stay_inside_documents(attention: AttentionBackend) -> None:
    train, data = TrainConfig(attention=attention), DataConfig(within_documents=True)
    with pytest.raises(UserError, match=rf"train.attention = {attention} .*use auto, cudnn or"):
        RunConfig(train=train, data=data)
    RunConfig(train=TrainConfig(attention="cudnn"), data=data)


@pytest.mark.parametrize("attention", ["flash", "cudnn", "fa3", "fa4"])
def test_attention_in_bf16_is_not_for_float32(attention: AttentionBackend) -> None:
    with pytest.raises(UserError, match=rf"train.attention = {attention} computes in bf16"):
        RunConfig(train=TrainConfig(attention=attention, precision="fp32"))
    RunConfig(train=TrainConfig(attention=attention, precision="auto"))
    RunConfig(train=TrainConfig(attention="efficient", precision="fp32"))


@pytest.mark.parametrize("algorithm", ["muon", "gated_adamw"])
def test_what_needs_weights_in_float32_says_so(algorithm: Algorithm) -> None:
    optim = OptimConfig(algorithm=algorithm)
    with pytest.raises(UserError, match=f"optim.algorithm = {algorithm} needs .* = fp32, not bf16"):
        RunConfig(optim=optim, train=TrainConfig(weight_storage="bf16"))
    assert RunConfig(optim=optim).optim.algorithm == algorithm


def test_processes_that_are_left_share_the_weights() -> None:
    assert ParallelConfig().shards(8) == 8
    assert ParallelConfig(tensor=2, replicate=2).shards(8) == 2
    with pytest.raises(UserError, match=r"replicate = 3 must divide .* processes, which is 8$"):
        ParallelConfig(replicate=3).shards(8)
    with pytest.raises(UserError, match=r"which is 1; start several with torchrun$"):
        ParallelConfig(tensor=2).shards(1)


def test_the_last_rate_is_not_above_the_highest() -> None:
    assert OptimConfig(lr=1e-3, final_lr=1e-3).final_lr == 1e-3
    with pytest.raises(UserError, match=r"optim.final_lr is 0.002, above optim.lr.*give it 0.001"):
        OptimConfig(lr=1e-3, final_lr=2e-3)


def test_positions_restart_only_where_documents_are_apart() -> None:
    with pytest.raises(UserError, match=r"data.restart_positions needs data.within_documents"):
        DataConfig(restart_positions=True)
    assert DataConfig(within_documents=True, restart_positions=True).restart_positions
