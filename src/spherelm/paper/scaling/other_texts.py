"""Other held-out text: bits per byte over tokens, and what nGPT needs for a baseline's.

For each arm and budget the run shown is the evaluated one with the lowest validation loss: the
other text must not influence the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from spherelm.eval.texts import short_names
from spherelm.paper.scaling import figures
from spherelm.paper.scaling.arms import ARMS
from spherelm.paper.scaling.evaluations import Evaluated
from spherelm.paper.scaling.identity import Place, arm_of, variant_of
from spherelm.paper.scaling.needed import read_off
from spherelm.paper.scaling.words import LEAD, lead, millions, number
from spherelm.plots import markdown
from spherelm.plots.chart import Axis, Chart, described

_END = ("text", "baseline", "tokens", "bits per byte")
_SHARE = ("model", "context", *_END, "arm", "it needs", "share")

Curves = Mapping[str, Mapping[int, float]]
"""By arm and tokens: bits per byte."""


def tables(found: Sequence[Evaluated]) -> Iterator[str]:
    """Bits per byte of every run that has them, and the shares."""
    shown = [each for each in found if each.texts]
    if not shown:
        return
    names = _names(shown)
    yield "Bits per byte of other held-out text:"
    rows = (
        [*lead(each.run), *(number(each.texts.get(text), ".4f") for text in names)]
        for each in shown
    )
    yield markdown.table((*LEAD, *names.values()), rows)
    for chart in charts(shown):
        yield from markdown.picture(chart.title, f"{chart.name}.svg")
    if shares := list(_share_rows(shown)):
        yield (
            "Tokens that an arm of nGPT needs for the bits per byte at which a baseline ends, from "
            "the runs in the table before this one, the best on the validation text at each "
            "budget; one seed each:"
        )
        yield markdown.table(_SHARE, shares)


def charts(found: Sequence[Evaluated]) -> list[Chart]:
    """Bits per byte over tokens, for each text of each model and context with several budgets."""
    names, drawn = _names(found), []
    for place, texts in _curves(found).items():
        what, where = figures.named(place)
        for text, curves in texts.items():
            budgets = {tokens for curve in curves.values() for tokens in curve}
            if len(budgets) > 1:
                points = {
                    arm: [(tokens / 1e6, bits) for tokens, bits in sorted(curve.items())]
                    for arm, curve in curves.items()
                }
                drawn.append(
                    described(
                        f"scaling-{where}-{names[text]}",
                        f"{names[text]} at the end of finished runs, {what}",
                        figures.budgets_axis(budgets),
                        Axis("bits per byte"),
                        figures.lines(points),
                    )
                )
    return drawn


def _names(found: Sequence[Evaluated]) -> dict[str, str]:
    """A short name for each text."""
    texts = list(dict.fromkeys(text for each in found for text in each.texts))
    return {t: s.partition(".")[0] for t, s in zip(texts, short_names(texts), strict=True)}


def _curves(found: Sequence[Evaluated]) -> dict[Place, dict[str, Curves]]:
    """The curves by place and by text."""
    curves: dict[Place, dict[str, dict[str, dict[int, float]]]] = {}
    # The best on the validation text comes last, so it overwrites the others.
    for each in sorted(found, key=lambda each: -each.run.loss):
        run = each.run.config
        if variant_of(each.run.id):
            continue
        of_texts = curves.setdefault(Place.of(run), {})
        for text, bits in each.texts.items():
            of_arms = of_texts.setdefault(text, {})
            of_arms.setdefault(arm_of(run), {})[each.run.tokens] = bits
    order = sorted(curves, key=Place.rank)
    return {place: dict(sorted(curves[place].items())) for place in order}


def _share_rows(found: Sequence[Evaluated]) -> Iterator[list[str]]:
    names, order = _names(found), list(ARMS)
    for place, texts in _curves(found).items():
        for text, curves in texts.items():
            arms = sorted(curves, key=order.index)
            for baseline in (arm for arm in arms if not ARMS[arm].ngpt):
                tokens = max(curves[baseline])
                end = curves[baseline][tokens]
                for arm in (arm for arm in arms if ARMS[arm].ngpt):
                    reading = read_off({d: [y] for d, y in curves[arm].items()}, tokens, [end])
                    if reading is not None:
                        where = [*place.cells, names[text], ARMS[baseline].title]
                        shown = [*where, millions(tokens), f"{end:.4f}", ARMS[arm].title]
                        yield [*shown, reading.tokens, reading.value()]
