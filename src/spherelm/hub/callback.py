# mypy: disable-error-code="misc"
"""Training with `transformers.Trainer`: back to the sphere after each step."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback


class RetractionCallback(TrainerCallback):
    """Calls `model.retract_()` when the optimizer has moved the weights.

    nGPT wants `weight_decay=0.0`; all else of `transformers.Trainer` is as ever.
    """

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        getattr(model, "module", model).retract_()
