"""Each recipe against a plain float64 reference of its own, and in a run that is gone on with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from spherelm import Transformer, load
from spherelm.config import OptimConfig
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.model.sphere import largest_norm_deviation, matrices
from spherelm.ops.device import prepare_torch
from spherelm.optim.build import build_optimizer
from spherelm.optim.moments import collect_moments, give_moments
from spherelm.optim.recipes.angle_cap import cap_rows_
from spherelm.optim.recipes.gated_adamw import GatedAdamW
from spherelm.optim.recipes.logit_gradient import precondition_
from spherelm.optim.recipes.nugpt_rates import relative_rates
from spherelm.training.build import build_model
from spherelm.training.loop import train
from tests.model.tiny import perturbed, random_tokens, tiny_config
from tests.training.conftest import corpus, dataset, tiny  # noqa: F401 - fixtures
from tests.training.same_run import assert_same_run, stopped


def set_gradients(model: Transformer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = 1e-3 * torch.randn(p.shape, generator=generator, dtype=p.dtype)


# --- GatedAdamW ----------------------------------------------------------------------------------


def gated_by_hand(p: float, gradients: list[float], lr: float, a: float, gate: float) -> float:
    """The source's formulas, one number at a time."""
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        d = math.sqrt(v / (1 - 0.95**t)) + 1e-8
        gamma = 1 / (1 + math.exp(-a * math.log(d / gate)))
        p = p * (1 - lr * 0.1) - lr * gamma * m / (1 - 0.9**t) / d
    return p


@pytest.mark.parametrize("a", [0.5, 1.0, 2.0])
def test_gated_steps_by_hand(a: float) -> None:
    model = Transformer(tiny_config(arch="gpt")).double()
    start = model.E_input.detach().clone()
    optimizer = GatedAdamW(model, 1e-2, weight_decay=0.1, gate_exponent=a, gate_eps=1e-3)
    gradients = []
    for seed in range(3):
        set_gradients(model, seed)
        gradients.append(model.E_input.grad.clone())
        optimizer.step()
    for i, j in ((0, 0), (3, 5), (12, 15)):
        numbers = [float(g[i, j]) for g in gradients]
        expected = gated_by_hand(float(start[i, j]), numbers, 1e-2, a, 1e-3)
        assert float(model.E_input.detach()[i, j]) == pytest.approx(expected, rel=1e-12)


def test_a_gate_of_exponent_one_is_adam_with_its_epsilon() -> None:
    models = [Transformer(tiny_config(arch="gpt")).double() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    gated = GatedAdamW(models[0], 1e-2, eps=1e-300, gate_exponent=1.0, gate_eps=1e-3)
    adam = torch.optim.AdamW(
        models[1].parameters(), 1e-2, betas=(0.9, 0.95), eps=1e-3, weight_decay=0.0
    )
    for seed in range(4):
        for model in models:
            set_gradients(model, seed)
        gated.step()
        adam.step()
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_gated_steps_end_on_the_sphere() -> None:
    model = perturbed(tiny_config())
    optimizer = GatedAdamW(model, 0.1)
    set_gradients(model, 0)
    optimizer.scale_gradients(torch.tensor(0.5))
    assert float(model.E_input.grad.abs().max()) < 3e-3
    optimizer.step()
    assert largest_norm_deviation(model) < 1e-12


def test_no_groups_are_added_to_a_gated_optimizer() -> None:
    """A step would have ended in a KeyError; nothing is half-added."""
    model = Transformer(tiny_config())
    model.E_input.requires_grad_(False)
    optimizer = GatedAdamW(model, 0.1)
    before = len(optimizer.param_groups)
    with pytest.raises(UserError, match="takes the parameters of its model when it is built"):
        optimizer.add_param_group({"params": [model.E_input.requires_grad_(True)]})
    assert len(optimizer.param_groups) == before


# --- logit gradient preconditioning --------------------------------------------------------------


class Preconditioned(torch.autograd.Function):
    """z = s ⊙ u with the source's derivative: dL/du = (s / mean s) ⊙ dL/dz, that of s as it is."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(u, s)
        return u * s

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        u, s = ctx.saved_tensors
        return grad * (s / s.mean()), (grad * u).flatten(0, -2).sum(0)


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_are_those_of_the_source(tied: bool) -> None:
    model = perturbed(tiny_config(tie_embeddings=tied))
    assert model.s_z is not None
    tokens, targets = random_tokens(model.config), random_tokens(model.config)
    h = model.hidden(tokens)
    E_output = model.E_input if model.E_output is None else model.E_output
    z = Preconditioned.apply(F.linear(h, E_output), model.s_z())
    F.cross_entropy(z.flatten(0, 1), targets.flatten()).backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.loss(tokens, targets).backward()
    precondition_(model)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-9, atol=1e-12, msg=name)


# --- angular step cap ----------------------------------------------------------------------------


def angles(a: Tensor, b: Tensor) -> Tensor:
    unit = a / a.norm(dim=-1, keepdim=True)
    return 2 * torch.asin((unit - b).norm(dim=-1) / 2)


def test_rows_beyond_the_angle_are_put_at_it_on_their_way() -> None:
    torch.manual_seed(0)
    before = F.normalize(torch.randn(6, 9, dtype=torch.float64), dim=-1)
    tangent = torch.randn(6, 9, dtype=torch.float64)
    tangent = F.normalize(tangent - (tangent * before).sum(-1, keepdim=True) * before, dim=-1)
    turned = torch.tensor([1e-6, 0.01, 0.0999, 0.1001, 0.5, 1.5], dtype=torch.float64)[:, None]
    after = 1.7 * (before * turned.cos() + tangent * turned.sin())  # not yet retracted
    rows = after.clone()
    cap_rows_(rows, before, 0.1)
    assert torch.equal(rows[:3], after[:3])
    expected = before * math.cos(0.1) + tangent * math.sin(0.1)
    torch.testing.assert_close(rows[3:], expected[3:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most", [math.pi, 4.0, 2 * math.pi, 10.0])
def test_an_angle_that_no_step_reaches_caps_nothing(most: float) -> None:
    """Such as ten, meant as degrees."""
    torch.manual_seed(0)
    before = F.normalize(torch.randn(6, 9), dim=-1)
    after = torch.cat((torch.randn(5, 9), -before[5:]))
    rows = after.clone()
    cap_rows_(rows, before, most)
    assert torch.equal(rows, after)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("lr_groups", ["one", "nugpt"])
@pytest.mark.parametrize("algorithm", ["adamw", "muon", "gated_adamw"])
def test_no_vector_of_a_block_turns_further_than_the_cap(
    algorithm: str, lr_groups: str, resumed: bool
) -> None:
    """Of a base half as wide, nuGPT's rate of blocks is 0.6 of lr: a step at it has the cap."""
    model = perturbed(tiny_config()).float()
    optim = OptimConfig(
        lr=0.3,
        algorithm=algorithm,  # type: ignore[arg-type]
        angle_cap=0.05,
        lr_groups=lr_groups,  # type: ignore[arg-type]
        base_d_model=8,
    )
    optimizer = build_optimizer(model, optim, steps=10)
    if resumed:
        give_moments(model, optimizer, collect_moments(model, optimizer), 0)
    for share in (1.0, 0.5):
        for group in optimizer.param_groups:
            group["lr"] = 0.3 * share * group.get("relative_lr", 1.0)
        before = {name: m.detach().clone() for name, m in matrices(model)}
        set_gradients(model, 0)
        optimizer.step()
        for name, m in matrices(model):
            largest = float(angles(m.detach(), before[name]).max())
            if name.startswith("blocks"):
                assert largest == pytest.approx(0.05 * share, rel=1e-3), name
            else:
                assert largest > 0.06 * share, name
    assert largest_norm_deviation(model) < 1e-6


# --- nuGPT's rates -------------------------------------------------------------------------------


def test_rates_by_width_and_steps() -> None:
    assert relative_rates(1, 1) == {"E_input": 1, "blocks": 1, "E_output": 0.5, "factors": 1}
    wide = relative_rates(16, 1)
    assert wide == pytest.approx(
        {"E_input": 1 / 4, "blocks": 1 / 8, "E_output": 1 / 16} | {"factors": 1}
    )
    assert relative_rates(1, 8)["blocks"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_every_parameter_gets_the_rate_of_its_kind(algorithm: str) -> None:
    model = Transformer(tiny_config())  # of width 16
    optim = OptimConfig(
        lr=0.1,
        algorithm=algorithm,  # type: ignore[arg-type]
        muon_lr=0.2 if algorithm == "muon" else None,
        lr_groups="nugpt",
        base_d_model=1,
        base_steps=10,
    )
    optimizer = build_optimizer(model, optim, steps=80)
    found = {id(p): g["relative_lr"] for g in optimizer.param_groups for p in g["params"]}
    assert len(found) == sum(1 for _ in model.parameters())
    muon = 2.0 if algorithm == "muon" else 1.0
    for name, p in model.named_parameters():
        expected = (
            1.0 if p.ndim == 1 else {"E_input": 1 / 4, "E_output": 1 / 16}.get(name, muon / 8)
        )
        assert found[id(p)] == pytest.approx(expected / 2), name


# --- rates of kinds ------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["adamw", "muon", "gated_adamw"])
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_kinds_have_rates_of_their_own(arch: str, algorithm: str) -> None:
    """And what is not named keeps its own: lr, or Muon's."""
    own = {"optim.input_lr": 0.1, "optim.output_lr": 0.4, "optim.factor_lr": 0.05}
    if algorithm == "muon":
        own["optim.muon_lr"] = 0.6
    run = override(tiny(arch), {"optim.algorithm": algorithm, "optim.lr": 0.2, **own})
    model = Transformer(run.model)
    optimizer = build_optimizer(model, run.optim, steps=run.train.steps)
    blocks = 3.0 if algorithm == "muon" else 1.0
    found = {id(p): g for g in optimizer.param_groups for p in g["params"]}
    assert len(found) == sum(1 for _ in model.parameters())
    for name, p in model.named_parameters():
        expected = 0.25 if p.ndim == 1 else {"E_input": 0.5, "E_output": 2.0}.get(name, blocks)
        assert found[id(p)].get("relative_lr", 1.0) == pytest.approx(expected), name
        assert found[id(p)]["lr"] == pytest.approx(0.2 * expected), name
        decays = run.optim.weight_decay if p.ndim == 2 and arch == "gpt" else 0.0
        assert found[id(p)]["weight_decay"] == decays, name


def test_tied_embeddings_have_the_rate_of_the_input() -> None:
    tied = override(tiny("ngpt"), {"model.tie_embeddings": True, "optim.input_lr": 1e-4})
    optimizer = build_optimizer(model := Transformer(tied.model), tied.optim, steps=10)
    (group,) = (g for g in optimizer.param_groups if g["relative_lr"] != 1)
    assert [id(p) for p in group["params"]] == [id(model.E_input)]
    with pytest.raises(UserError, match=r"optim\.output_lr has nothing to set .* optim\.input_lr"):
        override(tied, {"optim.output_lr": 1e-4})


def test_a_kinds_rate_is_what_moves_it(tmp_path: Path, dataset: TokenDataset) -> None:  # noqa: F811
    """A run in which E_input all but rests differs from one without, and its E_input rests."""
    run = override(tiny("ngpt"), {"optim.input_lr": 1e-12})
    train(run, dataset, tmp_path / "rests")
    model = load(tmp_path / "rests").model
    prepare_torch(run.train.seed, deterministic=False)
    begun = build_model(run, torch.device("cpu"))
    assert torch.allclose(model.E_input, begun.E_input, atol=1e-6)
    assert not torch.allclose(model.E_output, begun.E_output, atol=1e-3)


# --- runs ----------------------------------------------------------------------------------------

RECIPES: dict[str, dict[str, Any]] = {
    "gated": {"optim.algorithm": "gated_adamw"},
    "all": {
        "optim.logit_preconditioning": True,
        "optim.angle_cap": 0.05,
        "optim.lr_groups": "nugpt",
        "optim.base_d_model": 8,
    },
    "rates": {"optim.input_lr": 1e-3, "optim.output_lr": 4e-3, "optim.factor_lr": 3e-2},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_resumed_equals_uninterrupted(
    recipe: str,
    tmp_path: Path,
    dataset: TokenDataset,  # noqa: F811
) -> None:
    run = override(tiny("ngpt"), {**RECIPES[recipe], "train.keep_last": 5})
    result = train(run, dataset, tmp_path / "whole")
    resumed = stopped(tmp_path / "whole", [12])
    assert train(run, dataset, resumed, resume="auto").finished
    assert_same_run(tmp_path / "whole", resumed)
    plain = train(tiny("ngpt"), dataset, tmp_path / "plain")
    assert result.val_loss != plain.val_loss


def test_what_is_ngpts_alone_is_refused_for_a_gpt() -> None:
    for field, value in (("logit_preconditioning", True), ("angle_cap", 0.1)):
        with pytest.raises(UserError, match=rf"optim\.{field} belongs to model\.arch = 'ngpt'"):
            override(tiny("gpt"), {f"optim.{field}": value})
