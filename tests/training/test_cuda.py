"""Training on a CUDA device: it follows the CPU, and in deterministic mode resumes to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.training.loop import train
from tests.training.test_loop import losses
from tests.training.test_resume import assert_same_run

pytestmark = pytest.mark.gpu


@pytest.fixture
def cuda_run(tiny_run: RunConfig) -> RunConfig:
    wide = {"model.d_model": 128, "model.n_heads": 2, "model.context": 64}
    return override(tiny_run, {"train.device": "cuda", "train.keep_last": 5, **wide})


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_resumed_equals_uninterrupted(
    tmp_path: Path, dataset: TokenDataset, cuda_run: RunConfig, precision: str
) -> None:
    run = override(cuda_run, {"train.deterministic": True, "train.precision": precision})
    train(run, dataset, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    for step in (8, 12):
        shutil.rmtree(tmp_path / "resumed" / "checkpoints" / f"step_{step}")
    train(run, dataset, tmp_path / "resumed", resume="auto")
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")


@pytest.mark.parametrize("micro_batch", [4, 2])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
@pytest.mark.parametrize("more", ["", "train.compile", "train.activation_checkpointing"])
def test_passes_as_graphs_give_the_same_numbers(
    tmp_path: Path,
    dataset: TokenDataset,
    cuda_run: RunConfig,
    precision: str,
    micro_batch: int,
    more: str,
) -> None:
    """Over evaluations and checkpoints between the steps, and where gradients are added up."""
    run = override(
        cuda_run,
        {
            "train.deterministic": True,
            "train.precision": precision,
            "train.micro_batch_size": micro_batch,
            **({more: True} if more else {}),
        },
    )
    train(run, dataset, tmp_path / "graphs")
    train(override(run, {"train.cuda_graphs": False}), dataset, tmp_path / "launches")
    assert_same_run(tmp_path / "graphs", tmp_path / "launches")


def test_float32_follows_the_cpu(
    tmp_path: Path, dataset: TokenDataset, cuda_run: RunConfig
) -> None:
    exact = override(cuda_run, {"train.precision": "fp32", "train.deterministic": True})
    train(exact, dataset, tmp_path / "cuda")
    train(override(exact, {"train.device": "cpu"}), dataset, tmp_path / "cpu")
    # Other kernels, other orders of summation: 1e-6 of a loss, amplified by 12 steps of Adam.
    torch.testing.assert_close(
        losses(tmp_path / "cuda"), losses(tmp_path / "cpu"), rtol=0, atol=1e-3
    )


def test_compiled_and_recomputed_follow_eager(
    tmp_path: Path, dataset: TokenDataset, cuda_run: RunConfig
) -> None:
    train(cuda_run, dataset, tmp_path / "eager")
    for name in ("compile", "activation_checkpointing"):
        train(override(cuda_run, {f"train.{name}": True}), dataset, tmp_path / name)
        difference = (losses(tmp_path / name) - losses(tmp_path / "eager")).abs().max()
        assert difference < 3e-2  # bfloat16 products in another fusion
