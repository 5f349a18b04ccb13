"""Which implementation is taken, and that nothing but the model decides it."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading

import pytest
import torch

from spherelm import AdamW, ModelConfig, Transformer
from spherelm.errors import UserError
from spherelm.model.part import Part
from spherelm.ops import reference
from spherelm.ops.choose import LONGEST_ROW, Choice, choose, choose_adamw, takes_kernels
from spherelm.ops.interface import Operations

CPU = torch.device("cpu")
CONFIG = ModelConfig(vocab_size=19, d_model=16, n_layers=1, n_heads=2, context=8, d_mlp=24)


def test_a_cpu_takes_the_reference_unless_told() -> None:
    assert not takes_kernels("auto", 64, CPU, torch.float32)
    assert takes_kernels("triton", 64, CPU, torch.float32)
    assert not takes_kernels("triton", 64, CPU, torch.float64)  # they compute in float32
    assert not takes_kernels("triton", LONGEST_ROW + 1, CPU, torch.float32)
    assert not takes_kernels("reference", 64, torch.device("cuda"), torch.float32)
    assert choose(Choice(), "slerp", 64, CPU, torch.float32).update is reference.residual_slerp


def test_a_rule_without_a_kernel_is_the_references() -> None:
    ours = choose(Choice(kernels="triton"), "riemannian", 64, CPU, torch.float32)
    assert ours.kernels
    assert ours.update is reference.residual_riemannian


@pytest.mark.gpu
def test_a_model_takes_the_kernels_along_to_a_gpu() -> None:
    model = Transformer(CONFIG)
    assert not any(part.ops.kernels for part in parts(model))
    assert all(part.ops.kernels for part in parts(model.to("cuda")))
    assert not any(part.ops.kernels for part in parts(model.double()))
    told = Transformer(CONFIG, Choice(kernels="reference")).to("cuda")
    assert not any(part.ops.kernels for part in parts(told))
    assert choose_adamw("reference", list(told.parameters())) is None
    assert choose_adamw("auto", list(told.parameters())) is not None
    assert choose_adamw("auto", list(model.parameters())) is None  # float64


def parts(model: Transformer) -> list[Part]:
    return [module for module in model.modules() if isinstance(module, Part)]


def test_a_model_chooses_anew_when_it_moves() -> None:
    model = Transformer(CONFIG, Choice(kernels="triton"))
    assert all(part.ops.kernels for part in parts(model))
    assert not any(part.ops.kernels for part in parts(model.double()))
    assert all(part.ops.kernels for part in parts(copy.deepcopy(model.float())))
    with torch.device("meta"):
        empty = Transformer(CONFIG, Choice(kernels="triton"))
    empty.load_state_dict(model.double().state_dict(), assign=True)
    assert not any(part.ops.kernels for part in parts(empty))


def test_operations_of_ones_own() -> None:
    """What a user brings is what runs, and a move does not take it away."""
    seen = []
    plain = choose(Choice(), "lerp", 16, CPU, torch.float32)

    def update(h: torch.Tensor, y: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        seen.append(h.shape)
        return plain.update(h, y, alpha)

    own = Operations(**{**vars(plain), "update": update})
    model = Transformer(CONFIG, own).double().float()
    model(torch.zeros(2, 3, dtype=torch.long))
    assert seen == [(6, 16), (6, 16)]


def test_an_unknown_choice_is_named() -> None:
    with pytest.raises(UserError, match="kernels must be one of auto, triton, reference"):
        Choice(kernels="fast")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="attention must be one of"):
        Choice(attention="slow")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="ops must be a Choice or Operations"):
        Transformer(CONFIG, "triton")  # type: ignore[arg-type]


def test_two_models_with_other_operations_train_in_two_threads() -> None:
    """Neither sees the other: each gives, to the bit, what it gives alone."""

    def train(kernels: str) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        model = copy.deepcopy(models[kernels])
        optimizer = AdamW(model, lr=1e-2, kernels=kernels)  # type: ignore[arg-type]
        losses = []
        for _ in range(3):
            tokens = torch.randint(19, (2, 8), generator=generator)
            loss = model.loss(tokens, tokens.roll(-1, 1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses

    torch.manual_seed(0)
    start = Transformer(CONFIG).state_dict()
    models = {}
    for kernels in ("reference", "triton"):
        models[kernels] = Transformer(CONFIG, Choice(kernels=kernels))  # type: ignore[arg-type]
        models[kernels].load_state_dict(start)
    alone = {kernels: train(kernels) for kernels in models}
    together: dict[str, list[torch.Tensor]] = {}
    threads = [
        threading.Thread(target=lambda k=kernels: together.update({k: train(k)}))
        for kernels in models
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for kernels in models:
        assert torch.equal(torch.stack(together[kernels]), torch.stack(alone[kernels]))
    # They do compute differently: the kernels' sums are in another order.
    assert not torch.equal(torch.stack(alone["reference"]), torch.stack(alone["triton"]))
    torch.testing.assert_close(torch.stack(alone["reference"]), torch.stack(alone["triton"]))


def test_the_package_loads_neither_triton_nor_the_compiler() -> None:
    """Each takes a second or more, and on a CPU no one asked for them."""
    code = (
        "import sys, spherelm, spherelm.training.loop, spherelm.generation.engine\n"
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
