"""The arms of the study: ways to train its models, and recipes that change one thing about an arm.

Whatever is not specific to nGPT (Muon, tied embeddings, rates by kind) is also tried on baselines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Arm:
    """A model with its optimizer and starting values."""

    title: str
    lr: float
    """The default learning rate of its points."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the plain model of its architecture, by dotted names."""
    ngpt: bool = False
    base: str = ""
    """The arm that this one changes; empty for main arms."""
    compared: bool = True
    """Whether it gets factors and curves of its own, besides its losses."""


_QK = {"model.gpt_qk_norm": True}
_MUON = {"optim.algorithm": "muon"}
_PLAIN: dict[str, Arm] = {
    "gpt": Arm("GPT", 4e-3),
    "gpt-qk": Arm("GPT, QK-norm", 4e-3, _QK),
    "gpt-muon": Arm("GPT, Muon", 2e-3, _MUON),
    "gpt-qk-muon": Arm("GPT, QK-norm, Muon", 8e-3, {**_QK, **_MUON}),
    "ngpt": Arm("nGPT", 8e-3, ngpt=True),
    "ngpt-muon": Arm("nGPT, Muon", 8e-3, _MUON, ngpt=True),
}
MAIN = tuple(_PLAIN)
"""Arms that are always compared; the others are recipes, mostly tried at one budget."""
BOTH = ("ngpt", "gpt")
LEADERS = (*BOTH, "ngpt-muon", "gpt-qk-muon")
"""Plain, and the best of each kind."""


@dataclass(frozen=True)
class Recipe:
    """One change that turns an arm into a new one."""

    title: str
    fields: Mapping[str, Any]
    of: tuple[str, ...]
    """The arms it is applied to."""
    compared: bool = True
    """As `Arm.compared`."""


_NGPT = ("ngpt", "ngpt-muon")
_RECIPES = {
    "lgp": Recipe("logit gradient preconditioning", {"optim.logit_preconditioning": True}, _NGPT),
    "gated": Recipe("GatedAdamW", {"optim.algorithm": "gated_adamw"}, BOTH),
    "cap": Recipe("angle cap 0.05", {"optim.angle_cap": 0.05}, _NGPT),
    "no-qk": Recipe("no QK-norm", {"model.qk_norm": False}, _NGPT),
    "signed": Recipe("signed alpha", {"model.signed_alpha": True}, _NGPT),
    "tied": Recipe("tied embeddings", {"model.tie_embeddings": True}, LEADERS),
    "nugpt": Recipe(
        "nuGPT's rates", {"optim.lr_groups": "nugpt", "optim.base_d_model": 512}, LEADERS
    ),
    "fp8": Recipe("fp8", {"train.precision": "fp8"}, BOTH, compared=False),
}


def _arms() -> dict[str, Arm]:
    found = dict(_PLAIN)
    for base in LEADERS:
        plain = _PLAIN[base]
        for name, recipe in _RECIPES.items():
            if base in recipe.of:
                found[f"{base}-{name}"] = dataclasses.replace(
                    plain,
                    title=f"{plain.title}, {recipe.title}",
                    fields={**plain.fields, **recipe.fields},
                    base=base,
                    compared=recipe.compared,
                )
    return found


ARMS = _arms()
