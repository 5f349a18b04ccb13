"""All chapters of the page."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.inspect import neuron_charts, text_charts, weight_charts
from spherelm.inspect.insides import Insides
from spherelm.inspect.picture import Chapter, coloured


def chapters_of(models: Sequence[Insides]) -> list[Chapter]:
    """All chapters that these models have pictures for."""
    several = coloured(models)
    chapters = [
        weight_charts.embeddings(several),
        weight_charts.conditions(several),
        weight_charts.one_layer(several),
        weight_charts.factors(several),
        text_charts.path(several),
        text_charts.attribution(several),
        neuron_charts.directions(several),
        text_charts.bounds(several),
    ]
    return [chapter for chapter in chapters if chapter.pictures]
