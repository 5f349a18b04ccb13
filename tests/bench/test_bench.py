"""The benchmarks run on a CPU, and what they print can be read by a machine."""

from __future__ import annotations

import json

import pytest
import torch

from spherelm import presets
from spherelm.bench import step, timing
from spherelm.bench.shares import part_of
from spherelm.bench.step import peak_flops
from spherelm.bench.timing import Timing, copy_speed, measure
from spherelm.cli import bench
from spherelm.errors import UserError
from spherelm.model.flops import flops_per_token


def test_step_reports_both_models(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["step", "--sizes", "debug", "--device", "cpu", "--repeats", "2", "--json"]
    assert bench.main([*argv, "--modes", "reference", "--tokens", "128"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [s["arch"] for s in report["steps"]] == ["gpt", "ngpt"]
    for found in report["steps"]:
        assert found["tokens"] == 128
        median_s = found["step_ms"]["median"] / 1e3
        assert found["tokens_per_s"] == pytest.approx(128 / median_s)
        model = presets.of_size("debug", found["arch"]).model
        assert found["tflops"] == pytest.approx(flops_per_token(model) * 128 / median_s / 1e12)
        assert found["parts_ms"]["products"] > 0
        assert found["peak_gib"] is None
        assert found["mfu"] is None


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_a_share_of_the_peak_is_of_this_device_s_own(
    monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert peak_flops(torch.device("cuda")) == peak
    assert peak_flops(torch.device("cpu")) is None


def test_step_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["step", "--sizes", "debug", "--archs", "gpt", "--device", "cpu", "--repeats", "1"]
    assert bench.main([*argv, "--tokens", "64"]) == 0
    printed = capsys.readouterr()
    assert "gpt-debug reference" in printed.out
    assert printed.err == "measuring debug reference\n"  # which takes minutes on a CPU


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--sizes", "debug", "nope"], r"unknown preset 'nope'"),
        (["--sizes", "debug", "--modes", "reference", "fp8"], r"--modes fp8 .*; use another mode$"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    argv: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "measure_steps", lambda *_: pytest.fail("measured"))
    with pytest.raises(UserError, match=message):
        bench.main(["step", "--device", "cpu", *argv])


def test_a_step_without_memory_is_refused_with_flags_of_the_benchmark() -> None:
    """Not with those of a training, which it does not take."""
    argv = ["step", "--sizes", "debug", "--device", "cpu", "--tokens", "1000000000000"]
    with pytest.raises(UserError, match=r"free on this machine; use smaller --sizes or --tokens$"):
        bench.main(argv)


@pytest.mark.parametrize("name", ["step", "decode"])
def test_a_benchmark_of_no_model_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="--archs needs gpt, ngpt or both"):
        bench.main([name, "--archs", "--device", "cpu"])


def test_kernels_reports_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["kernels", "--device", "cpu", "--tokens", "64", "--d-model", "64", "--repeats", "2"]
    assert bench.main([*argv, "--json"]) == 0
    printed = capsys.readouterr()
    rows = json.loads(printed.out)["kernels"]
    assert printed.err.splitlines() == [f"measuring {row['operation']}" for row in rows]
    assert {"residual update", "SwiGLU", "loss"} <= {row["operation"] for row in rows}
    assert all(row["reference"]["median"] > 0 and row["kernel"] is None for row in rows)


def test_an_unknown_benchmark_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'step'"):
        bench.main(["stop"])


def test_median_and_quartiles() -> None:
    assert Timing.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Timing(3.0, 2.0, 4.0)
    calls: list[int] = []
    measure(lambda: calls.append(1), torch.device("cpu"), repeats=3, warmup=2)
    assert len(calls) == 5


def test_parts_of_a_step_by_kernel_name() -> None:
    assert part_of("residual_backward_kernel") == "residual update"
    assert part_of("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN") == "products"
    assert part_of("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma") == "attention"
    assert part_of("void cudnn::fusion::convert_dq_to_16bits<true>(void const*)") == "attention"
    assert part_of("kernel_cutlass_kernel_flash_attncuteflash_bwd_sm90") == "attention"
    assert part_of("adamw_kernel") == "optimizer"
    assert part_of("triton_poi_fused__to_copy_1") == "copies"
    assert part_of("something new") == "other"


def test_a_copy_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB each way, here in a millisecond."""
    monkeypatch.setattr(timing, "measure", lambda *_: Timing(1.0, 1.0, 1.0))
    assert copy_speed(torch.device("cpu")) == pytest.approx(2 * 2**26 / 1e-3)
