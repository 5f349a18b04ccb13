"""AdamW whose step ends on the sphere.

The optimizer owns the weights that are normalized: retraction is part of its step, on the very
tensors it updates, so that no training loop can forget it and no copy can drift. For a GPT it is
`torch.optim.AdamW` to the bit.

Matrices stored in bfloat16 have no float32 copy: gradients and moments are bfloat16 as they are,
and a step reads them, computes in float32, retracts, and rounds once.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from spherelm.errors import UserError
from spherelm.model.sphere import UnitMatrix, check_rows_whole, local_rows, unit_matrices
from spherelm.ops.choose import choose_adamw
from spherelm.ops.names import Kernels
from spherelm.ops.reference import normalize
from spherelm.validate import require_fraction, require_non_negative


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The paper's groups: matrices and factors.

    GPT decays its matrices; nGPT decays nothing, and its matrices are retracted after each step.
    """
    found = unit_matrices(model)
    if found and weight_decay:
        raise UserError(
            f"weight_decay must be 0 for nGPT, whose weights have unit norm, not {weight_decay}"
        )
    if any(matrix.dim % 2 == 0 for matrix in found):
        raise UserError(
            "spherelm.AdamW is for spherelm.Transformer; for the exported model use an optimizer "
            "of torch with attach_retraction"
        )
    check_rows_whole((matrix.name, matrix.parameter) for matrix in found)
    spherical = {id(matrix.parameter) for matrix in found}
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = (
        (True, 0.0, [p for p in trained if id(p) in spherical]),
        (False, weight_decay, [p for p in trained if p.ndim == 2 and id(p) not in spherical]),
        (False, 0.0, [p for p in trained if p.ndim != 2]),
    )
    return [
        {"params": params, "weight_decay": decay, "on_sphere": on_sphere}
        for on_sphere, decay, params in groups
        if params
    ]


@torch.no_grad()
def multiply_gradients(optimizer: torch.optim.Optimizer, factor: Tensor) -> None:
    """Multiply the gradients of all that an optimizer holds by `factor`, one number."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    if found := [local_rows(g) for g in gradients if g is not None]:
        torch._foreach_mul_(found, factor)


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` for a spherelm model, its matrices put back on the sphere in `step`.

    On CUDA the whole step is a launch or two of our kernel, with clipping folded in; weights stored
    in less than float32 take our reference elsewhere (`spherelm.ops.choose`).
    """

    _model: weakref.ref[nn.Module] | None = None
    """Not kept alive, and left out of a copy or a pickle."""

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        kernels: Kernels = "auto",
    ) -> None:
        require_non_negative("lr", lr)
        require_non_negative("eps", eps)
        require_non_negative("weight_decay", weight_decay)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise UserError(f"betas must be two numbers, not {betas!r}")
        for beta in betas:
            require_fraction("betas", beta)
        self._spherical = [matrix.parameter for matrix in unit_matrices(model)]
        self._model = weakref.ref(model)
        groups = parameter_groups(model, weight_decay)
        super().__init__(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self._kernels = kernels
        self._factor: Tensor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For a copy or a pickle; torch's has none of what is ours."""
        own = ("_spherical", "_kernels", "_factor")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's: for parameters that were frozen, or not in the model yet, or are not its own.

        Matrices of the model that live on the sphere need a group without others.
        """
        model = None if self._model is None else self._model()
        if model is not None:  # it may have grown
            self._spherical = [matrix.parameter for matrix in unit_matrices(model)]
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        spherical = set(map(id, self._spherical))
        on_sphere = {id(p) in spherical for p in group["params"]}
        group["on_sphere"] = on_sphere == {True}
        if len(on_sphere) > 1 or (group["on_sphere"] and group["weight_decay"]):
            del self.param_groups[-1]
            raise UserError(
                "matrices of unit vectors need a group of their own, without weight decay"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's. The state may be that of another AdamW: which groups live on the sphere is
        known from the model alone."""
        on_sphere = [group["on_sphere"] for group in self.param_groups]
        for option in ("amsgrad", "maximize"):
            if any(saved.get(option) for saved in state_dict["param_groups"]):
                raise UserError(
                    f"the saved optimizer has {option}, which spherelm.AdamW has not; go on with "
                    f"an optimizer of torch and attach_retraction"
                )
        for lives, saved in zip(on_sphere, state_dict["param_groups"], strict=False):
            if lives and saved.get("weight_decay"):
                raise UserError(
                    f"the saved optimizer decays matrices of unit vectors, by "
                    f"{saved['weight_decay']}; set 'weight_decay' to 0 in its groups"
                )
        super().load_state_dict(state_dict)
        for group, lives in zip(self.param_groups, on_sphere, strict=True):
            group["on_sphere"] = lives

    @torch.no_grad()
    def scale_gradients(self, factor: Tensor) -> None:
        """Multiply all gradients of the next step by `factor`, one number on the device: clipping.

        Where the step is our own, it does so as it reads them, and they stay as they are.
        """
        if self._own_update() is not None:
            self._factor = factor.float()
            return
        multiply_gradients(self, factor)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step; returns the loss that `closure` computes, where one is given."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        update = self._own_update()
        if update is not None:
            self._step_by(update)
            return loss
        plain: Any = torch.optim.AdamW.step
        if getattr(plain, "hooked", False):  # as ours is: a user's hooks would run twice
            plain = plain.__wrapped__
        plain(self)
        for group in self.param_groups:
            if group["on_sphere"]:
                for matrix in group["params"]:
                    rows = local_rows(matrix)
                    rows.copy_(normalize(rows))
        return loss

    def _own_update(self) -> Callable[..., None] | None:
        """What computes the step in torch's place, if anything does."""
        held = [local_rows(p) for group in self.param_groups for p in group["params"]]
        return choose_adamw(self._kernels, held)

    def _step_by(self, update: Callable[..., None]) -> None:
        for group in self.param_groups:
            # The state is torch.optim.AdamW's own, so that checkpoints do not know who wrote it.
            lists: list[list[Tensor]] = [[] for _ in range(5)]
            params, grads, exp_avgs, exp_avg_sqs, steps = lists
            self._init_group(  # type: ignore[no-untyped-call]
                group, params, grads, exp_avgs, exp_avg_sqs, [], steps
            )
            if not params:
                continue
            torch._foreach_add_(steps, 1)
            by_step: dict[int, list[list[Tensor]]] = defaultdict(list)
            for *tensors, count in zip(*lists, strict=True):
                by_step[int(count)].append([local_rows(x) for x in tensors])
            for step, entries in by_step.items():
                update(
                    entries,
                    on_sphere=group["on_sphere"],
                    lr=float(group["lr"]),
                    betas=group["betas"],
                    eps=group["eps"],
                    weight_decay=group["weight_decay"],
                    step=step,
                    factor=self._factor,
                )
        self._factor = None


def attach_retraction(
    optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer], model: nn.Module
) -> None:
    """Make any `torch.optim` optimizer of an nGPT end its steps on the sphere.

    The model may be wrapped (DDP, FSDP2, torch.compile, ...) or be the exported one of Hugging Face
    transformers; one that holds nothing of spherelm's is refused, and a GPT of ours left as it is.
    Several optimizers may share the model, such as Muon for the blocks and Adam for the rest: each
    then puts back what it has moved. They must update the model's own matrices: copies of them that
    an optimizer keeps elsewhere would stay unnormalized, a common bug the paper warns of, and are
    refused, also where a wrapper has put others in their place since. Torch copies and pickles
    optimizers without hooks, so attach it to a copy again. Attaching once more, such as with a
    second optimizer for what was unfrozen, replaces what was attached before.
    """
    if isinstance(optimizers, torch.optim.Optimizer):
        optimizers = [optimizers]
    if not isinstance(optimizers, Iterable):
        raise UserError(
            "give an optimizer or a list of them, then the model; "
            f"not {type(optimizers).__name__} first"
        )
    optimizers = list(optimizers)
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UserError(f"give optimizers of torch.optim, not {optimizer!r}")
        if not hasattr(optimizer, "_optimizer_step_post_hooks"):
            raise UserError(
                f"{type(optimizer).__name__} wraps an optimizer and calls no hooks of its own; "
                f"attach the retraction to the optimizer inside, before or after it is wrapped"
            )
    _held_matrices(optimizers, model)
    for optimizer in optimizers:
        hooks = optimizer._optimizer_step_post_hooks.values()
        retraction = next((hook for hook in hooks if isinstance(hook, _Retraction)), None)
        if retraction is None:
            retraction = _Retraction()
            optimizer.register_step_post_hook(retraction)
            _RETRACTING.add(optimizer)
        retraction.forget_others_than(_held_by(optimizer))
        retraction.together[model] = optimizers


_RETRACTING: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
"""All optimizers with a retraction. What one does not hold, one that came later may hold."""


class _Retraction:
    """Runs after each step of an optimizer: puts back what it has moved, of all its models."""

    def __init__(self) -> None:
        self.together: dict[nn.Module, list[torch.optim.Optimizer]] = {}
        """The optimizers that were attached to a model together."""

    def forget_others_than(self, held: set[int]) -> None:
        """Let go of models of which the optimizer holds nothing, having gone over to another."""
        for model in list(self.together):
            if held.isdisjoint(map(id, model.parameters())):
                del self.together[model]

    def __call__(self, optimizer: torch.optim.Optimizer, *_arguments: Any) -> None:
        own = _held_by(optimizer)
        found = {
            id(matrix.parameter): matrix  # once, where one of the models is another's wrapper
            for model, optimizers in self.together.items()
            for matrix in _held_matrices({*optimizers, *_RETRACTING}, model)
        }  # looked up at each step: a wrapper may have put other matrices in their place
        for key, matrix in found.items():  # in one order in all processes: some retract together
            if key in own:
                matrix.retract_()


def _held_matrices(
    optimizers: Iterable[torch.optim.Optimizer], model: nn.Module
) -> list[UnitMatrix]:
    """The matrices of unit vectors; refused where none of the optimizers holds a trained one."""
    held = _held_by(*optimizers)
    found = unit_matrices(model)
    for name, matrix, _ in found:
        if matrix.requires_grad and id(matrix) not in held:
            raise UserError(
                f"the optimizer does not hold {name} itself; give it model.parameters(), "
                f"not copies, so that what it updates is what is normalized, or attach all "
                f"optimizers of the model together"
            )
    return found


def _held_by(*optimizers: torch.optim.Optimizer) -> set[int]:
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(p) for group in groups for p in group["params"]}
