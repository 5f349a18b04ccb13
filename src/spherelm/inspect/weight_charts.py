"""Pictures of weights: embeddings, condition numbers, one layer, learned factors."""

from __future__ import annotations

from collections.abc import Sequence

from spherelm.inspect.distribution import QUANTILES, Distribution
from spherelm.inspect.factors import Factor
from spherelm.inspect.picture import (
    LAYERS,
    Chapter,
    Several,
    by_layer,
    chart_of,
    distributions,
    dotted,
    ranked,
    symbol_of,
)
from spherelm.plots.chart import Axis, Picture, slug

_CONDITION = {
    "E_input": "The paper finds GPT's input embeddings to have the higher condition number.",
    "E_output": "The paper shows the eigenvalues of output embeddings without comment.",
}
"""What the paper says about the eigenvalues of either matrix."""


def embeddings(several: Several) -> Chapter:
    """Both embedding matrices: lengths, eigenvalues, dot products."""
    pictures = []
    for place, name in enumerate(("E_input", "E_output")):
        shown = [(m, r, m.embeddings[place]) for m, r in several if place < len(m.embeddings)]
        if not shown:
            continue
        side = name.replace("E_", "")
        pictures += [
            Picture(
                distributions(
                    f"{side}-norms",
                    f"Lengths of {name}'s rows",
                    "length",
                    [(m.label, r, e.norms) for m, r, e in shown],
                ),
                "Look for width: nGPT's rows all have the length 1 by construction; the paper "
                "finds that GPT's vary significantly.",
            ),
            Picture(
                chart_of(
                    f"{side}-eigenvalues",
                    f"Eigenvalues of {name}'s covariance",
                    Axis("rank", whole=True),
                    Axis("eigenvalue / median", log=True),
                    [ranked(m, r, e.eigenvalues_over_median) for m, r, e in shown],
                ),
                f"A flat line means that all dimensions are used alike. {_CONDITION[name]} Here: "
                + "; ".join(f"{m.label} {e.condition:,.3g}" for m, _, e in shown)
                + ".",
            ),
            Picture(
                distributions(
                    f"{side}-products",
                    f"Dot products between {name}'s rows",
                    "dot product",
                    [(m.label, r, e.dot_products) for m, r, e in shown],
                ),
                "If rows were spread evenly over the sphere, all would be near 0; a tail to the "
                "right means clusters of tokens, which the paper sees in nGPT, too, while GPT's "
                "dot products are larger. "
                + " ".join(sorted({_pairs(e.pairs, e.seed) for _, _, e in shown})),
            ),
        ]
    return Chapter(
        "embeddings",
        "Embeddings",
        "The paper: nGPT keeps a fixed norm by design while GPT's vary much; GPT's input "
        "embeddings are worse conditioned; and even in nGPT embeddings are not uniformly "
        "distributed but form clusters.",
        pictures,
    )


def conditions(several: Several) -> Chapter:
    """Condition numbers of the seven matrices of a block."""
    pictures = []
    for place, first in enumerate(several[0][0].conditions):
        lines = []
        for m, role in several:
            found = m.conditions[place]
            lines.append(by_layer(m, role, found.by_layer))
            if found.rows_normalized is not None:
                lines.append(dotted("normalized", role, found.rows_normalized))
        symbol = symbol_of(first.matrix)
        attention = place < 4
        pictures.append(
            Picture(
                chart_of(
                    slug("condition", first.matrix),
                    f"Condition number of {symbol}",
                    LAYERS,
                    Axis("median over heads" if attention else "condition number", log=True),
                    lines,
                ),
                f"{'Attention' if attention else 'MLP'}: peaks are layers where {symbol} "
                + (
                    "nears a lower rank; the paper sees them in GPT's attention, not in nGPT's."
                    if attention
                    else "stretches some directions far more than others; the paper comments only "
                    "on attention."
                ),
            )
        )
    return Chapter(
        "conditions",
        "Condition numbers by layer",
        "The paper: GPT's attention matrices have significantly higher condition numbers than "
        "nGPT's. Normalizing GPT's rows after training (dotted) lowers them, but they remain "
        "higher: its matrices degenerate into lower-rank ones.",
        pictures,
    )


def one_layer(several: Several) -> Chapter:
    """Singular values and lengths of rows of one layer."""
    layers = {m.layer for m, _ in several}
    where = f"layer {layers.pop()}" if len(layers) == 1 else "the chosen layer"
    pictures = []
    for place, first in enumerate(several[0][0].matrices):
        symbol = symbol_of(first.matrix)
        pictures += [
            Picture(
                chart_of(
                    slug("values", first.matrix),
                    f"Singular values of {symbol}, {where}",
                    Axis("rank", whole=True),
                    Axis("over the largest", log=True),
                    [
                        ranked(m, r, _over_first(m.matrices[place].singular_values))
                        for m, r in several
                    ],
                ),
                f"All heads of {symbol} together: a curve that falls early means a matrix of lower "
                "rank, as the paper finds in GPT.",
            ),
            Picture(
                distributions(
                    slug("norms", first.matrix),
                    f"Lengths of {symbol}'s rows, {where}",
                    "length",
                    [(m.label, r, m.matrices[place].norms) for m, r in several],
                ),
                f"Each row is a vector in the space of embeddings: 1 in nGPT, free in GPT, where "
                f"the lengths of {symbol} add to its condition number.",
            ),
        ]
    return Chapter(
        "layer",
        f"The attention matrices of {where}",
        "The paper shows these for the 3rd and the 4th layer of GPT and nGPT, and concludes that "
        "GPT's degenerate into lower-rank matrices. Choose another layer with --layer.",
        pictures,
    )


_HISTOGRAM_CAPTIONS = {
    "alpha_attn": "A tail to the right is coordinates that attention renews almost at once. The "
    "paper: the histogram moves right with longer contexts and more tokens, left in larger models.",
    "alpha_mlp": "A tail to the right is coordinates that the MLP renews almost at once. The "
    "paper: the histogram moves right with longer contexts and more tokens, left in larger models.",
    "s_u": "A wide histogram means that some neurons matter more than others. The paper: it moves "
    "left with longer contexts, right with larger models and more tokens, and is flatter at larger "
    "rates.",
    "s_nu": "Values near 0 are neurons that are almost linear. The paper: like s_u, it moves left "
    "with longer contexts, right with larger models and more tokens.",
    "s_qk": "A peak near 0 is dimensions of queries and keys that are not used. The paper sees "
    "such a peak and takes it for sparse attention; otherwise the histogram is stable.",
    "s_z": "Look at the mean, the inverse temperature of the prediction. The paper: it is what "
    "characterizes s_z, and grows with context, size and tokens.",
}
_FACTOR_CAPTIONS = {
    "alpha_attn": "How far a step goes towards attention's suggestion: on average 0.25 of the way "
    "in the paper's 0.5B network and 0.20 in its 1B.",
    "alpha_mlp": "How far a step goes towards the MLP's suggestion: 0.37 and 0.32 of the way in "
    "the paper, further than attention's.",
    "s_u": "Factors on the linear branch of the MLP; in the paper stable across layers.",
    "s_nu": "Factors on the gate: large ones make SiLU a ReLU, small ones make it linear; in the "
    "paper stable across layers.",
    "s_qk": "Factors on normalized q and k: how sharp attention can be; in the paper stable across "
    "layers.",
    "s_z": "",
}
"""By layer; s_z belongs to none."""


def factors(several: Several) -> Chapter:
    """The learned factors of nGPT, by layer and all together."""
    pictures = []
    for name, caption in _FACTOR_CAPTIONS.items():
        shown = [(m, r, f) for m, r in several for f in m.factors if f.name == name]
        if not shown:
            continue
        symbol = symbol_of(name)
        if name != "s_z":
            lines = [by_layer(m, r, f.means, _one_deviation(f)) for m, r, f in shown]
            axis = Axis(f"mean of {symbol}")
            chart = chart_of(slug("factor", name), f"{symbol} by layer", LAYERS, axis, lines)
            starts = " and ".join(f"{start:g}" for start in sorted({f.start for _, _, f in shown}))
            pictures.append(
                Picture(chart, f"{caption} Shaded: one standard deviation. Start: {starts}.")
            )
        chart = distributions(
            slug("histogram", name),
            f"All {symbol}" if name == "s_z" else f"{symbol} over all layers",
            symbol,
            [(m.label, r, f.all_layers) for m, r, f in shown],
        )
        middles = "; ".join(f"{m.label} {_middle(f.all_layers)}" for m, _, f in shown)
        pictures.append(Picture(chart, f"{_HISTOGRAM_CAPTIONS[name]} {middles}."))
    return Chapter(
        "factors",
        "Eigen learning rates and scaling factors",
        "The paper: the network learns to take only modest steps, of 20% to 30%, and smaller ones "
        "in deeper networks; s_u, s_ν and s_qk remain relatively stable across layers.",
        pictures,
    )


def _one_deviation(each: Factor) -> list[tuple[float, float]]:
    return [(mean - std, mean + std) for mean, std in zip(each.means, each.stds, strict=True)]


def _over_first(values: Sequence[float]) -> list[float]:
    """Relative to the largest, at least the smallest that a float64 Gram matrix can resolve."""
    return [max(value / values[0], 1e-8) if values[0] else 1e-8 for value in values]


def _middle(each: Distribution) -> str:
    low, high = (each.quantiles[QUANTILES.index(share)] for share in (0.05, 0.95))
    return f"mean {each.mean:.3g}, 90% from {low:.3g} to {high:.3g}"


def _pairs(pairs: int, seed: int | None) -> str:
    if seed is None:
        return f"All {pairs:,} pairs."
    return f"{pairs:,} pairs, of tokens drawn with seed {seed}."
