"""Runs at each size: names of their own, sound configurations, the paper's setup, commands."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from spherelm import presets
from spherelm.cli import train as train_verb
from spherelm.config import RunConfig
from spherelm.config_io import read_toml, to_toml
from spherelm.flags import long_forms, parse
from spherelm.paper import registry, sizes
from spherelm.paper.plan import plan
from spherelm.paper.points import FAST_ALPHA, Point
from spherelm.paper.runner import PRESET
from spherelm.paper.scaling.grid import GRID

NAMES = list(sizes.SIZES)


def all_points(size: sizes.Size) -> set[Point]:
    return {point for item in registry.items() for point in item.points(size)}


@pytest.mark.parametrize("name", NAMES)
def test_what_differs_has_another_name_and_the_same_name_is_the_same_run(name: str) -> None:
    size = sizes.get(name)
    configs: dict[str, RunConfig] = {}
    for point in all_points(size):
        job = size.job(point)
        assert configs.setdefault(job.id, job.config) == job.config
        assert job.config.model.arch == point.arch
        assert job.flops > 0
    assert len(set(map(repr, configs.values()))) == len(configs)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_s_toml_is_read_back_as_the_run(name: str, tmp_path: Path) -> None:
    """Also what is unset in it: the preset that it is read upon must have that unset, too."""
    size = sizes.get(name)
    for point in all_points(size):
        config = size.config(point)
        (tmp_path / "run.toml").write_text(to_toml(config))
        base = presets.get(f"{point.arch}-{PRESET}")
        assert read_toml(tmp_path / "run.toml", base) == config


def test_paper_is_the_paper_s_setup() -> None:
    size = sizes.get("paper")
    for point in all_points(size):
        run = size.config(point)
        assert run.train.batch_size == 512
        assert run.train.steps == int(point.budget[:-1]) * 1000
        assert run.model.context == {"1k": 1024, "4k": 4096, "8k": 8192}[point.context]
        shape = {"0.5B": (24, 1024, 16), "1B": (36, 1280, 20)}[point.model]
        assert (run.model.n_layers, run.model.d_model, run.model.n_heads) == shape
        assert run.model.vocab_size == 32_000
        assert (run.optim.schedule, run.optim.final_lr) == ("cosine", 0.0)
        warmup, decay = {"gpt": (2000, 0.1), "ngpt": (0, 0.0)}[point.arch]
        assert (run.optim.warmup_steps, run.optim.weight_decay) == (warmup, decay)
    # The ablations: 1e-3, 100k iterations, about 52B tokens; the histograms: 2e-3.
    ablation = size.job(Point("ngpt", variant="slerp"))
    assert ablation.config.optim.lr == 1e-3
    assert ablation.tokens == pytest.approx(52e9, rel=0.01)
    assert size.job(Point("ngpt", rate=size.histogram_rate)).config.optim.lr == 2e-3
    # Figure 1: 200k iterations at 4k, approximately 400 billion tokens.
    assert size.job(Point("gpt", "1B", "4k", "200k")).tokens == pytest.approx(4e11, rel=0.05)


def test_alpha_is_stored_at_a_tenth_in_1b_at_8k_alone() -> None:
    size = sizes.get("paper")
    plain = size.config(Point("ngpt", "1B", "8k")).model
    fast = size.config(Point("ngpt", "1B", "8k", variant=FAST_ALPHA)).model
    assert plain.resolve_scale("alpha_attn").scale == 0.1
    assert fast.resolve_scale("alpha_mlp").scale == pytest.approx(1280**-0.5)
    other = size.config(Point("ngpt", "1B", "4k")).model
    assert other.resolve_scale("alpha_attn").scale == pytest.approx(1280**-0.5)


def test_small_runs_are_those_of_the_study() -> None:
    """So that its records count, and no run is trained twice."""
    size = sizes.get("small")
    study = {point.id: point.config() for point in GRID}
    jobs = {job.id: job for job in registry.get("token-budget").jobs(size)}
    shared = study.keys() & jobs.keys()
    assert len(shared) == 16  # four budgets at 4k, three at 1k, one at 8k, GPT and nGPT
    assert all(jobs[name].config == study[name] for name in shared)


@pytest.mark.parametrize("name", ["nano", "small"])
def test_stand_ins_have_the_paper_s_ratios(name: str) -> None:
    first, second = sizes.get(name).models.values()
    assert second.layers / first.layers == 36 / 24
    assert second.width / first.width == 1280 / 1024
    assert second.heads / first.heads == 20 / 16


def test_commands_for_a_cluster_train_these_very_runs() -> None:
    size = sizes.get("paper")
    planned = plan(registry.items(), size, lambda job: False, "out", "tokens")
    assert len({run.job.id for run in planned}) == len(planned)
    kinds = {(run.point.variant, run.point.rate != 1, run.point.model): run for run in planned}
    assert len(kinds) > 25
    for run in kinds.values():
        assert run.command is not None
        words = shlex.split(run.command)
        assert words[:3] == ["torchrun", "--nnodes=8", "--nproc-per-node=8"]
        argv = words[words.index("train") + 1 :]
        argv = long_forms(argv, train_verb.TRAIN_SHORT_FORMS)
        base = train_verb._base(argv)
        flags = parse(train_verb.TrainFlags, argv, "train", **train_verb._sections(base.config))
        parsed = RunConfig(**train_verb._sections(flags))
        wanted = run.job.config
        # 64 devices share the 512 sequences of a batch.
        assert (parsed.train.micro_batch_size or 0) * 64 <= 512
        train = dataclasses.replace(wanted.train, micro_batch_size=parsed.train.micro_batch_size)
        data = dataclasses.replace(wanted.data, path="tokens")
        assert parsed == dataclasses.replace(wanted, train=train, data=data), run.command
        assert flags.out == f"out/runs/{run.job.id}"
        assert flags.resume == "auto"


def test_costs_are_told_in_figures_that_one_reads() -> None:
    """Not as 1e+02, which 99.6 hours were, and 1,200 TFLOP/s as 1.2e+03."""
    small = sizes.get("small")
    hours = {0.0: "0", 0.1234: "0.12", 9.94: "9.9", 9.96: "10", 99.6: "100", 32530.2: "32,530"}
    assert {value: small.amount(value) for value in hours} == hours
    speeds = {0.015: "0.015", 99.9: "99.9", 99.97: "100", 370: "370", 1200: "1,200"}
    for tflops, shown in speeds.items():
        size = dataclasses.replace(small, flops=tflops * 1e12, measured="by hand")
        assert size.speed == f"{shown} TFLOP/s (by hand)"
