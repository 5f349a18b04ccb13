"""Models whose blocks multiply in eight bits: exact where they claim to be, and bounded."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spherelm import AdamW, ModelConfig, Transformer
from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.model.scaling import begin_step, keep_rounded
from spherelm.ops.choose import Choice
from spherelm.ops.eight_bits import E4M3, LARGEST
from spherelm.ops.fp8 import casts
from spherelm.ops.fp8.held import (
    GRADIENT,
    INPUT,
    Held,
    advance,
    count_share,
    held_by,
    power_of_two,
    scaling_state,
)
from spherelm.ops.names import Kernels
from spherelm.training.parallel.shard import compile_blocks
from tests.ops.eight_bits import exact_rounding
from tests.ops.precision import error

__all__ = ["exact_rounding"]

pytestmark = pytest.mark.usefixtures("exact_rounding")
ARCHS = pytest.mark.parametrize("arch", ["gpt", "ngpt"])


def model_in_8_bits(
    arch: Arch, kernels: Kernels = "reference", device: str = "cpu", **fields: object
) -> Transformer:
    config: dict[str, object] = {
        "vocab_size": 61, "d_model": 32, "n_layers": 2, "n_heads": 2, "context": 23, "d_mlp": 48,
    }  # fmt: skip
    torch.manual_seed(0)
    model = Transformer(
        ModelConfig(arch=arch, **(config | fields)),  # type: ignore[arg-type]
        Choice(kernels=kernels, fp8=True),
    )
    return model.to(device)


def batch(model: Transformer) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    config = model.config
    tokens = torch.randint(config.vocab_size, (2, config.context), generator=generator)
    tokens = tokens.to(model.E_input.device)
    return tokens, tokens.roll(-1, 1)


def gradients(model: Transformer, bf16: bool = False) -> dict[str, Tensor]:
    """Of the second pass, whose scales are those that the first one leaves."""
    device = model.E_input.device.type
    for _ in range(2):
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = model.loss(*batch(model))
        loss.backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), **found}


VARIANTS: dict[str, tuple[Arch, dict[str, object]]] = {
    "gpt": ("gpt", {}),
    "gpt, qk-norm": ("gpt", {"gpt_qk_norm": True}),
    "ngpt": ("ngpt", {}),
    "ngpt, grouped": ("ngpt", {"n_kv_heads": 1}),
    "ngpt, no qk-norm": ("ngpt", {"qk_norm": False}),
    "ngpt, slerp": ("ngpt", {"update": "slerp"}),
    "ngpt, norms in forward": ("ngpt", {"normalize_in_forward": True}),
}


IN_THE_INTERPRETER = ("gpt", "ngpt, grouped", "ngpt, slerp")
"""The rest takes a GPU: each is some seconds of a CPU."""


@pytest.mark.parametrize(
    ("variant", "device"),
    [(variant, "cpu") for variant in IN_THE_INTERPRETER]
    + [pytest.param(variant, "cuda", marks=pytest.mark.gpu) for variant in VARIANTS],
)
def test_fused_is_plain(variant: str, device: str) -> None:
    """The kernels round what plain PyTorch rounds, where it does, to the same numbers.

    In float32 nothing else is rounded, so that all but a tie here and there are equal; a tie that
    falls otherwise is a sixteenth of one number among thousands.
    """
    arch, fields = VARIANTS[variant]
    size = {"n_layers": 1} if device == "cpu" else {}
    plain = gradients(model_in_8_bits(arch, "reference", device, **fields, **size))
    fused = gradients(model_in_8_bits(arch, "triton", device, **fields, **size))
    for name, gradient in plain.items():
        assert error(fused[name], gradient.double()) < 5e-3, name


@pytest.mark.parametrize(
    ("arch", "device"),
    [
        pytest.param("ngpt", "cpu", marks=pytest.mark.slow),
        *(pytest.param(arch, "cuda", marks=pytest.mark.gpu) for arch in ("gpt", "ngpt")),
    ],
)
def test_compiled_is_eager(arch: Arch, device: str) -> None:
    """One graph for all layers, and the same numbers to the bit."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    eager, compiled = (model_in_8_bits(arch, "triton", device) for _ in range(2))
    compile_blocks(compiled)
    ours = gradients(compiled, bf16=True)
    theirs = gradients(eager, bf16=True)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    for name, gradient in theirs.items():
        assert error(ours[name], gradient.double()) < 1e-2, name


@pytest.mark.parametrize("update", ["slerp", "lerp"])
def test_plain_products_compile(update: str) -> None:
    """What the kernels are not made for is plain PyTorch, on a GPU too, and compiled there."""
    eager, compiled = (model_in_8_bits("ngpt", update=update) for _ in range(2))
    torch.compiler.reset()
    for block in compiled.blocks:
        block.forward = torch.compile(block.forward, backend="aot_eager")
    ours, theirs = gradients(compiled), gradients(eager)
    for name, gradient in theirs.items():
        assert error(ours[name], gradient.double()) < 1e-5, name


PIECES: dict[str, tuple[Arch, Kernels]] = {
    "product": ("ngpt", "reference"),
    "qkv": ("ngpt", "triton"),
    "swiglu": ("ngpt", "triton"),
    "update": ("ngpt", "triton"),
    "product of what is rounded": ("gpt", "triton"),
}


@pytest.mark.parametrize("piece", PIECES)
def test_a_second_derivative_is_refused(piece: str) -> None:
    """Operators for eight bits are unknown to autograd, which would leave them out."""
    model = model_in_8_bits(*PIECES[piece], n_layers=1)
    block, ops = model.layers[0], model.ops
    begin_step(model.layers, 5)
    W_qkv, W_o, s_qk, kv_heads = block.attention.weights(torch.float32)
    W_u_nu, W_o_mlp = block.mlp.weights(torch.float32)
    h = torch.randn(5, 32, requires_grad=True)
    out = {
        "product": lambda: ops.linear(h, W_o),
        "qkv": lambda: ops.qkv(h[None], W_qkv, model.rope(5), s_qk, kv_heads, True)[2],
        "swiglu": lambda: ops.swiglu(h, W_u_nu).carrier,  # type: ignore[attr-defined]
        "update": lambda: ops.update(h, ops.linear(h, W_o), torch.ones(32)).stream,  # type: ignore[attr-defined]
        "product of what is rounded": lambda: ops.linear(ops.swiglu(h, W_u_nu), W_o_mlp),
    }[piece]()
    with pytest.raises(UserError, match="second derivatives"):
        torch.autograd.grad(out.square().sum(), h, create_graph=True)


@ARCHS
def test_eight_bits_are_near_the_truth(arch: Arch) -> None:
    """A number of e4m3 is off by up to 1/16, one of e5m2 by 1/8; sums over many by less. What is
    wrong by more is an operand in the wrong place, or a scale not taken back."""
    model = model_in_8_bits(arch)
    exact = Transformer(model.config, Choice(kernels="reference"))
    exact.load_state_dict(model.state_dict())
    truth = gradients(exact)
    ours = gradients(model)
    assert abs(float(ours["loss"] - truth["loss"])) < 3e-3
    assert all(0 < error(ours[n], truth[n].double()) < 0.25 for n in truth if "W_" in n)


SUMS = {False: 2**-12, True: 2**-9}
"""How far sums of the hardware may be off, with fast accumulation and without. Tensor cores of
Hopper keep some 14 bits of a sum of eight-bit products in any case; what is not fast adds up such
sums in float32 every so often (DeepSeek-V3, arXiv 2412.19437, 3.3.2)."""


@pytest.mark.gpu
@pytest.mark.parametrize("fast", SUMS)
def test_a_product_of_the_hardware_is_the_one_simulated(fast: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 512, generator=generator).mul(8).to(E4M3) for n in (46, 80))
    inverse = torch.ones(2, 4)
    simulated = casts.multiply(a, b, inverse, 0, 1, torch.float32, fast)
    on_gpu = casts.multiply(a.cuda(), b.cuda(), inverse.cuda(), 0, 1, torch.float32, fast)
    assert error(on_gpu.cpu(), simulated.double()) < SUMS[fast]


@pytest.mark.gpu
@ARCHS
def test_every_product_of_a_pass_is_the_one_simulated(
    arch: Arch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the operands that the pass has on the GPU: an operand in the wrong place would show."""
    multiply, off = casts.multiply, []

    def both(
        a: Tensor, b: Tensor, inverse: Tensor, i: int, j: int, dtype: torch.dtype, fast: bool
    ) -> Tensor:
        product: Tensor = multiply(a, b, inverse, i, j, dtype, fast)
        # In float32 both ways: the rounding of the result is not in question.
        exact = multiply(a.cpu(), b.cpu(), inverse.cpu(), i, j, torch.float32, fast)
        wide = multiply(a, b, inverse, i, j, torch.float32, fast)
        off.append(error(wide.cpu(), exact.double()) / SUMS[fast])
        return product

    monkeypatch.setattr(casts, "multiply", both)
    gradients(model_in_8_bits(arch, "reference", "cuda"))
    assert len(off) == 2 * 2 * 2 * 6  # passes, blocks, parts, products there and back
    assert max(off) < 1


@pytest.mark.gpu
@ARCHS
def test_gradients_of_the_hardware_are_near_those_simulated(arch: Arch) -> None:
    """Sums that differ in the 13th bit let a number near a tie round the other way, and so does
    every number after it. All of that must be small beside what rounding to eight bits does."""
    on_gpu = gradients(model_in_8_bits(arch, "reference", "cuda"))
    simulated = gradients(model_in_8_bits(arch, "reference", "cpu"))
    exact = Transformer(model_in_8_bits(arch).config, Choice(kernels="reference"))
    exact.load_state_dict(model_in_8_bits(arch).state_dict())
    truth = gradients(exact)
    for name in (name for name in truth if "W_" in name):
        of_rounding = error(simulated[name], truth[name].double())
        assert error(on_gpu[name].cpu(), simulated[name].double()) < of_rounding / 2, name


def test_nothing_in_the_forward_pass_of_ngpt_can_be_too_large(
    watched: dict[int, list[Tensor]],
) -> None:
    """All of h in one coordinate, rows of matrices along it, and large factors: the worst there is
    still fits, since the scales come from what unit vectors and factors can give at most."""
    model = model_in_8_bits("ngpt", n_layers=1)
    along = torch.zeros(32)
    along[3] = 1
    for name, p in model.named_parameters():
        if p.ndim == 2:
            p.data.copy_(along.expand_as(p))
        elif ".s_u." in name or ".s_nu." in name:
            p.data.mul_(torch.linspace(1, 11, p.numel()))
    model.loss(*batch(model))
    assert set(watched) == {0, 1, 3, 4}  # inputs and matrices of the products
    for operands in watched.values():
        largest = max(float(x.float().abs().max()) for x in operands)
        assert 56 <= largest < LARGEST[E4M3]  # at most a factor of 8 of the format is left unused


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Tensor]]:
    """Every operand of a forward product, by its slot."""
    seen: dict[int, list[Tensor]] = {}
    theirs = casts.multiply

    def multiply(a: Tensor, b: Tensor, inverse: Tensor, slot_a: int, slot_b: int, *rest: object):  # type: ignore[no-untyped-def]
        seen.setdefault(slot_a, []).append(a)
        seen.setdefault(slot_b, []).append(b)
        return theirs(a, b, inverse, slot_a, slot_b, *rest)

    monkeypatch.setattr(casts, "multiply", multiply)
    return seen


def test_scales_follow_what_was_seen() -> None:
    held = [Held(sphere=True, forks=False), Held(sphere=False, forks=False)]
    advance(held, tokens=1000)
    assert held[0].scale[:6].tolist() == [256, 256, 32 * 1024] * 2  # of 1000 tokens, as a guess
    held[0].amax[GRADIENT] = 3e-5
    before = held[1].scale.clone()
    advance(held, tokens=1000)
    scale = float(held[0].scale[GRADIENT])
    assert scale.hex().startswith("0x1.0000000000000p")  # a power of two
    assert 57344 / 32 < scale * 3e-5 <= 57344 / 16  # a sixteenth of the format is used
    assert float(held[0].inverse[GRADIENT, 0]) == 1 / scale
    assert not bool(held[0].amax.any())
    kept = held[0].scale.clone()
    advance(held, tokens=7)  # nothing was seen since
    assert torch.equal(held[0].scale, kept)
    assert torch.equal(held[1].scale, before)


@pytest.mark.parametrize("x", [1.0, 1.99, 2.0, 0.3, 1e30, 7e-30, float("inf")])
def test_power_of_two(x: float) -> None:
    power = float(power_of_two(torch.tensor(x)))
    if 2.0**-100 <= x <= 2.0**100:
        assert power <= x < 2 * power
    assert torch.isfinite(torch.tensor(1 / power))


@ARCHS
def test_a_step_in_parts_rounds_its_matrices_once(
    arch: Arch, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = []
    fill = Held.fill
    monkeypatch.setattr(Held, "fill", lambda self, *a: (filled.append(self), fill(self, *a)))
    model = model_in_8_bits(arch)
    tokens, targets = batch(model)
    for part in range(2):
        keep_rounded(model.layers, part > 0)
        scales = {name: t.clone() for name, t in scaling_state(model).items()}
        model.loss(tokens[part : part + 1], targets[part : part + 1]).backward()  # type: ignore[no-untyped-call]
        if part:
            assert all(
                torch.equal(t, scales[name])
                for name, t in scaling_state(model).items()
                if name.endswith("scale")
            )
    assert len(filled) == 4  # two parts of two blocks
    keep_rounded(model.layers, False)
    model.loss(tokens, targets)
    assert len(filled) == 8


@ARCHS
@pytest.mark.parametrize("kernels", ["reference", "triton"])
def test_scales_in_one_place_are_the_same_scales(arch: Arch, kernels: Kernels) -> None:
    """What a captured pass reads; an evaluation in between moves scales on and elsewhere."""
    plain, still = (model_in_8_bits(arch, kernels, n_layers=1, context=8) for _ in range(2))
    optimizers = [AdamW(model, lr=1e-2, kernels="reference") for model in (plain, still)]
    places = None
    for step in range(3):
        found = []
        for model, optimizer in zip((plain, still), optimizers, strict=True):
            optimizer.zero_grad()
            if model is still:
                before = places
                places = begin_step(model.layers, batch(model)[0].numel(), places)
                assert before is None or all(a is b for a, b in zip(before, places, strict=True))
                keep_rounded(model.layers, True)
            loss = model.loss(*batch(model))
            loss.backward()  # type: ignore[no-untyped-call]
            keep_rounded(model.layers, False)
            optimizer.step()
            with torch.no_grad():
                evaluated = model.loss(*batch(model)) if step == 1 else loss.detach()
            found.append([loss.detach(), evaluated, *scaling_state(model).values()])
        assert all(map(torch.equal, *found))


@ARCHS
def test_a_second_pass_does_not_spoil_the_gradients_of_the_first(arch: Arch) -> None:
    """Scales move on with every pass; a backward takes those of its own."""
    model = model_in_8_bits(arch)
    wanted = gradients(model)
    twin = model_in_8_bits(arch)
    twin.loss(*batch(twin)).backward()  # type: ignore[no-untyped-call]
    twin.zero_grad()
    loss = twin.loss(*batch(twin))
    for held in held_by(twin).values():
        for operand in (GRADIENT,) if held.sphere else (INPUT, GRADIENT):
            held.amax.data[operand::3] += 100  # as if something large had been seen
    with torch.no_grad():
        twin.loss(*batch(twin))
    loss.backward()  # type: ignore[no-untyped-call]
    for name, p in twin.named_parameters():
        assert p.grad is not None
        assert torch.equal(p.grad, wanted[name]), name


@pytest.mark.parametrize("kernels", ["reference", "triton"])
def test_an_evaluation_does_not_move_the_scales(kernels: Kernels) -> None:
    """Of a GPT, whose inputs have scales by what was seen, with inputs that no training had."""
    model = model_in_8_bits("gpt", kernels)
    model.loss(*batch(model)).backward()
    twin = copy.deepcopy(model)
    gains = [p for p in model.parameters() if p.ndim == 1]
    with torch.no_grad():
        torch._foreach_mul_(gains, 64.0)
        model.loss(*batch(model))
        torch._foreach_div_(gains, 64.0)
    for each in (model, twin):
        each.loss(*batch(each)).backward()
    expected = scaling_state(twin)
    for name, numbers in scaling_state(model).items():
        assert torch.equal(numbers, expected[name]), name


@ARCHS
def test_computing_blocks_again_changes_nothing(arch: Arch) -> None:
    plain, again = (model_in_8_bits(arch) for _ in range(2))
    for block in again.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    ours, theirs = gradients(again), gradients(plain)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    a, b = scaling_state(again), scaling_state(plain)
    assert all(torch.equal(a[name], b[name]) for name in b)


@ARCHS
def test_a_model_learns_in_eight_bits(arch: Arch) -> None:
    model = model_in_8_bits(arch)
    optimizer = AdamW(model, lr=1e-2)
    losses = []
    for _ in range(15):
        loss = model.loss(*batch(model))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.5


def test_scales_are_no_part_of_the_model() -> None:
    """A model in eight bits is saved, loaded and moved like any other, and a copy is its own."""
    model = model_in_8_bits("ngpt")
    plain = Transformer(model.config)
    assert model.state_dict().keys() == plain.state_dict().keys()
    gradients(model)
    twin = copy.deepcopy(model)
    first, second = held_by(model), held_by(twin)
    assert first.keys() == second.keys()
    assert len(first) == 4
    assert all(first[n].scale.data_ptr() != second[n].scale.data_ptr() for n in first)
    model.double()
    assert all(h.scale.dtype == torch.float32 and h.matrix_0.dtype == E4M3 for h in first.values())


def test_zeros_and_largest_are_counted() -> None:
    x = torch.tensor([0.0, -0.0, 448.0, -448.0, 416.0, 1.0]).to(E4M3)
    assert count_share(x).tolist() == [2, 2]
