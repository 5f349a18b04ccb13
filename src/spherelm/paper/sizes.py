"""The sizes at which the paper's experiments are run; each turns a point into a run.

nano    two CPU cores and the built-in corpus: shows that everything works, and what to expect
small   the model of the study in docs/results, for one GPU
paper   the true setup: 0.5B and 1B, 1k, 4k and 8k, batches of 512 sequences

At nano and small the stand-in for 1B relates to that for 0.5B as in the paper: 1.5 times the
layers, 1.25 times the width and the heads.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.paper import ablations
from spherelm.paper.points import (
    BASELINE,
    BUDGETS,
    FAST_ALPHA,
    MODELS,
    Point,
)
from spherelm.paper.scaling import arms
from spherelm.paper.scaling import point as study
from spherelm.paper.size import CONTEXT_TOKENS, Shape, Size

SLOW_ALPHA = 0.1
"""The scale at which the paper stores alpha for 1B at 8k: otherwise the losses are not smooth."""


def _varied(point: Point, run: RunConfig) -> RunConfig:
    """The run with the model changes of its point."""
    model = run.model
    if point.arch == "ngpt" and (point.model, point.context) == ("1B", "8k"):
        scale = 1 / math.sqrt(model.d_model) if point.variant == FAST_ALPHA else SLOW_ALPHA
        alpha = dataclasses.replace(model.alpha_attn, scale=scale)
        model = dataclasses.replace(model, alpha_attn=alpha, alpha_mlp=alpha)
    if point.variant not in (BASELINE, FAST_ALPHA):
        model = ablations.ablate(model, point.variant)
    return dataclasses.replace(run, model=model)


def _suffix(point: Point) -> str:
    return "" if point.variant == BASELINE else f"-{point.variant}"


# --- nano ----------------------------------------------------------------------------------------


NANO_RATE = 8e-3
"""For GPT and nGPT alike. The preset's 2e-3 and 4e-3 are for ten times as many steps. With 32 steps
and rates from 1e-3 to 8e-3, GPT was best at 8e-3 in five of six panels of `learning-rate`; at 2e-3
it would have lost to nGPT for that reason alone. nGPT was best at 4e-3 to 1.6e-2."""


def _nano(size: Size, point: Point) -> RunConfig:
    """The preset nano's settings for a smaller model and far fewer steps."""
    preset = presets.get(f"{point.arch}-nano")
    shape, context = size.models[point.model], size.contexts[point.context]
    steps, batch = size.budgets[point.budget], size.tokens_per_step // context
    fields: dict[str, Any] = {
        **shape.fields,
        "model.context": context,
        "optim.lr": float(f"{NANO_RATE * point.rate:.6g}"),
        "optim.warmup_steps": presets.warmup_for(preset, steps),
        "train.steps": steps,
        "train.batch_size": batch,
        "train.micro_batch_size": batch,
        "train.eval_every": size.budgets["25k"],
        "train.eval_sequences": max(1, size.validation_tokens // context),
        "train.checkpoint_every": size.budgets["50k"],
        "train.keep_last": 1,
        "train.tensorboard": False,
    }
    if point.arch == "gpt":
        fields["model.init_std"] = presets.NANO_INIT / math.sqrt(shape.width)
    return _varied(point, override(preset, fields))


def _nano_id(size: Size, point: Point) -> str:
    shape = size.models[point.model]
    words = [point.arch, f"{shape.layers}x{shape.width}", f"c{size.contexts[point.context]}"]
    words.append(f"{size.budgets[point.budget]}-steps")
    if point.rate != 1:
        words.append(f"rate{point.rate:g}")
    return "-".join(words) + _suffix(point)


NANO = Size(
    name="nano",
    what="4 layers of 48 and 6 of 60 in contexts of 64, 256 and 512 bytes of the built-in corpus",
    models={"0.5B": Shape(4, 48, 4), "1B": Shape(6, 60, 5)},
    contexts={"1k": 64, "4k": 256, "8k": 512},
    budgets={"25k": 16, "50k": 32, "100k": 64, "200k": 128},
    configure=_nano,
    identify=_nano_id,
    flops=15e9,
    device="CPU core",
    measured="one core of a shared server, with its evaluations",
    caveat="runs of 16 to 128 steps of models of a few hundred thousand parameters. They show "
    "that all of it works and what form a result has; what they find says nothing about the "
    "paper's claims.",
    rates=(0.5, 1.0, 2.0, 4.0),
    rate_budget="50k",
    insides_budget="200k",
    tokens_per_step=512,
    validation_tokens=4096,
    built_in=True,
    workers=0,
)
DEBUG = dataclasses.replace(
    NANO,
    name="debug",
    what="2 layers of 8 and 3 of 12: for tests",
    models={"0.5B": Shape(2, 8, 2), "1B": Shape(3, 12, 3)},
    contexts={"1k": 8, "4k": 16, "8k": 32},
    budgets={"25k": 1, "50k": 2, "100k": 3, "200k": 4},
    grid_models=("1B",),
    rates=(1.0, 2.0),
    tokens_per_step=32,
    validation_tokens=64,
    hidden=True,
)


# --- small ---------------------------------------------------------------------------------------


def _study_point(size: Size, point: Point) -> study.Point:
    lr = arms.ARMS[point.arch].lr
    return study.Point(
        point.arch,
        size.budgets[point.budget],
        lr=None if point.rate == 1 else float(f"{lr * point.rate:.6g}"),
        context=size.contexts[point.context],
    )


def _small(size: Size, point: Point) -> RunConfig:
    run = override(_study_point(size, point).config(), size.models[point.model].fields)
    if point.arch == "gpt":
        run = override(run, {"model.init_std": 1 / math.sqrt(run.model.d_model)})
    return _varied(point, run)


def _small_id(size: Size, point: Point) -> str:
    """The study's name for the run, if it is one of the study's."""
    shape = size.models[point.model]
    larger = "" if point.model == "0.5B" else f"-{shape.layers}x{shape.width}"
    return _study_point(size, point).id + larger + _suffix(point)


SMALL = Size(
    name="small",
    what="8 layers of 512, the model of the study, and 12 of 640; one GPU, your own text",
    models={"0.5B": study.SHAPES[study.SMALL], "1B": Shape(12, 640, 10)},
    contexts=CONTEXT_TOKENS,
    budgets={"25k": 46, "50k": 92, "100k": 184, "200k": 368},
    configure=_small,
    identify=_small_id,
    flops=370e12,
    device="GPU",
    measured="an H200 that trains 1.05M tokens/s of the 8 layers (docs/results/headline.md)",
    grid_models=("0.5B",),
    rates=(0.25, 0.5, 1.0, 2.0),
    rate_budget="25k",
    insides_budget="200k",
)


# --- paper ---------------------------------------------------------------------------------------


def _paper(size: Size, point: Point) -> RunConfig:
    run = presets.get(f"{point.arch}-{preset_of(point)}")
    lr = float(f"{run.optim.lr * point.rate:.6g}")
    return _varied(
        point, override(run, {"optim.lr": lr, "train.steps": size.budgets[point.budget]})
    )


def preset_of(point: Point) -> str:
    """The preset of the paper's setup, without gpt- or ngpt-."""
    return f"{point.model.lower()}-{point.context}"


def _paper_id(size: Size, point: Point) -> str:
    lr = _paper(size, point).optim.lr
    return f"{point.arch}-{preset_of(point)}-{point.budget}-lr{lr:g}" + _suffix(point)


PAPER = Size(
    name="paper",
    what="the true setup: 0.5B and 1B, 1k, 4k and 8k, batches of 512 sequences; a cluster",
    models={
        model: Shape(shape.n_layers, shape.d_model, shape.n_heads)
        for model in MODELS
        for shape in [presets.MODELS[f"{model.lower()}-1k"]]
    },
    contexts=CONTEXT_TOKENS,
    budgets={budget: int(budget[:-1]) * 1000 for budget in BUDGETS},
    configure=_paper,
    identify=_paper_id,
    flops=490e12,
    device="GPU",
    measured="half of an H200's 989 TFLOP/s, as measured for 0.5B (docs/results/speed.md)",
    histogram_rate=2.0,
)

SIZES = {size.name: size for size in (NANO, SMALL, PAPER, DEBUG)}


def get(name: str) -> Size:
    """The size called `name`."""
    if name not in SIZES:
        shown = [size.name for size in SIZES.values() if not size.hidden]
        raise UserError(f"--size must be one of {', '.join(shown)}, not {name!r}")
    return SIZES[name]
