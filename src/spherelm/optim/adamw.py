"""AdamW whose step ends on the sphere.

Retraction (normalizing all matrices along d_model) is part of the optimizer's step, on the very
tensors it updates: no training loop can forget it, and no copy can drift. For a GPT the step is
that of `torch.optim.AdamW` to the bit.

Matrices stored in bfloat16 have no float32 copy. Their gradients and moments are bfloat16 too; a
step reads them, computes in float32, retracts, and rounds once.
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
from spherelm.ops.choose import Choice, choose_adamw
from spherelm.ops.names import Kernels
from spherelm.ops.reference import normalize
from spherelm.validate import require_fraction, require_non_negative


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The paper's parameter groups: matrices and factors.

    GPT applies weight decay to its matrices; nGPT has none, and retracts them after each step.
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
    """Multiply all gradients of an optimizer's parameters by `factor`, a scalar."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    if found := [local_rows(g) for g in gradients if g is not None]:
        torch._foreach_mul_(found, factor)


class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW` for a spherelm model; `step` puts its matrices back on the sphere.

    On CUDA the whole step is a launch or two of our kernel, clipping included. On other devices,
    weights stored in less than float32 take our reference step (`spherelm.ops.choose`).
    """

    _model: weakref.ref[nn.Module] | None = None
    """Weak, so as not to keep the model alive; left out of copies and pickles."""

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        kernels: Kernels = "auto",
    ) -> None:
        Choice(kernels)  # refuses what is not there
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
        """For a copy or a pickle: torch's state and our own attributes, which it omits."""
        own = ("_spherical", "_kernels", "_factor")
        return {**super().__getstate__(), **{name: self.__dict__[name] for name in own}}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like torch's: for parameters unfrozen or added since, or from outside the model.

        Matrices on the sphere need a group of their own.
        """
        model = None if self._model is None else self._model()
        if model is not None:  # it may have new parameters
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
        """Like torch's, for the state of any AdamW: which groups are on the sphere depends on the
        model alone."""
        on_sphere = [group["on_sphere"] for group in self.param_groups]
        for option in ("amsgrad", "maximize"):
            if any(saved.get(option) for saved in state_dict["param_groups"]):
                raise UserError(
                    f"the saved optimizer uses {option}, which spherelm.AdamW does not have; "
                    f"continue with torch's optimizer and attach_retraction"
                )
        for lives, saved in zip(on_sphere, state_dict["param_groups"], strict=False):
            if lives and saved.get("weight_decay"):
                raise UserError(
                    f"the saved optimizer applies a weight decay of {saved['weight_decay']} to "
                    f"matrices of unit vectors; set 'weight_decay' to 0 in its groups"
                )
        super().load_state_dict(state_dict)
        for group, lives in zip(self.param_groups, on_sphere, strict=True):
            group["on_sphere"] = lives

    @torch.no_grad()
    def scale_gradients(self, factor: Tensor) -> None:
        """Multiply all gradients of the next step by `factor`, a scalar on the device: clipping.

        Our own step applies it as it reads the gradients, and leaves them unchanged.
        """
        if self._own_update() is not None:
            self._factor = factor.float()
            return
        multiply_gradients(self, factor)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step; returns the loss that `closure` computes, if given."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        update = self._own_update()
        if update is not None:
            self._step_by(update)
            return loss
        plain: Any = torch.optim.AdamW.step
        if getattr(plain, "hooked", False):  # ours is hooked already: hooks would run twice
            plain = plain.__wrapped__
        plain(self)
        for group in self.param_groups:
            if group["on_sphere"]:
                for matrix in group["params"]:
                    if matrix.grad is not None:  # others have not moved, and keep every bit
                        rows = local_rows(matrix)
                        rows.copy_(normalize(rows))
        return loss

    def _own_update(self) -> Callable[..., None] | None:
        """Our own implementation of the step, if one applies; None means torch's."""
        held = [local_rows(p) for group in self.param_groups for p in group["params"]]
        return choose_adamw(self._kernels, held)

    def _step_by(self, update: Callable[..., None]) -> None:
        for group in self.param_groups:
            # The state is torch.optim.AdamW's, so that checkpoints are the same whoever wrote them.
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
    transformers. A spherelm GPT is left as it is; a model without any part of spherelm is refused.

    Several optimizers may share the model, such as Muon for the blocks and Adam for the rest: each
    retracts the matrices it updates. They must hold the model's own matrices. Copies would leave
    the model's unnormalized, a common bug that the paper warns of, so they are refused, even if a
    wrapper replaces the matrices after this call.

    Torch copies and pickles optimizers without hooks, so call this again for a copy. A later call,
    for instance with a second optimizer for parameters unfrozen since, replaces an earlier one.
    """
    if isinstance(optimizers, torch.optim.Optimizer):
        optimizers = [optimizers]
    if not isinstance(optimizers, Iterable):
        raise UserError(
            "the first argument must be an optimizer or a list of them, the second the model; "
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
"""All optimizers with a retraction: a matrix may be held by one that was attached later."""


class _Retraction:
    """A hook run after each step of an optimizer: retracts the matrices it holds."""

    def __init__(self) -> None:
        self.together: dict[nn.Module, list[torch.optim.Optimizer]] = {}
        """For each model, the optimizers that were attached to it in one call."""

    def forget_others_than(self, held: set[int]) -> None:
        """Forget models of which the optimizer no longer holds any parameter."""
        for model in list(self.together):
            if held.isdisjoint(map(id, model.parameters())):
                del self.together[model]

    def __call__(self, optimizer: torch.optim.Optimizer, *_arguments: Any) -> None:
        own = _held_by(optimizer)
        found = {
            id(matrix.parameter): matrix  # by id: one of the models may wrap another
            for model, optimizers in self.together.items()
            for matrix in _held_matrices({*optimizers, *_RETRACTING}, model)
        }  # found again at each step: a wrapper may have replaced matrices
        for key, matrix in found.items():  # same order in all processes: some retract together
            frozen = not matrix.parameter.requires_grad and matrix.parameter.grad is None
            if key in own and not frozen:
                matrix.retract_()


def _held_matrices(
    optimizers: Iterable[torch.optim.Optimizer], model: nn.Module
) -> list[UnitMatrix]:
    """The matrices of unit vectors; refuses the model if no optimizer holds a trained one."""
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
    """The ids of all parameters that the optimizers update."""
    groups = (group for optimizer in optimizers for group in optimizer.param_groups)
    return {id(p) for group in groups for p in group["params"]}
