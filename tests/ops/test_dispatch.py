"""Which execution is taken."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from spherelm import ops
from spherelm.errors import UserError
from spherelm.ops.dispatch import runs_triton


def test_a_cpu_takes_the_reference_unless_told() -> None:
    x = torch.randn(2, 8)
    assert not runs_triton(x)
    with ops.use("triton"):
        assert runs_triton(x)
        assert not runs_triton(x.double())  # the kernels compute in float32
        with ops.use("reference"):
            assert not runs_triton(x)
        assert runs_triton(x)
    assert not runs_triton(x)


@pytest.mark.gpu
def test_a_gpu_takes_the_kernels_unless_told() -> None:
    x = torch.randn(2, 8, device="cuda")
    assert runs_triton(x)
    with ops.use("reference"):
        assert not runs_triton(x)


def test_an_unknown_execution_is_named() -> None:
    with pytest.raises(UserError, match="kernels must be one of auto, triton, reference"):
        ops.use("fast").__enter__()  # type: ignore[arg-type]
    with pytest.raises(UserError, match="attention must be one of"):
        ops.force_attention("slow").__enter__()  # type: ignore[arg-type]


def test_the_package_loads_neither_triton_nor_the_compiler() -> None:
    """Each takes a second or more, and on a CPU no one asked for them."""
    code = (
        "import sys, spherelm, spherelm.train.loop, spherelm.generate.engine\n"
        "spherelm.Transformer, spherelm.AdamW\n"
        "print([m for m in ('triton', 'torch._dynamo', 'torch._inductor') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_package_does_not_need_triton() -> None:
    """Where triton is not installed, importing and training on a CPU work."""
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, spherelm\n"
        "run = spherelm.presets.get('ngpt-debug')\n"
        "model = spherelm.Transformer(run.model)\n"
        "x = torch.zeros(1, 4, dtype=torch.long)\n"
        "model.loss(x, x).backward(); spherelm.AdamW(model, lr=1e-3).step()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
