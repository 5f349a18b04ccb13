"""The pictures of the page, each with the sentence under it; several models share each picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spherelm.inspect.distribution import Distribution
from spherelm.inspect.insides import Insides
from spherelm.plots.chart import COLOURS, Axis, Chart, Role, Series

KINDS = ("attention", "MLP")
"""The half-blocks of a layer, in their order."""
POINTS = 100
"""Of a curve that has a point for each singular value."""
SYMBOLS = {
    "alpha_attn": "α_A",
    "alpha_mlp": "α_M",
    "s_u": "s_u",
    "s_nu": "s_ν",
    "s_qk": "s_qk",
    "s_z": "s_z",
    "W_nu": "W_ν",
    "W_o_mlp": "W_oMLP",
}


@dataclass(frozen=True)
class Picture:
    """A chart and what to look for in it."""

    chart: Chart
    caption: str


@dataclass(frozen=True)
class Chapter:
    """Pictures of one subject, and what the paper says of it."""

    name: str
    title: str
    paper: str
    pictures: Sequence[Picture]


def roles_of(models: Sequence[Insides]) -> list[Role]:
    """A colour for each model: the first GPT and the first nGPT have those of all our pictures."""
    free = [role for role in COLOURS if role not in ("gpt", "ngpt")] * len(models)
    roles: list[Role] = []
    for model in models:
        roles.append(model.arch if model.arch not in roles else free.pop(0))
    return roles


def chapters_of(models: Sequence[Insides]) -> list[Chapter]:
    """All chapters that these models have pictures for."""
    several = list(zip(models, roles_of(models), strict=True))
    chapters = [
        _embeddings(several),
        _conditions(several),
        _layer(several),
        _factors(several),
        _path(several),
        _attribution(several),
    ]
    return [chapter for chapter in chapters if chapter.pictures]


Several = Sequence[tuple[Insides, Role]]


def _embeddings(several: Several) -> Chapter:
    pictures = []
    for place, name in enumerate(("E_input", "E_output")):
        shown = [(m, r, m.embeddings[place]) for m, r in several if place < len(m.embeddings)]
        if not shown:
            continue
        side = name.replace("E_", "")
        pictures += [
            Picture(
                _distributions(
                    f"{side}-norms",
                    f"Lengths of {name}'s rows",
                    "length",
                    [(m, r, e.norms) for m, r, e in shown],
                ),
                "Look for width: nGPT's rows all have the length 1 by construction; the paper "
                "finds that GPT's vary significantly.",
            ),
            Picture(
                _chart(
                    f"{side}-eigenvalues",
                    f"Eigenvalues of {name}'s covariance",
                    Axis("rank", whole=True),
                    Axis("eigenvalue / median", log=True),
                    [_ranked(m, r, e.eigenvalues_over_median) for m, r, e in shown],
                ),
                "A flat line uses all dimensions alike. The paper finds GPT's input embeddings to "
                "have the higher condition number. Here: "
                + "; ".join(f"{m.label} {e.condition:,.3g}" for m, _, e in shown)
                + ".",
            ),
            Picture(
                _distributions(
                    f"{side}-products",
                    f"Dot products between {name}'s rows",
                    "dot product",
                    [(m, r, e.dot_products) for m, r, e in shown],
                ),
                "Rows spread evenly over the sphere would all be near 0; a tail to the right is "
                "clusters of tokens, which the paper sees in nGPT, too, while GPT's are larger. "
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


def _conditions(several: Several) -> Chapter:
    pictures = []
    for place, first in enumerate(several[0][0].conditions):
        lines = []
        for m, role in several:
            found = m.conditions[place]
            lines.append(_by_layer(m, role, found.by_layer))
            if found.rows_normalized is not None:
                points = list(enumerate(found.rows_normalized, start=1))
                lines.append(Series("normalized", role, points, dots=False, dotted=True))
        symbol = _symbol(first.matrix)
        attention = place < 4
        pictures.append(
            Picture(
                _chart(
                    f"condition-{first.matrix.lower().replace('_', '-')}",
                    f"Condition number of {symbol}",
                    Axis("layer", whole=True),
                    Axis("median over heads" if attention else "condition number", log=True),
                    lines,
                ),
                f"{'Attention' if attention else 'MLP'}: peaks are layers where {symbol} "
                + (
                    "nears a lower rank; the paper sees them in GPT's attention, not in nGPT's."
                    if attention
                    else "stretches some directions far more than others; what the paper points "
                    "out is attention, not the MLP."
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


def _layer(several: Several) -> Chapter:
    layers = {m.layer for m, _ in several}
    where = f"layer {layers.pop()}" if len(layers) == 1 else "the chosen layer"
    pictures = []
    for place, first in enumerate(several[0][0].matrices):
        symbol, name = _symbol(first.matrix), first.matrix.lower().replace("_", "-")
        pictures += [
            Picture(
                _chart(
                    f"values-{name}",
                    f"Singular values of {symbol}, {where}",
                    Axis("rank", whole=True),
                    Axis("over the largest", log=True),
                    [
                        _ranked(m, r, _over_first(m.matrices[place].singular_values))
                        for m, r in several
                    ],
                ),
                f"All heads of {symbol} together: a curve that falls early is a matrix that has "
                "become of lower rank, as the paper finds GPT's.",
            ),
            Picture(
                _distributions(
                    f"norms-{name}",
                    f"Lengths of {symbol}'s rows, {where}",
                    "length",
                    [(m, r, m.matrices[place].norms) for m, r in several],
                ),
                f"Each row is a vector in the space of embeddings: 1 in nGPT, free in GPT, where "
                f"the lengths of {symbol} add to its condition number.",
            ),
        ]
    return Chapter(
        "layer",
        f"The attention matrices of {where}",
        "The paper shows these for the 3rd and the 4th layer of GPT and nGPT, and reads in them "
        "that GPT's degenerate into lower-rank matrices. Choose another layer with --layer.",
        pictures,
    )


_FACTOR_CAPTIONS = {
    "alpha_attn": "The share of the way to attention's suggestion that is taken: on average 0.25 "
    "in the paper's 0.5B network and 0.20 in its 1B.",
    "alpha_mlp": "The share of the way to the MLP's suggestion that is taken: 0.37 and 0.32 in "
    "the paper, above attention's.",
    "s_u": "Factors on the linear branch of the MLP; in the paper stable across layers.",
    "s_nu": "Factors on the gate: large ones make SiLU a ReLU, small ones make it linear; in the "
    "paper stable across layers.",
    "s_qk": "Factors on normalized q and k: how sharp attention can be; in the paper stable across "
    "layers.",
    "s_z": "Factors on the logits: their mean is the temperature of the prediction, which is what "
    "characterizes them in the paper.",
}


def _factors(several: Several) -> Chapter:
    pictures = []
    for name, caption in _FACTOR_CAPTIONS.items():
        shown = [(m, r, f) for m, r in several for f in m.factors if f.name == name]
        if not shown:
            continue
        slug, symbol = name.replace("_", "-"), SYMBOLS[name]
        if name != "s_z":
            lines = [
                Series(
                    m.label,
                    r,
                    list(enumerate(f.means, start=1)),
                    square=m.arch == "gpt",
                    band=[
                        (layer, mean - std, mean + std)
                        for layer, (mean, std) in enumerate(
                            zip(f.means, f.stds, strict=True), start=1
                        )
                    ],
                )
                for m, r, f in shown
            ]
            axis = Axis(f"mean of {symbol}")
            chart = _chart(
                f"factor-{slug}", f"{symbol} by layer", Axis("layer", whole=True), axis, lines
            )
            starts = " and ".join(f"{start:g}" for start in sorted({f.start for _, _, f in shown}))
            pictures.append(
                Picture(chart, f"{caption} Shaded: one standard deviation. Start: {starts}.")
            )
        chart = _distributions(
            f"histogram-{slug}",
            f"All {symbol}" if name == "s_z" else f"{symbol} over all layers",
            symbol,
            [(m, r, f.all_layers) for m, r, f in shown],
        )
        means = "; ".join(f"{m.label} {f.all_layers.mean:.3g}" for m, _, f in shown)
        told = caption if name == "s_z" else "The same numbers of all layers together."
        pictures.append(Picture(chart, f"{told} Mean: {means}."))
    return Chapter(
        "factors",
        "Eigen learning rates and scaling factors",
        "The paper: the network learns to take only modest steps, of 20% to 30%, and smaller ones "
        "in deeper networks; s_u, s_ν and s_qk remain relatively stable across layers.",
        pictures,
    )


def _path(several: Several) -> Chapter:
    sphere = [(m, r) for m, r in several if m.path.moves[0].allowed is not None]
    pictures = [
        _of_kind(
            several,
            kind,
            "angle",
            "Angle moved by {}",
            "Dotted: the mean of α of the way to what {} suggests, the step along the geodesic. "
            "Above it, the coordinates that move most have the larger α.",
        )
        for kind in KINDS
    ]
    pictures += [
        _reading(
            several,
            "alignment",
            "Alignment with what comes next",
            "cosine",
            "The cosine between the hidden state and the target's row of E_output: it should "
            "rise with depth.",
        ),
        _reading(
            several,
            "entropy",
            "Entropy of the prediction by depth",
            "nats",
            "Each depth read out through E_output and s_z (GPT: and its last norm) as if it were "
            "the last: where it falls, the network makes up its mind.",
        ),
        _reading(
            several,
            "target_probability",
            "Probability of what comes next by depth",
            "probability",
            "Where the curve rises is where the prediction is made.",
        ),
    ]
    if sphere:
        pictures += [
            _of_kind(
                sphere,
                kind,
                "from_slerp",
                "How far {}'s step ends from SLERP's",
                "The angle between the step that was taken after {} and SLERP's with the same α, "
                "to be seen beside the angle moved: the paper finds that LERP approximates SLERP.",
            )
            for kind in KINDS
        ]
        pictures += [
            _of_kind(
                sphere,
                kind,
                "off_geodesic",
                "How far {}'s step leaves the geodesic",
                "The angle to the great circle through the state and what {} suggests: 0 if α were "
                "one number, so all of it comes from coordinates with rates of their own.",
            )
            for kind in KINDS
        ]
    return Chapter(
        "path",
        "The path of a text",
        "Means over the tokens of the text; single tokens are below. The paper has no such "
        "pictures: on the sphere, distances between states of different depths mean the same.",
        pictures,
    )


def _of_kind(several: Several, kind: str, field: str, title: str, caption: str) -> Picture:
    """A number of all half-blocks of one kind, by layer: the two kinds differ too much to share a
    curve. The angle moved stands beside what α allows."""
    place = KINDS.index(kind)
    lines = []
    for m, role in several:
        moves = m.path.moves[place::2]
        lines.append(_by_layer(m, role, [_mean(getattr(move, field)) for move in moves]))
        if field == "angle" and moves[0].allowed is not None:
            points = list(enumerate((_mean(move.allowed or ()) for move in moves), start=1))
            lines.append(Series("allowed", role, points, dots=False, dotted=True))
    name = f"{field.replace('_', '-')}-{kind.lower()}"
    called = "the MLP" if kind == "MLP" else kind
    chart = _chart(name, title.format(called), Axis("layer", whole=True), Axis("degrees"), lines)
    return Picture(chart, caption.format(called))


def _attribution(several: Several) -> Chapter:
    shown = [(m, r, m.attribution) for m, r in several if m.attribution is not None]
    if not shown:
        return Chapter("attribution", "", "", [])
    depth = Axis("layer (0 is the embedding)", whole=True)
    lives = [
        Series(
            m.label,
            r,
            [(i / 2, life) for i, life in enumerate(a.half_lives) if life is not None],
            square=m.arch == "gpt",
        )
        for m, r, a in shown
    ]
    errors = "; ".join(f"{m.label} {a.largest_error:.1g}" for m, _, a in shown)
    embedding = "; ".join(f"{m.label} {_mean(a.contributions[0]):.2g}" for m, _, a in shown)
    told = {
        "attention": f"What each attention put into the logit of the token that came next, on "
        f"average. The embedding itself: {embedding}.",
        "MLP": "What each MLP put in. Embedding, attention and MLPs sum to the logit; the largest "
        f"difference to the model's own: {errors}.",
    }
    pictures = [
        Picture(
            _chart(
                f"contributions-{kind.lower()}",
                f"The target's logit: from {'the MLP' if kind == 'MLP' else kind}",
                Axis("layer", whole=True),
                Axis("mean contribution"),
                [
                    _by_layer(m, r, [_mean(part) for part in a.contributions[1 + place :: 2]])
                    for m, r, a in shown
                ],
            ),
            told[kind],
        )
        for place, kind in enumerate(KINDS)
    ]
    if any(line.points for line in lives):
        pictures.append(
            Picture(
                _chart(
                    "half-life",
                    "Half-life of a contribution",
                    depth,
                    Axis("half-blocks", from_zero=True),
                    [line for line in lives if line.points],
                ),
                "Half-blocks until half of a contribution's share of the state is left; those that "
                "keep more than half to the end are not shown. Steps of α forget by design; GPT "
                "forgets only as its state grows.",
            )
        )
    return Chapter(
        "attribution",
        "Where the logits come from",
        "Exact, not estimated: every step of nGPT multiplies the state by known factors and adds "
        "the block's output times known factors, so the last state is a sum with one term a "
        "half-block. GPT's is the plain sum, under its last norm.",
        pictures,
    )


def _reading(several: Several, field: str, title: str, unit: str, caption: str) -> Picture:
    lines = [
        _by_depth(m, r, [_mean(getattr(reading, field)) for reading in m.path.readings])
        for m, r in several
    ]
    depth = Axis("layer (0 is the embedding)", whole=True)
    return Picture(_chart(field.replace("_", "-"), title, depth, Axis(unit), lines), caption)


def _chart(name: str, title: str, x: Axis, y: Axis, lines: Sequence[Series]) -> Chart:
    """A chart that tells in words where its curves begin and end."""
    told = "; ".join(
        f"{line.label} from {line.points[0][1]:.3g} to {line.points[-1][1]:.3g}"
        for line in lines
        if line.points
    )
    return Chart(name, title, f"{y.label} over {x.label}: {told}.", x, y, lines)


def _distributions(
    name: str, title: str, unit: str, shown: Sequence[tuple[Insides, Role, Distribution]]
) -> Chart:
    """Histograms as curves, each as high as its fullest bin, since their widths differ much."""
    lines = [_outline(m.label, role, each) for m, role, each in shown]
    told = "; ".join(f"{m.label}: mean {d.mean:.3g}, spread {d.std:.3g}" for m, _, d in shown)
    y = Axis("share of the fullest bin", from_zero=True)
    return Chart(name, title, f"Distribution of {unit}: {told}.", Axis(unit), y, lines)


def _outline(label: str, role: Role, each: Distribution) -> Series:
    """The curve begins and ends where the values do."""
    top = max(each.counts)
    width = (each.high - each.low) / len(each.counts)
    filled = [i for i, count in enumerate(each.counts) if count]
    first, last = filled[0], filled[-1]
    inner = [(each.centres[i], each.counts[i] / top) for i in range(first, last + 1)]
    left, right = each.centres[first] - width, each.centres[last] + width
    return Series(label, role, [(left, 0.0), *inner, (right, 0.0)], dots=False, label_at_top=True)


def _ranked(model: Insides, role: Role, values: Sequence[float]) -> Series:
    """Values by rank, as many as a picture can show."""
    last = len(values) - 1
    ranks = sorted({round(i * last / (POINTS - 1)) for i in range(POINTS)}) if last else [0]
    return Series(model.label, role, [(i + 1, values[i]) for i in ranks], dots=False)


def _by_layer(model: Insides, role: Role, values: Iterable[float]) -> Series:
    points = list(enumerate(values, start=1))
    return Series(model.label, role, points, square=model.arch == "gpt")


def _by_depth(model: Insides, role: Role, values: Iterable[float]) -> Series:
    points = [(i / 2, value) for i, value in enumerate(values)]
    return Series(model.label, role, points, square=model.arch == "gpt")


def _over_first(values: Sequence[float]) -> list[float]:
    """Over the largest; none below what float64 Gram matrices can tell from 0."""
    return [max(value / values[0], 1e-8) if values[0] else 1e-8 for value in values]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pairs(pairs: int, seed: int | None) -> str:
    how = "all pairs" if seed is None else f"pairs of a sample with seed {seed}"
    return f"Of {pairs:,} {how}."


def _symbol(name: str) -> str:
    return SYMBOLS.get(name, name)
