"""Training with eight-bit products, simulated on a CPU: refused, resumed, saved, in parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spherelm.bench import rounding
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.saved import load_model
from spherelm.training import loop
from spherelm.training.build import check_eight_bits
from spherelm.training.loop import train
from spherelm.training.report.plan import make_plan
from tests.training.conftest import tiny
from tests.training.same_run import assert_same_run, stopped, tensors


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that may pass for a GPU."""
    monkeypatch.setattr(loop, "check_eight_bits", lambda *_: None)


def in_8_bits(run: RunConfig, **fields: object) -> RunConfig:
    given = {name.replace("__", "."): value for name, value in fields.items()}
    return override(run, {"train.precision": "fp8", "model.d_mlp": 32, **given})


@pytest.mark.usefixtures("simulated")
def test_resumed_equals_uninterrupted(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    """To the bit, in parts of a batch, and with the scales of gradients among what is kept."""
    run = in_8_bits(tiny_run, train__keep_last=5, train__micro_batch_size=2)
    train(run, dataset, tmp_path / "whole")
    resumed = stopped(tmp_path / "whole")
    train(run, dataset, resumed, resume="auto")
    assert_same_run(tmp_path / "whole", resumed)
    scales = {n: t for n, t in tensors(tmp_path / "whole").items() if n.startswith("scaling.")}
    assert len(scales) == 2 * 2 * 2  # scales and largest numbers of two parts of two blocks
    assert all(bool((t > 0).all()) for name, t in scales.items() if name.endswith("scale"))


@pytest.mark.usefixtures("simulated")
def test_to_evaluate_more_often_changes_nothing(
    tmp_path: Path, dataset: TokenDataset, tiny_run: RunConfig
) -> None:
    for every in (1, 12):
        run = in_8_bits(tiny_run, train__eval_every=every, train__steps=4, optim__lr=1e-3)
        train(run, dataset, tmp_path / str(every))
    often, seldom = (tensors(tmp_path / name, 4) for name in ("1", "12"))
    assert all(torch.equal(often[name], seldom[name]) for name in often)


@pytest.mark.usefixtures("simulated")
def test_the_model_of_such_a_run_is_like_any_other(
    tmp_path: Path, dataset: TokenDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    train(in_8_bits(tiny("ngpt"), train__steps=2), dataset, tmp_path / "run")
    model = load_model(tmp_path / "run").model
    assert model.ops.hold is None
    report = rounding.run(
        rounding.Flags(models=(str(tmp_path / "run"),), data=str(dataset.path), device="cpu")
    )
    shares = report.numbers["rounding"]
    assert len(shares) == 12  # three operands of four products
    # No number of an nGPT's forward pass can be too large; gradients have room to grow 16-fold.
    assert all(share["largest"] == 0 for share in shares)
    assert all(share["zero"] < 0.1 for share in shares)


def test_a_machine_without_eight_bits_is_refused_before_anything_is_written(
    tmp_path: Path, dataset: TokenDataset
) -> None:
    with pytest.raises(UserError, match="fp8 needs an NVIDIA GPU of compute"):
        train(in_8_bits(tiny("ngpt")), dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="fp8 needs an NVIDIA GPU of compute"):
        make_plan(in_8_bits(tiny("ngpt")), dataset)  # nor is a simulation timed


def test_shapes_that_do_not_go_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu = torch.device("cuda")
    check_eight_bits(in_8_bits(tiny("gpt")), gpu)
    with pytest.raises(UserError, match=r"model.d_mlp in steps of 16, not 40"):
        check_eight_bits(in_8_bits(tiny("gpt"), model__d_mlp=40), gpu)
    with pytest.raises(UserError, match=r"does not work with parallel.tensor = 2"):
        check_eight_bits(in_8_bits(tiny("gpt"), parallel__tensor=2), gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    with pytest.raises(UserError, match=r"capability 8.9 or later, and A100 has 8.0; use bf16"):
        check_eight_bits(in_8_bits(tiny("gpt")), gpu)
