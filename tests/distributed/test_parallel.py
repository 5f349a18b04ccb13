"""The same run on 1, 2 and 4 processes: sharded, replicated, tensor-parallel and combined."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from spherelm.config_io import override
from spherelm.data.open import open_dataset
from spherelm.hf.export import export_to_hf
from spherelm.runs.metrics import read_metrics
from spherelm.training.loop import train
from tests.corpus import prepare_corpus
from tests.distributed.launch import run_specs
from tests.training.conftest import tiny

STEPS = {
    "train.steps": 20,
    "train.eval_every": 10,
    "train.checkpoint_every": 10,
    "train.batch_size": 8,  # at least two micro-batches on each of four ranks
}
ACCUMULATE = {
    "train.micro_batch_size": 1,
    # Every second run also recomputes its blocks and writes its checkpoints in the background.
    "train.activation_checkpointing": True,
    "train.background_checkpoints": True,
}
LAYOUTS: dict[str, tuple[int, dict[str, int]]] = {
    "fsdp2": (2, {}),
    "tp2": (2, {"parallel.tensor": 2}),
    "fsdp4": (4, {}),
    "hsdp2x2": (4, {"parallel.replicate": 2}),
    "fsdp2xtp2": (4, {"parallel.tensor": 2}),
}
RUNS = [
    (arch, layout, accumulate)
    for arch in ("gpt", "ngpt")
    for layout in LAYOUTS
    for accumulate in (False, True)
]
FACTORS = ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z")
VARIANTS: dict[str, dict[str, Any]] = {
    "fixed-factors": {f"model.{factor}.mode": "fixed" for factor in FACTORS},
    "bf16-products": {"train.precision": "bf16"},
    "gated-adamw": {"optim.algorithm": "gated_adamw"},
    "rates": {"optim.input_lr": 4e-3, "optim.output_lr": 1e-3, "optim.factor_lr": 2e-3},
    "recipes": {
        "optim.angle_cap": 0.01,
        "optim.lr_groups": "nugpt",
        "optim.logit_preconditioning": True,
    },
    "recipes-muon": {
        "optim.algorithm": "muon",
        "optim.angle_cap": 0.01,
        "optim.lr_groups": "nugpt",
        "optim.logit_preconditioning": True,
    },
}
"""Of an nGPT, for a few steps on two processes that shard it."""
FEW = STEPS | {"train.steps": 4, "train.eval_every": 2, "train.checkpoint_every": 0}
MUON = {"optim.algorithm": "muon", "optim.muon_lr": 1e-2}
MUON_RUNS = [("gpt", "fsdp2xtp2"), *(("ngpt", layout) for layout in LAYOUTS)]
"""Muon needs whole matrices, which every layout cuts in its own way; a few steps of each."""


def name(arch: str, layout: str, accumulate: bool) -> str:
    return f"{arch}-{layout}-{'accumulated' if accumulate else 'whole'}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs, in two groups of processes, and the single process beside them."""
    folder = tmp_path_factory.mktemp("distributed")
    data = prepare_corpus(folder)
    for arch in ("gpt", "ngpt"):
        train(override(tiny(arch), STEPS), open_dataset(data), folder / f"{arch}-single")
        train(override(tiny(arch), FEW | MUON), open_dataset(data), folder / f"muon-{arch}-single")
    for variant, fields in VARIANTS.items():
        run = override(tiny("ngpt"), FEW | fields)
        train(run, open_dataset(data), folder / f"{variant}-single")
    for processes in (2, 4):
        specs: list[dict[str, Any]] = [
            {
                "arch": arch,
                "out": str(folder / name(arch, layout, accumulate)),
                "data": str(data),
                "config": STEPS | LAYOUTS[layout][1] | (ACCUMULATE if accumulate else {}),
            }
            for arch, layout, accumulate in RUNS
            if LAYOUTS[layout][0] == processes
        ]
        specs += [
            {
                "arch": arch,
                "out": str(folder / f"muon-{arch}-{layout}"),
                "data": str(data),
                "config": FEW | MUON | LAYOUTS[layout][1],
            }
            for arch, layout in MUON_RUNS
            if LAYOUTS[layout][0] == processes
        ]
        if processes == 2:
            specs += [
                {
                    "arch": "ngpt",
                    "out": str(folder / f"{variant}-fsdp2"),
                    "data": str(data),
                    "config": FEW | fields,
                }
                for variant, fields in VARIANTS.items()
            ]
        run_specs(processes, specs, folder)
    return folder


def curve(folder: Path, field: str = "loss") -> torch.Tensor:
    return torch.tensor([m[field] for m in read_metrics(folder / "metrics.jsonl") if field in m])


@pytest.mark.parametrize(("arch", "layout", "accumulate"), RUNS)
def test_losses_equal_those_of_a_single_process(
    runs: Path, arch: str, layout: str, accumulate: bool
) -> None:
    single, many = runs / f"{arch}-single", runs / name(arch, layout, accumulate)
    assert len(curve(many)) == 20
    # Sums in another order differ by 1e-7 of a loss of 5; 20 steps of Adam amplify that.
    torch.testing.assert_close(curve(many), curve(single), rtol=0, atol=2e-5)
    for field in ("val_loss", "grad_norm"):
        torch.testing.assert_close(curve(many, field), curve(single, field), rtol=0, atol=1e-4)
    for field in ("alpha_attn", "s_qk", "s_u", "s_nu") if arch == "ngpt" else ():
        # Means of all of a layer's factors, written with six digits.
        torch.testing.assert_close(curve(many, field), curve(single, field), rtol=0, atol=2e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_follow_a_single_process(runs: Path, variant: str) -> None:
    single, many = runs / f"{variant}-single", runs / f"{variant}-fsdp2"
    # bfloat16 has 8 bits: products of other parts of a batch round otherwise.
    atol = 2e-3 if variant == "bf16-products" else 2e-5
    assert len(curve(many)) == 4
    for field in ("loss", "val_loss", "grad_norm"):
        torch.testing.assert_close(curve(many, field), curve(single, field), rtol=0, atol=atol)
    # Of the weights, which are float32 whatever they are multiplied as.
    assert curve(many, "largest_norm_deviation").max() < 1e-6


@pytest.mark.parametrize(("arch", "layout"), MUON_RUNS)
def test_muon_moves_matrices_that_no_process_holds_whole(
    runs: Path, arch: str, layout: str
) -> None:
    single, many = runs / f"muon-{arch}-single", runs / f"muon-{arch}-{layout}"
    assert len(curve(many)) == 4
    for field in ("loss", "val_loss", "grad_norm"):
        torch.testing.assert_close(curve(many, field), curve(single, field), rtol=0, atol=2e-5)


def test_seconds_and_memory_of_every_rank_are_logged(runs: Path) -> None:
    lines = read_metrics(runs / "ngpt-fsdp4-whole" / "speed.jsonl")
    (line,) = (m for m in lines if m["step"] == 10)
    assert len(line["ranks"]) == 4
    assert all(r["seconds"] > 0 and r["peak_memory_bytes"] > 1e6 for r in line["ranks"])


def test_a_checkpoint_of_four_resumes_on_any_number(runs: Path, tmp_path: Path) -> None:
    """Written by 2 shards × 2 tensor ranks; 4 more steps on 1, 2 (two ways) and 4."""
    written = {
        "adamw": (runs / name("ngpt", "fsdp2xtp2", True), STEPS | {"train.steps": 24}),
        "muon": (runs / "muon-ngpt-fsdp2xtp2", FEW | MUON | {"train.steps": 8}),
    }
    layouts = {"single": (1, {}), **{k: v for k, v in LAYOUTS.items() if k != "hsdp2x2"}}
    data = str(runs / "data")
    for algorithm, (folder, more) in written.items():
        for layout in layouts:
            shutil.copytree(folder, tmp_path / algorithm / layout)
        alone = tmp_path / algorithm / "single"
        train(override(tiny("ngpt"), more), open_dataset(data), alone, resume="auto")
    for processes in (2, 4):
        specs = [
            {
                "arch": "ngpt",
                "out": str(tmp_path / algorithm / layout),
                "data": data,
                "config": more | fields,
                "resume": "auto",
            }
            for algorithm, (_, more) in written.items()
            for layout, (number, fields) in layouts.items()
            if number == processes
        ]
        run_specs(processes, specs, tmp_path)
    for algorithm, (folder, _) in written.items():
        before = len(curve(folder))
        curves = {layout: curve(tmp_path / algorithm / layout)[before:] for layout in layouts}
        for layout in layouts:
            assert len(curves[layout]) == 4
            torch.testing.assert_close(curves[layout], curves["single"], rtol=0, atol=1e-5)


def test_a_sharded_checkpoint_exports_to_one_file(runs: Path, tmp_path: Path) -> None:
    export_to_hf(runs / name("ngpt", "fsdp2xtp2", True), tmp_path / "many")
    export_to_hf(runs / "ngpt-single", tmp_path / "single")
    many, single = (load_file(tmp_path / n / "model.safetensors") for n in ("many", "single"))
    assert many.keys() == single.keys()
    for tensor in single:
        # The weights of two runs whose sums differ in order, after 20 steps.
        torch.testing.assert_close(many[tensor], single[tensor], rtol=0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fsdp2", "tp2"])
def test_compiled_blocks_can_be_sharded(runs: Path, tmp_path: Path, layout: str) -> None:
    processes, fields = LAYOUTS[layout]
    out, config = tmp_path / "compiled", STEPS | fields | {"train.compile": True}
    spec = {"arch": "ngpt", "out": str(out), "data": str(runs / "data"), "config": config}
    run_specs(processes, [spec], tmp_path)
    torch.testing.assert_close(curve(out), curve(runs / "ngpt-single"), rtol=0, atol=2e-5)
