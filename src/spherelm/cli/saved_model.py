"""Shared by the verbs that run a saved model: device and precision flags, and opening the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from spherelm import cpu_isa
from spherelm.errors import UserError
from spherelm.flags import parse
from spherelm.ops.names import Dtype
from spherelm.validate import check_fields

if TYPE_CHECKING:
    import torch

    from spherelm.model.transformer import Transformer
    from spherelm.saved import Saved


@dataclass(frozen=True, kw_only=True)
class ModelsFlags:
    """Flags of a verb that runs saved models."""

    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    dtype: Dtype = "auto"
    """Precision of matrix products; auto: bf16 on CUDA, fp32 elsewhere."""
    tokenizer: str | None = None
    """A tokenizer, where a run has none of its own."""
    json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        check_fields(self, "--")

    def execution(self) -> tuple[torch.device, torch.dtype]:
        """The device a model runs on, and the precision of its matrix products."""
        import torch

        from spherelm.ops.device import choose_device, uses_bf16

        device = choose_device(self.device, "--device")
        return device, torch.bfloat16 if uses_bf16(self.dtype, device) else torch.float32

    def open(self, saved: Saved) -> tuple[Transformer, AbstractContextManager[object]]:
        """The model on its device, and the context manager that sets its products' precision."""
        from spherelm.ops.device import in_precision
        from spherelm.saved import read_weights, to_device

        device, _ = self.execution()
        return to_device(read_weights(saved), device).eval(), in_precision(self.dtype, device)


def check_runs(
    verb: str, runs: Sequence[str], kinds: str = "run, checkpoint or exported folder"
) -> None:
    """Refuse an empty list, and a run named twice: its two curves would coincide."""
    if not runs:
        raise UserError(f"{verb} needs at least one {kinds}")
    for run in runs:
        if runs.count(run) > 1:
            raise UserError(f"{run} is named twice; name each run once")


F = TypeVar("F", bound=ModelsFlags)


def parse_for_model(
    flags: type[F],
    argv: list[str],
    verb: str,
    meant: Callable[[str], str | None] = lambda word: None,
) -> F:
    """Parse the flags, and make bfloat16 products safe on this CPU before torch is loaded."""
    parsed = parse(flags, argv, verb, meant=meant)
    cpu_isa.before_products(parsed.dtype, parsed.device)
    return parsed
