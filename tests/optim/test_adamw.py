"""Optimizers: rows stay on the sphere, and the baseline's updates are AdamW's."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from spherelm import AdamW, ModelConfig, Transformer, attach_retraction, retract_
from spherelm.errors import UserError
from spherelm.model.sphere import UnitMatrix, largest_norm_deviation, matrices, unit_matrices
from spherelm.optim.adamw import parameter_groups
from tests.model.tiny import random_tokens, tiny_config

Parameters = Iterable[nn.Parameter]

OPTIMIZERS: dict[str, Callable[[Parameters], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.5),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.05),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.05),
}

# The rounding of a length and of dividing by it.
FLOAT32_ROUNDING = 4 * torch.finfo(torch.float32).eps


def train(model: Transformer, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        tokens = random_tokens(model.config)
        optimizer.zero_grad()
        model.loss(tokens, tokens.roll(-1, 1)).backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_keep_unit_length_under_any_optimizer(name: str) -> None:
    model = Transformer(tiny_config())
    before = copy.deepcopy(model)
    optimizer = OPTIMIZERS[name](model.parameters())
    attach_retraction(optimizer, model)
    for _ in range(4):
        train(model, optimizer, steps=1)
        assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    for (path, m), (_, old) in zip(matrices(model), matrices(before), strict=True):
        assert (m - old).abs().max() > 1e-3, path


@given(steps=st.integers(1, 12), seed=st.integers(0, 99), tied=st.booleans())
@settings(max_examples=10)
def test_rows_keep_unit_length_under_ours(steps: int, seed: int, tied: bool) -> None:
    torch.manual_seed(seed)
    model = Transformer(tiny_config(tie_embeddings=tied))
    train(model, AdamW(model, lr=0.05), steps)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_without_retraction_rows_leave_the_sphere() -> None:
    """What the two tests above would see if nothing put the rows back."""
    model = Transformer(tiny_config())
    train(model, torch.optim.Adam(model.parameters(), lr=0.05), steps=1)
    assert largest_norm_deviation(model) > 0.01


def test_our_step_is_adam_and_then_a_retraction() -> None:
    """Point 7: no weight decay, nothing else."""
    model = Transformer(tiny_config())
    twin = copy.deepcopy(model)
    ours = AdamW(model, lr=0.01, betas=(0.8, 0.9), eps=1e-9)
    theirs = torch.optim.Adam(twin.parameters(), lr=0.01, betas=(0.8, 0.9), eps=1e-9)
    for _ in range(3):
        tokens = random_tokens(model.config)
        for each, optimizer in ((model, ours), (twin, theirs)):
            optimizer.zero_grad()
            each.loss(tokens, tokens.roll(-1, 1)).backward()
            optimizer.step()
        retract_(twin)
        for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
            assert torch.equal(p, q), name


def test_gpt_updates_are_adamw_s_to_the_bit() -> None:
    model = Transformer(tiny_config(arch="gpt"))
    twin = copy.deepcopy(model)
    ours = AdamW(model, lr=0.01, weight_decay=0.1)
    groups = [
        {"params": [p for p in twin.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in twin.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=1e-8)
    for _ in range(5):
        tokens = random_tokens(model.config)
        for each, optimizer in ((model, ours), (twin, theirs)):
            optimizer.zero_grad()
            each.loss(tokens, tokens.roll(-1, 1)).backward()
            optimizer.step()
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q), name


def by_group(model: Transformer, weight_decay: float) -> list[tuple[set[str], dict[str, Any]]]:
    """The names of the parameters of each group, and its settings."""
    names = {id(p): name for name, p in model.named_parameters()}
    return [
        ({names[id(p)] for p in group["params"]}, {k: v for k, v in group.items() if k != "params"})
        for group in parameter_groups(model, weight_decay)
    ]


def test_a_gpt_decays_its_matrices_and_no_gains() -> None:
    model = Transformer(tiny_config(arch="gpt"))
    (decayed, settings_), (free, free_settings) = by_group(model, 0.1)
    assert decayed == {name for name, _ in matrices(model)}
    assert free == {name for name, _ in model.named_parameters() if name.endswith("gain")}
    assert settings_["weight_decay"] == 0.1
    assert free_settings["weight_decay"] == 0.0


def test_an_ngpt_decays_nothing() -> None:
    model = Transformer(tiny_config())
    groups = by_group(model, 0.0)
    assert set.union(*(names for names, _ in groups)) == {n for n, _ in model.named_parameters()}
    assert all(settings_["weight_decay"] == 0.0 for _, settings_ in groups)
    with pytest.raises(UserError, match=r"weight_decay must be 0 for nGPT.* not 0\.1"):
        AdamW(model, lr=0.01, weight_decay=0.1)


def test_copies_of_the_weights_are_refused() -> None:
    """The bug the paper warns of: the optimizer's own weights would never be normalized."""
    model = Transformer(tiny_config())
    masters = [p.detach().double().requires_grad_() for p in model.parameters()]
    with pytest.raises(UserError, match="does not hold E_input itself") as refusal:
        attach_retraction(torch.optim.Adam(masters), model)
    assert "\n" not in str(refusal.value)


def test_a_wrapper_without_hooks_is_refused_and_the_optimizer_inside_is_not() -> None:
    """Such as accelerate's, on which torch's own registration of a hook fails."""

    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        @property
        def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
            return self.optimizer.param_groups

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.optimizer.zero_grad(set_to_none)

    model = Transformer(tiny_config())
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), lr=0.5))
    with pytest.raises(UserError, match="attach the retraction to the optimizer inside"):
        attach_retraction(wrapper, model)
    attach_retraction(wrapper.optimizer, model)
    train(model, wrapper, steps=2)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_an_optimizer_that_misses_a_matrix_is_refused() -> None:
    model = Transformer(tiny_config())
    some = [p for name, p in model.named_parameters() if name != "blocks.1.mlp.W_nu"]
    with pytest.raises(UserError, match=r"blocks\.1\.mlp\.W_nu"):
        attach_retraction(torch.optim.Adam(some), model)


def test_matrices_that_take_the_place_of_those_that_are_held_are_noticed() -> None:
    """As a wrapper does that comes after the optimizer was made, or a layer that is added later."""
    model = Transformer(tiny_config())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    attach_retraction(optimizer, model)
    train(model, optimizer, steps=1)
    model.blocks[1].mlp.W_nu = nn.Parameter(model.blocks[1].mlp.W_nu.detach().clone())
    with pytest.raises(UserError, match=r"does not hold blocks\.1\.mlp\.W_nu itself"):
        train(model, optimizer, steps=1)
    optimizer.add_param_group({"params": [model.blocks[1].mlp.W_nu]})
    train(model, optimizer, steps=1)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_several_optimizers_share_a_model() -> None:
    """Each puts back what it has moved, and nothing else."""
    model = Transformer(tiny_config())
    blocks = torch.optim.SGD(model.blocks.parameters(), lr=0.5)
    ids = {id(p) for p in model.blocks.parameters()}
    rest = torch.optim.Adam((p for p in model.parameters() if id(p) not in ids), lr=0.05)
    with pytest.raises(UserError, match="does not hold E_input itself"):
        attach_retraction([blocks], model)
    attach_retraction([blocks, rest], model)
    tokens = random_tokens(model.config, 2, 5)
    for _ in range(3):
        model.loss(tokens, tokens).backward()
        before = model.E_input.clone()
        blocks.step()
        assert torch.equal(model.E_input, before)
        assert largest_norm_deviation(model) < FLOAT32_ROUNDING
        rest.step()
        assert not torch.equal(model.E_input, before)
        assert largest_norm_deviation(model) < FLOAT32_ROUNDING


@pytest.mark.parametrize("second_holds", ["what was frozen", "all"])
def test_attaching_again_takes_the_place_of_what_was_attached(second_holds: str) -> None:
    """The first optimizer refused to step, since it did not hold what was unfrozen."""
    model = Transformer(tiny_config())
    model.E_input.requires_grad_(False)
    first = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
    attach_retraction(first, model)
    train(model, first, steps=1)
    model.E_input.requires_grad_(True)
    if second_holds == "all":
        second = torch.optim.SGD(model.parameters(), lr=0.5)
        attach_retraction(second, model)
    else:
        second = torch.optim.SGD([model.E_input], lr=0.5)
        with pytest.raises(UserError, match="attach all optimizers of the model together"):
            attach_retraction(second, model)
        attach_retraction([first, second], model)
    for optimizer in (first, second, first):
        train(model, optimizer, steps=1)
        assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_attaching_twice_retracts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through a wrapper; and of two models that share an optimizer neither is forgotten."""
    model, other = Transformer(tiny_config()), Transformer(tiny_config())
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.5)
    for each in (model, other, nn.Sequential(model), model):
        attach_retraction(optimizer, each)
    retracted: list[str] = []
    retract_one = UnitMatrix.retract_

    def counting(matrix: UnitMatrix) -> None:
        retracted.append(matrix.name)
        retract_one(matrix)

    monkeypatch.setattr(UnitMatrix, "retract_", counting)
    for p in (*model.parameters(), *other.parameters()):
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert len(retracted) == 2 * len(unit_matrices(model))
    assert max(map(largest_norm_deviation, (model, other))) < FLOAT32_ROUNDING


def test_an_optimizer_may_go_over_to_another_model() -> None:
    """It refused to step, for the sake of the model that it had before, and kept that in memory."""
    model = Transformer(tiny_config())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    attach_retraction(optimizer, model)
    train(model, optimizer, steps=1)
    other, before = copy.deepcopy(model), weakref.ref(model)
    optimizer.param_groups[0]["params"] = list(other.parameters())
    attach_retraction(optimizer, other)
    train(other, optimizer, steps=1)
    assert largest_norm_deviation(other) < FLOAT32_ROUNDING
    del model
    gc.collect()
    assert before() is None


def test_frozen_matrices_need_no_optimizer() -> None:
    model = Transformer(tiny_config())
    model.E_input.requires_grad_(False)
    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    attach_retraction(optimizer, model)
    before = model.E_input.clone()
    train(model, optimizer, steps=2)
    assert torch.allclose(model.E_input, before, atol=FLOAT32_ROUNDING)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    before = model.E_input.clone()
    train(model, AdamW(model, lr=0.05), steps=2)
    assert torch.equal(model.E_input, before)


@pytest.mark.parametrize("ours", [True, False])
def test_what_is_frozen_after_the_optimizer_was_made_keeps_every_bit(ours: bool) -> None:
    """It was normalized at each step, and so it moved by its rounding without learning."""
    model = Transformer(tiny_config())
    if ours:
        optimizer: torch.optim.Optimizer = AdamW(model, lr=0.05)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        attach_retraction(optimizer, model)
    model.blocks[0].requires_grad_(False)
    before = copy.deepcopy(model.blocks[0].state_dict())
    train(model, optimizer, steps=3)
    for name, value in model.blocks[0].state_dict().items():
        assert torch.equal(value, before[name]), name
    model.blocks[0].requires_grad_(True)
    train(model, optimizer, steps=1)
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    for name, p in model.blocks[0].named_parameters():
        assert not torch.equal(p, before[name]), name


def test_groups_that_are_added_later() -> None:
    """What was frozen stays on the sphere when it moves; a part of the user's own is left free."""
    model, head = Transformer(tiny_config()), nn.Linear(3, 2)
    model.E_input.requires_grad_(False)
    optimizer = AdamW(model, lr=0.05)
    model.E_input.requires_grad_(True)
    with pytest.raises(UserError, match="a group of their own"):
        optimizer.add_param_group({"params": [model.E_input, head.weight]})
    with pytest.raises(UserError, match="without weight decay"):
        optimizer.add_param_group({"params": [model.E_input], "weight_decay": 0.1})
    optimizer.add_param_group({"params": [model.E_input]})
    optimizer.add_param_group({"params": head.parameters()})
    before, length = model.E_input.detach().clone(), torch.linalg.vector_norm(head.weight, dim=-1)
    head(torch.ones(3)).sum().backward()
    model.loss(tokens := random_tokens(model.config), tokens).backward()
    optimizer.step()
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING
    assert (model.E_input - before).abs().max() > 1e-3
    # Adam's first step is the rate times the sign of the gradient; nothing decays or is divided.
    stepped = torch.linalg.vector_norm(head.weight + 0.05, dim=-1)
    torch.testing.assert_close(stepped, length)


def test_kernels_that_do_not_exist_are_refused() -> None:
    """They were taken for auto."""
    with pytest.raises(UserError, match="kernels must be one of auto, triton, reference, not"):
        AdamW(Transformer(tiny_config()), lr=0.05, kernels="cuda")  # type: ignore[arg-type]


def test_a_model_may_grow() -> None:
    """Matrices of a block that came after the optimizer left the sphere without a word."""
    model = nn.ModuleList([Transformer(tiny_config())])
    optimizer = AdamW(model, lr=0.05)
    model.append(Transformer(tiny_config()))
    grown = [p for p in model[1].parameters() if p.ndim == 2]
    with pytest.raises(UserError, match="a group of their own"):
        optimizer.add_param_group({"params": model[1].parameters()})
    optimizer.add_param_group({"params": grown})
    tokens = random_tokens(tiny_config())
    model[1].loss(tokens, tokens.roll(-1, 1)).backward()
    optimizer.step()
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_a_group_that_is_refused_is_not_kept() -> None:
    """Also where it is the model that is at fault: to catch the error was to train the group."""
    model = Transformer(tiny_config())
    optimizer = AdamW(model, lr=0.05)
    model.blocks[1].mlp.W_nu = nn.Parameter(torch.zeros(3))
    groups = len(optimizer.param_groups)
    with pytest.raises(UserError, match=r"blocks\.1\.mlp\.W_nu is no longer a matrix"):
        optimizer.add_param_group({"params": [model.blocks[1].mlp.W_nu]})
    assert len(optimizer.param_groups) == groups


def test_attaching_to_a_gpt_changes_nothing() -> None:
    model = Transformer(tiny_config(arch="gpt"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    attach_retraction(optimizer, model)
    before = copy.deepcopy(model)
    train(model, optimizer, steps=1)
    for p, q in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_optimizer_holds_the_very_tensors_it_normalizes() -> None:
    model = Transformer(tiny_config())
    optimizer = AdamW(model, lr=0.05)
    train(model, optimizer, steps=1)
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in owned} == {id(p) for p in model.parameters()}
    assert len(owned) == len(list(model.parameters()))


def test_a_saved_optimizer_goes_on_to_the_bit() -> None:
    torch.manual_seed(3)
    model = Transformer(tiny_config())
    optimizer = AdamW(model, lr=0.05)
    train(model, optimizer, steps=2)
    twin = copy.deepcopy(model)
    restored = AdamW(twin, lr=0.9)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, its in ((model, optimizer), (twin, restored)):
        torch.manual_seed(4)
        train(each, its, steps=2)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_state_of_torch_s_adamw_goes_on_with_a_retraction() -> None:
    """It has no `on_sphere`, and its own decay: the next step raised, or decayed unit vectors."""
    model = Transformer(tiny_config())
    ours = AdamW(model, lr=0.05)
    groups = [{"params": group["params"]} for group in ours.param_groups]
    plain = torch.optim.AdamW(groups, lr=0.05, betas=(0.9, 0.95), weight_decay=0.0)
    train(model, plain, steps=2)
    assert largest_norm_deviation(model) > 1e-3
    saved = copy.deepcopy(plain.state_dict())
    decaying = copy.deepcopy(saved)
    decaying["param_groups"][0]["weight_decay"] = 0.01
    with pytest.raises(UserError, match=r"weight decay of 0\.01 to matrices of unit vectors"):
        ours.load_state_dict(decaying)
    for option in ("amsgrad", "maximize"):  # left out where the step is our own, without a word
        other = copy.deepcopy(saved)
        other["param_groups"][1][option] = True
        with pytest.raises(UserError, match=f"uses {option}, which spherelm.AdamW does not have"):
            ours.load_state_dict(other)
    assert not ours.state
    ours.load_state_dict(saved)
    assert [group["on_sphere"] for group in ours.param_groups] == [True, False]
    train(model, ours, steps=1)
    assert ours.state[model.E_input]["step"] == 3
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_a_copy_goes_on_to_the_bit() -> None:
    """Copied or pickled with its model, and what was frozen is still known to be on the sphere."""
    model = Transformer(tiny_config())
    model.E_input.requires_grad_(False)
    optimizer = AdamW(model, lr=0.05)
    train(model, optimizer, steps=2)
    pairs = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    for each, its_own in [*pairs, (model, optimizer)]:
        each.E_input.requires_grad_(True)
        its_own.add_param_group({"params": [each.E_input]})
        torch.manual_seed(0)
        train(each, its_own, steps=2)
        assert largest_norm_deviation(each) < FLOAT32_ROUNDING
    for each, _ in pairs:
        for p, q in zip(model.parameters(), each.parameters(), strict=True):
            assert torch.equal(p, q)


def test_a_closure_gives_its_loss() -> None:
    model = Transformer(tiny_config())
    optimizer = AdamW(model, lr=0.05)
    tokens = random_tokens(model.config)
    losses: list[float] = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = model.loss(tokens, tokens)
        loss.backward()
        losses.append(float(loss.detach()))
        return losses[-1]

    assert optimizer.step(closure) == losses[0]
    assert largest_norm_deviation(model) < FLOAT32_ROUNDING


def test_hooks_of_a_user_run_once_a_step() -> None:
    """torch wraps the step of each optimizer class that was used; ours builds on one of them."""
    model = Transformer(ModelConfig(vocab_size=8, d_model=8, n_heads=2, n_layers=1, context=4))
    torch.optim.AdamW(model.parameters())  # from here on torch's own step has hooks, too
    optimizer = AdamW(model, lr=1e-3)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    model.loss(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)).backward()
    optimizer.step()
    assert calls == ["after"]
