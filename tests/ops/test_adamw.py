"""The fused optimizer step against torch.optim.AdamW and retraction, tensor by tensor."""

from __future__ import annotations

import copy

import pytest
import torch

from spherelm import AdamW, ModelConfig, Transformer
from spherelm.model.config import Arch
from spherelm.model.sphere import largest_norm_deviation
from tests.ops.precision import DEVICES


def tiny(arch: Arch, device: str, d_model: int = 24) -> Transformer:
    config = ModelConfig(
        arch=arch,
        vocab_size=11,
        d_model=d_model,
        n_layers=1,
        n_heads=2,
        n_kv_heads=1,
        context=6,
        d_mlp=9,
    )
    return Transformer(config).to(device)


def train(model: Transformer, optimizer: AdamW, steps: int = 3) -> None:
    generator = torch.Generator().manual_seed(1)
    device = next(model.parameters()).device
    for step in range(steps):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator).to(device)
        if step % 2:
            optimizer.scale_gradients(torch.tensor(0.1, device=device))
        optimizer.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d_model", [24, 68])
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_fused_step_is_a_step(arch: Arch, d_model: int, device: str) -> None:
    decay = 0.1 if arch == "gpt" else 0.0
    model = tiny(arch, device, d_model)
    twin = copy.deepcopy(model)
    train(model, AdamW(model, lr=1e-2, weight_decay=decay, kernels="triton"))
    train(twin, AdamW(twin, lr=1e-2, weight_decay=decay, kernels="reference"))
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        # Three steps of a dozen float32 roundings each, on numbers of about 1.
        assert torch.allclose(p, q, rtol=1e-5, atol=2e-6), name
    if arch == "ngpt":
        assert largest_norm_deviation(model) < 1e-6


@pytest.mark.parametrize("device", DEVICES)
def test_state_is_that_of_torch(device: str) -> None:
    """A run may go from the plain to the fused step, or back, through a checkpoint."""
    model = tiny("ngpt", device)
    first = AdamW(model, lr=1e-2, kernels="reference")
    train(model, first, steps=2)
    twin = copy.deepcopy(model)
    second = AdamW(twin, lr=1e-2, kernels="triton")
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(model, first, steps=2)
    train(twin, second, steps=2)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=1e-5, atol=2e-6)
    assert second.state_dict()["state"][0]["step"] == 4
    assert second.state_dict()["state"].keys() == first.state_dict()["state"].keys()


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_without_gradient_stay(device: str) -> None:
    model = tiny("ngpt", device)
    before = copy.deepcopy(model.state_dict())
    optimizer = AdamW(model, lr=1e-2, kernels="triton")
    model.E_input.grad = torch.randn_like(model.E_input)
    optimizer.step()
    assert not torch.equal(model.E_input, before["E_input"])
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters() if n != "E_input")


@pytest.mark.parametrize("device", DEVICES)
def test_low_precision_weights(device: str) -> None:
    """Weights and moments stored in bfloat16 are updated in float32 and rounded once."""
    model = tiny("ngpt", device, d_model=64).to(torch.bfloat16)
    exact = copy.deepcopy(model).double()
    p, q = model.E_output, exact.E_output
    assert p is not None
    assert q is not None
    grad = torch.randn_like(p)
    p.grad, q.grad = grad, grad.double()
    AdamW(model, lr=1e-2, kernels="triton").step()
    AdamW(exact, lr=1e-2).step()
    assert p.dtype == torch.bfloat16
    # One rounding is at most 2^-8, and 2^-7 in the interpreter, which truncates.
    assert torch.allclose(p.double(), q, rtol=2**-7, atol=0)
