"""spherelm: nGPT, the normalized Transformer, and its GPT baseline.

    saved = spherelm.load("runs/x")                   a run, a checkpoint or an exported folder
    spherelm.generate(saved, "def main(")             text
    spherelm.train("ngpt-nano", "tokens", "runs/x")   a new run

The public names are imported when first used, so that `import spherelm` and `spherelm --help` do
not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from spherelm import presets as presets
    from spherelm.api import generate as generate
    from spherelm.api import load as load
    from spherelm.api import train as train
    from spherelm.config import RunConfig as RunConfig
    from spherelm.measured.recommend import recommend as recommend
    from spherelm.model.config import ModelConfig as ModelConfig
    from spherelm.model.config import ScaleConfig as ScaleConfig
    from spherelm.model.sphere import retract_ as retract_
    from spherelm.model.transformer import Transformer as Transformer
    from spherelm.optim.adamw import AdamW as AdamW
    from spherelm.optim.adamw import attach_retraction as attach_retraction
    from spherelm.optim.schedule import cosine_schedule as cosine_schedule

_HOME = {
    "AdamW": "spherelm.optim.adamw",
    "ModelConfig": "spherelm.model.config",
    "RunConfig": "spherelm.config",
    "ScaleConfig": "spherelm.model.config",
    "Transformer": "spherelm.model.transformer",
    "attach_retraction": "spherelm.optim.adamw",
    "cosine_schedule": "spherelm.optim.schedule",
    "generate": "spherelm.api",
    "load": "spherelm.api",
    "recommend": "spherelm.measured.recommend",
    "retract_": "spherelm.model.sphere",
    "train": "spherelm.api",
}
__all__ = [*sorted(_HOME), "presets"]


def __getattr__(name: str) -> object:
    if name == "presets":
        return importlib.import_module("spherelm.presets")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'spherelm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
