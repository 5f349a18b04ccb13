"""A comparison made by hand, for what draws and describes one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from spherelm import presets
from spherelm.compare.comparison import Comparison, Side
from spherelm.model.config import Arch
from spherelm.training.report.samples import Sample

ENVIRONMENT = {
    "spherelm": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "platform": "Linux",
    "cpu_threads": 2,
    "gpu": None,
    "command": ["spherelm", "compare", "--out", "a b"],
    "started": "2026-01-02T03:04:05+00:00",
}


def side(arch: Arch, losses: Sequence[float], seconds_per_step: float) -> Side:
    """A run of the debug preset, evaluated at equal distances."""
    config = presets.get(f"{arch}-debug")
    every = config.train.steps // len(losses)
    config = dataclasses.replace(
        config, train=dataclasses.replace(config.train, steps=every * len(losses))
    )
    tokens = every * config.tokens_per_step
    return Side(
        arch=arch,
        config=config,
        curve=[((i + 1) * tokens, loss) for i, loss in enumerate(losses)],
        seconds_per_step=seconds_per_step,
        bits_per_byte=losses[-1] / 0.7,
        alpha={"alpha_attn": [0.21, 0.25], "alpha_mlp": [0.3, 0.35]} if arch == "ngpt" else {},
        environment=ENVIRONMENT,
    )


def comparison(gpt: Sequence[float], ngpt: Sequence[float]) -> Comparison:
    """GPT's step takes 0.1 seconds, nGPT's 0.2."""
    return Comparison(
        preset="debug",
        data="the built-in corpus",
        gpt=side("gpt", gpt, 0.1),
        ngpt=side("ngpt", ngpt, 0.2),
        samples={"gpt": Sample("def f", "<b>"), "ngpt": Sample("def f", "(x & y):")},
    )
