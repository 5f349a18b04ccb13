# mypy: disable-error-code="misc"
"""Training with `transformers.Trainer`: back to the sphere after each step."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from spherelm.model.sphere import retract_


class RetractionCallback(TrainerCallback):
    """Puts the model, however it is wrapped, back on the sphere after each optimizer step.

    nGPT wants `weight_decay=0.0`; all else of `transformers.Trainer` is as ever.
    """

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        retract_(model)
