"""All items of `spherelm reproduce`, each a file in `items`, in the paper's order."""

from __future__ import annotations

import importlib

from spherelm.errors import UserError, nearest
from spherelm.paper.item import Item

NAMES = (
    "loss-curve",
    "token-budget",
    "tasks",
    "embeddings",
    "condition-numbers",
    "learned-scales",
    "step-time",
    "parameters",
    "learning-rate",
    "layer-matrices",
    "length",
    "ablation-init",
    "ablation-scalar",
    "ablation-norm",
    "scale-histograms",
)
STUDY = "scaling"
"""The study of docs/results: run by the same verb, but with its own grid, records and page."""
ALL = "all"
"""Means every item."""


def get(name: str) -> Item:
    """The item called `name`."""
    if name not in NAMES:
        raise UserError(f"there is no item {name!r}; {nearest(name, (*NAMES, STUDY, ALL))}")
    module = importlib.import_module(f"spherelm.paper.items.{name.replace('-', '_')}")
    item = module.ITEM
    assert isinstance(item, Item)
    return item


def items() -> list[Item]:
    """Every item."""
    return [get(name) for name in NAMES]
