"""The charts of a comparison, which `plots.svg` and `plots.png` draw."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.compare.comparison import SOONER, Comparison, Side
from spherelm.plots.chart import Axis, Chart, Series, Span, token_unit


def charts_of(comparison: Comparison) -> list[Chart]:
    """All pictures of a comparison, the most important one first."""
    return [
        loss_over_tokens(comparison),
        loss_over_seconds(comparison),
        eigen_learning_rates(comparison.ngpt),
    ]


def loss_over_tokens(c: Comparison) -> Chart:
    """Validation loss over tokens, and where one model reaches the other's final loss."""
    unit, name = token_unit(c.gpt.tokens)
    span, crossing = None, "They differ by no more than seeds do."
    if (at := c.crossing) is not None:
        text = f"{at.speedup_tokens:.2f}\u00d7 fewer tokens"
        ends = at.tokens / unit, at.second.tokens / unit
        span = Span(*ends, at.second.final_loss, text) if at.is_sooner else None
        needed = f"{at.tokens / unit:.3g} {name}"
        crossing = f"{at.first.name} reaches {at.second.name}'s final loss after {needed}."
    lines = [_losses(side, [t / unit for t, _ in side.curve]) for side in c.sides]
    title, axis = "Validation loss over tokens", Axis(f"{name} trained on", from_zero=True)
    return Chart("loss", title, f"{_ends(c)} {crossing}", axis, _loss_axis(c), lines, span)


def loss_over_seconds(c: Comparison) -> Chart:
    """Validation loss over time on this machine."""
    span = None
    if (at := c.crossing) is not None and at.speedup_seconds >= SOONER:
        ends = at.first.seconds_for(at.tokens), at.second.seconds_for(at.second.tokens)
        span = Span(*ends, at.second.final_loss, f"{at.speedup_seconds:.2f}\u00d7 less time")
    steps = (
        f"A step takes GPT {c.gpt.seconds_per_step:.3g} seconds and nGPT "
        f"{c.ngpt.seconds_per_step:.3g}."
    )
    lines = [_losses(side, [side.seconds_for(t) for t, _ in side.curve]) for side in c.sides]
    title = "Validation loss over training time"
    axis = Axis("seconds of training steps", from_zero=True)
    return Chart("loss-seconds", title, f"{_ends(c)} {steps}", axis, _loss_axis(c), lines, span)


def eigen_learning_rates(ngpt: Side) -> Chart:
    """Mean of each layer's eigen learning rates at the end, as in the paper's figure."""
    start = ngpt.config.model.resolve_scale("alpha_attn").init
    lines = [
        Series("attention", "ngpt", list(enumerate(ngpt.alpha["alpha_attn"], start=1))),
        Series("MLP", "third", list(enumerate(ngpt.alpha["alpha_mlp"], start=1))),
    ]
    means = "; ".join(
        f"{line.label}: {', '.join(f'{value:.3f}' for _, value in line.points)}" for line in lines
    )
    return Chart(
        "alpha",
        "Eigen learning rates of nGPT by layer",
        f"Means at the end of training; all began at {start:g}. {means}.",
        Axis("layer", whole=True),
        Axis("mean of \u03b1", from_zero=True),
        lines,
    )


def _losses(side: Side, xs: Sequence[float]) -> Series:
    points = [(x, loss) for x, (_, loss) in zip(xs, side.curve, strict=True)]
    label = f"{side.name} {side.final_loss:.3f}"
    return Series(label, side.arch, points, square=side.arch == "gpt")


def _loss_axis(c: Comparison) -> Axis:
    """Up to the highest loss after a fifth of the run, as earlier ones would flatten the curves."""
    late = [loss for side in c.sides for t, loss in side.curve if t >= 0.2 * side.tokens]
    return Axis("validation loss", top=max(late))


def _ends(c: Comparison) -> str:
    return f"GPT ends at {c.gpt.final_loss:.3f}, nGPT at {c.ngpt.final_loss:.3f}."
