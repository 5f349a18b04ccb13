"""Pictures of neurons as directions: how near the rows of each layer are to tokens."""

from __future__ import annotations

from spherelm.inspect.directions import nearest_by_chance
from spherelm.inspect.picture import LAYERS, Chapter, Several, chart_of, level, symbol_of
from spherelm.plots.chart import Axis, Picture, Series, slug

_CAPTIONS = {
    "W_u": "What neurons read, beside the tokens of E_input: high where the state is still near "
    "the embedding it began with, so look at the first layers.",
    "W_o_mlp": "What neurons write, beside the tokens of E_output: high where they speak of single "
    "tokens, so look at the last layers.",
}


def directions(several: Several) -> Chapter:
    """The cosine with the nearest token, by layer."""
    pictures = []
    for matrix, caption in _CAPTIONS.items():
        lines, chances = list[Series](), set[float]()
        for m, role in several:
            rows = [each for each in m.directions if each.matrix == matrix]
            spread = [(each.layer, *each.nearest) for each in rows]
            points = [(layer, middle) for layer, _, middle, _ in spread]
            band = [(layer, low, high) for layer, low, _, high in spread]
            lines.append(Series(m.label, role, points, square=m.arch == "gpt", band=band))
            chance = nearest_by_chance(m.embeddings[0].tokens, m.d_model)
            if chance not in chances:
                lines.append(level("chance", role, chance, m.n_layers))
            chances.add(chance)
        symbol = symbol_of(matrix)
        chart = chart_of(
            slug("nearest", matrix),
            f"How near {symbol}'s rows are to a token",
            LAYERS,
            Axis("cosine"),
            lines,
        )
        told = "Median of all rows; shaded: the middle 80%; dotted: random directions."
        pictures.append(Picture(chart, f"{caption} {told}"))
    return Chapter(
        "directions",
        "Neurons as directions",
        "The paper has no such picture, but its architecture allows one: embeddings, states and "
        "rows of matrices are vectors on one sphere, and their dot products are cosines.",
        pictures,
    )
