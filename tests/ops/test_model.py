"""Whole models through the kernels: gradients, compiled and eager, depth, and a training run."""

from __future__ import annotations

import copy
import io
import statistics

import pytest
import torch
from torch import Tensor

from spherelm import AdamW, ModelConfig, ScaleConfig, Transformer
from spherelm.data.loader import restarting_positions
from spherelm.model.config import Arch
from spherelm.model.part import AUTO, Part
from spherelm.ops import reference
from spherelm.ops.choose import Choice, choose
from spherelm.ops.names import Kernels
from spherelm.training.parallel.shard import compile_blocks
from tests.ops.precision import DEVICES, error


def model_on(device: str, arch: Arch, ops: Choice = AUTO, **fields: object) -> Transformer:
    config: dict[str, object] = {
        "vocab_size": 61, "d_model": 48, "n_layers": 2, "n_heads": 4, "context": 7, "d_mlp": 72,
    }  # fmt: skip
    return Transformer(ModelConfig(arch=arch, **(config | fields)), ops).to(device)  # type: ignore[arg-type]


def computes_with(model: Transformer, kernels: Kernels) -> None:
    """Let every part of a model choose again."""
    for part in model.modules():
        if isinstance(part, Part):
            part._asked_for = Choice(kernels=kernels)
            part.choose_ops()


def gradients(
    model: Transformer, kernels: Kernels, precision: torch.dtype, packed: bool = False
) -> dict[str, Tensor]:
    computes_with(model, kernels)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(3)
    config = model.config
    tokens = torch.randint(config.vocab_size, (2, config.context), generator=generator).to(device)
    targets = tokens.roll(-1, 1).clone()
    targets[0, :2] = -100
    bf16 = precision == torch.bfloat16
    given = {}
    if packed:
        given["documents"] = (torch.arange(config.context) > 2).long().expand_as(tokens).to(device)
        given["position_ids"] = restarting_positions(given["documents"])
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        loss = model.loss(tokens, targets, **given)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(["loss", *names], [loss.detach(), *grads], strict=True))


def assert_gradients(
    model: Transformer, compiled: bool, precision: torch.dtype, packed: bool = False
) -> None:
    """Kernels are as exact as the reference, parameter by parameter, seen from float64."""
    truth = gradients(copy.deepcopy(model).double(), "reference", torch.float64, packed)
    plain = gradients(model, "reference", precision, packed)
    twin = copy.deepcopy(model)
    if compiled:
        compile_blocks(twin)
    ours = gradients(twin, "triton", precision, packed)
    # In bfloat16 errors of single parameters scatter; in float32 they are roundings. The
    # interpreter truncates to bfloat16 where a GPU rounds.
    margin, floor = (1.5, 2e-3) if precision == torch.bfloat16 else (2.0, 3e-6)
    if not exact_rounding(model):
        margin, floor = 2 * margin, 2 * floor
    for name, exact in truth.items():
        bound = margin * error(plain[name], exact) + floor
        assert error(ours[name], exact) <= bound, name


def exact_rounding(model: Transformer) -> bool:
    return next(model.parameters()).is_cuda


VARIANTS = {
    "gpt": ("gpt", {}),
    "gpt, grouped": ("gpt", {"n_kv_heads": 2}),
    "gpt, tied": ("gpt", {"tie_embeddings": True}),
    "ngpt": ("ngpt", {}),
    "ngpt, grouped": ("ngpt", {"n_kv_heads": 1}),
    "ngpt, no qk-norm": ("ngpt", {"qk_norm": False}),
    "ngpt, slerp": ("ngpt", {"update": "slerp"}),
    "ngpt, scalars": ("ngpt", {"s_qk": ScaleConfig(mode="scalar"), "normalize_in_forward": True}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_the_whole_model(variant: str, precision: torch.dtype, device: str) -> None:
    arch, fields = VARIANTS[variant]
    assert_gradients(model_on(device, arch, **fields), False, precision)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_gradients_of_documents_with_positions_of_their_own(arch: Arch, device: str) -> None:
    assert_gradients(model_on(device, arch), False, torch.float32, packed=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_gradients_when_compiled(arch: Arch, device: str) -> None:
    torch.compiler.reset()
    assert_gradients(model_on(device, arch), True, torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_gradients_at_a_real_width(arch: Arch, compiled: bool) -> None:
    torch.compiler.reset()
    size = {"d_model": 512, "n_heads": 8, "context": 300, "vocab_size": 5000, "d_mlp": 2048}
    assert_gradients(model_on("cuda", arch, **size), compiled, torch.bfloat16)


def test_a_block_is_compiled_once_for_all_layers() -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    model = model_on("cpu", "ngpt", n_layers=4)
    compile_blocks(model)
    gradients(model, "reference", torch.float32)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(
    ("kernels", "device"),
    [
        ("reference", "cpu"),
        pytest.param("reference", "cuda", marks=pytest.mark.gpu),
        pytest.param("triton", "cuda", marks=pytest.mark.gpu),  # the interpreter truncates
    ],
)
def test_many_updates_stay_on_the_sphere(kernels: Kernels, device: str) -> None:
    """96 updates in bfloat16 under torch.compile: a norm that slipped to bfloat16 would drift."""
    torch.compiler.reset()
    D = 256
    h = reference.normalize(torch.randn(2, D, device=device))
    ys = torch.randn(96, 2, D, device=device)
    alpha = torch.full((D,), 0.05, device=device)
    ops = choose(Choice(kernels=kernels), "lerp", D, h.device, torch.bfloat16)
    update = torch.compile(lambda h, y: ops.update(h, y, alpha), fullgraph=True)
    low, exact = h.bfloat16(), h.double()
    for y in ys:
        low = update(low, y.bfloat16())
        exact = reference.residual_lerp(exact, y.bfloat16().double(), alpha.double())
    assert float((low.float().norm(dim=-1) - 1).abs().max()) < 1e-3
    # Roundings of 2^-9 that the update forgets at 1 − α a step: about 2^-9 / sqrt(2 · 0.05).
    assert error(low, exact) < 2e-2


@pytest.mark.gpu
def test_training_follows_the_reference_path() -> None:
    """200 steps in bfloat16: the kernels' loss is within the spread of two seeds."""

    def losses(seed: int, kernels: Kernels) -> list[float]:
        torch.manual_seed(seed)
        model = model_on(
            "cuda",
            "ngpt",
            Choice(kernels=kernels),
            d_model=128,
            n_heads=4,
            context=64,
            d_mlp=512,
            vocab_size=256,
        )
        optimizer = AdamW(model, lr=8e-3, kernels=kernels)
        # Text of a kind: each token is a fixed function of the two before it, or noise.
        generator = torch.Generator().manual_seed(0)
        seen = []
        for _ in range(200):
            start = torch.randint(256, (32, 2), generator=generator)
            row = [start[:, 0], start[:, 1]]
            for _ in range(63):
                noise = torch.randint(256, (32,), generator=generator)
                keep = torch.rand(32, generator=generator) < 0.9
                row.append(torch.where(keep, (row[-1] * 7 + row[-2] * 3) % 256, noise))
            tokens = torch.stack(row, 1).cuda()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model.loss(tokens[:, :-1], tokens[:, 1:])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            seen.append(float(loss.detach()))
        return seen

    plain, other_seed, ours = losses(0, "reference"), losses(1, "reference"), losses(0, "triton")
    late = slice(100, 200)
    assert statistics.mean(plain[late]) < plain[0] - 0.5  # it learns
    spread = statistics.mean(abs(a - b) for a, b in zip(plain[late], other_seed[late], strict=True))
    ours_off = statistics.mean(abs(a - b) for a, b in zip(plain[late], ours[late], strict=True))
    assert ours_off <= spread


@pytest.mark.parametrize("fp8", [False, True])
def test_a_model_with_kernels_can_be_saved_whole(fp8: bool) -> None:
    """A pickle holds no kernel: where it is opened, operations are chosen anew."""
    model = model_on("cpu", "ngpt", Choice(kernels="triton", fp8=fp8))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    twin = torch.load(buffer, weights_only=False)
    assert twin.ops is model.ops
    assert twin.layers[1].mlp.ops is model.ops
    tokens = torch.tensor([[1, 60, 7]])
    assert torch.equal(twin(tokens), model(tokens))


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_copy_computes_with_its_own_weights_also_where_the_model_is_compiled(arch: Arch) -> None:
    """It called what was compiled of the model that it came from, which torch.save did not take."""
    model = model_on("cpu", arch)
    model.compile(backend="eager")
    tokens = torch.tensor([[1, 60, 7]])
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for twin in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
        assert torch.equal(twin(tokens), model.forward(tokens))
        twin.reset_parameters()
        assert torch.equal(twin(tokens), twin.forward(tokens))
