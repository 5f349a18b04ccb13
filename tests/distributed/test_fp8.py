"""Eight-bit products on two processes: matrices rounded after they were gathered, scales shared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from spherelm.config_io import override
from spherelm.data.open import open_dataset
from spherelm.runs.metrics import read_metrics
from spherelm.training import loop
from tests.corpus import prepare_corpus
from tests.distributed.launch import run_specs
from tests.training.conftest import tiny

FIELDS = {
    "train.precision": "fp8",
    "train.steps": 3,
    "train.eval_every": 0,
    "train.checkpoint_every": 0,
    "train.batch_size": 4,
    "train.micro_batch_size": 1,  # two on each rank
    "model.d_mlp": 32,
}


def scales_of(run: Path) -> dict[str, Tensor]:
    """The scales in the last checkpoint, in whichever shard they are."""
    shards = (run / "checkpoints" / "step_3").glob("*.safetensors")
    return {n: t for s in shards for n, t in load_file(s).items() if n.startswith("scaling.")}


def test_two_processes_follow_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepare_corpus(tmp_path)
    monkeypatch.setattr(loop, "check_eight_bits", lambda *_: None)
    specs = []
    for arch in ("gpt", "ngpt"):
        run = override(tiny(arch), FIELDS)
        loop.train(run, open_dataset(data), tmp_path / f"{arch}-one")
        specs.append(
            {
                "arch": arch,
                "config": FIELDS,
                "data": str(data),
                "out": str(tmp_path / f"{arch}-two"),
            }
        )
    run_specs(2, specs, tmp_path)
    for arch in ("gpt", "ngpt"):
        one, two = (
            read_metrics(tmp_path / f"{arch}-{n}" / "metrics.jsonl") for n in ("one", "two")
        )
        # Two round bfloat16 copies of the matrices, one the matrices: some numbers fall otherwise.
        for a, b in zip(one, two, strict=True):
            assert abs(a["loss"] - b["loss"]) < 2e-2
        scales = [scales_of(tmp_path / f"{arch}-{n}") for n in ("one", "two")]
        assert scales[0].keys() == scales[1].keys()
        for name in scales[0]:
            if name.endswith("scale"):  # powers of two, at most one apart
                ratio = (scales[0][name] / scales[1][name]).log2()
                assert bool((ratio.abs() <= 1).all()), name
                assert torch.equal(ratio, ratio.round())
