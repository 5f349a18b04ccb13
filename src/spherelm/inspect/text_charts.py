"""Pictures of what networks do with a text: the paths of tokens, where logits come from, and how
large the operands of products become."""

from __future__ import annotations

from spherelm.inspect.picture import (
    DEPTHS,
    LAYERS,
    Chapter,
    Several,
    by_depth,
    by_layer,
    chart_of,
    dotted,
    level,
    mean_of,
)
from spherelm.plots.chart import Axis, Picture, slug

KINDS = ("attention", "MLP")
"""The half-blocks of a layer, in their order."""


_MOVES = {
    "angle": (
        "Angle moved by {}",
        "Dotted: a step along the geodesic to what {} suggests, by the mean of α. Above it, rates "
        "differ a lot: a few large ones move the state more than their mean would.",
    ),
    "from_slerp": (
        "How far {}'s step ends from SLERP's",
        "The angle between the step after {} and SLERP's with the same α, to compare with the "
        "angle moved: the paper finds that LERP approximates SLERP.",
    ),
    "off_geodesic": (
        "How far {}'s step leaves the geodesic",
        "The angle to the great circle through the state and what {} suggests: 0 if α were one "
        "number, so all of it comes from coordinates with rates of their own.",
    ),
}
"""Title and caption for each number about moves; a GPT has only the first."""


def path(several: Several) -> Chapter:
    """How the states of tokens move with depth, and what they would predict, on average."""
    sphere = [(m, r) for m, r in several if m.path.moves[0].at_mean_alpha is not None]
    pictures = [
        _of_kind(shown, kind, field)
        for field in _MOVES
        if (shown := several if field == "angle" else sphere)
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
    return Chapter(
        "path",
        "The path of a text",
        "Means over the tokens of the text; single tokens are below. The paper has no such "
        "pictures: on the sphere, distances between states of different depths mean the same.",
        pictures,
    )


def _of_kind(several: Several, kind: str, field: str) -> Picture:
    """One number by layer for the half-blocks of one kind, since attention and MLP differ too much
    to share a curve. The angle moved comes with that of a step at the mean of α."""
    title, caption = _MOVES[field]
    place = KINDS.index(kind)
    lines = []
    for m, role in several:
        moves = m.path.moves[place::2]
        lines.append(by_layer(m, role, [mean_of(getattr(move, field)) for move in moves]))
        if field == "angle" and moves[0].at_mean_alpha is not None:
            at_mean = [mean_of(move.at_mean_alpha or ()) for move in moves]
            lines.append(dotted("mean α", role, at_mean))
    called = "the MLP" if kind == "MLP" else kind
    chart = chart_of(slug(field, kind), title.format(called), LAYERS, Axis("degrees"), lines)
    return Picture(chart, caption.format(called))


def _reading(several: Several, field: str, title: str, unit: str, caption: str) -> Picture:
    lines = [
        by_depth(m, r, [mean_of(getattr(reading, field)) for reading in m.path.readings])
        for m, r in several
    ]
    return Picture(chart_of(slug(field), title, DEPTHS, Axis(unit), lines), caption)


def attribution(several: Several) -> Chapter:
    """What each half-block contributes to the logits, and how long its contribution lasts."""
    shown = [(m, r, m.attribution) for m, r in several if m.attribution is not None]
    if not shown:
        return Chapter("attribution", "", "", [])
    lives = [by_depth(m, r, a.half_lives) for m, r, a in shown]
    errors = "; ".join(f"{m.label} {a.largest_error:.1g}" for m, _, a in shown)
    embedding = "; ".join(f"{m.label} {mean_of(a.contributions[0]):.2g}" for m, _, a in shown)
    told = {
        "attention": f"What each attention contributed to the logit of the token that came next, "
        f"on average. The embedding itself: {embedding}.",
        "MLP": "What each MLP contributed. Embedding, attention and MLPs sum to the logit; the "
        f"largest difference from the model's own: {errors}.",
    }
    pictures = [
        Picture(
            chart_of(
                slug("contributions", kind),
                f"The target's logit: from {'the MLP' if kind == 'MLP' else kind}",
                LAYERS,
                Axis("mean contribution"),
                [
                    by_layer(m, r, [mean_of(part) for part in a.contributions[1 + place :: 2]])
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
                chart_of(
                    "half-life",
                    "Half-life of a contribution",
                    DEPTHS,
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
        "the block's output times known factors, so the last state is a sum with one term per "
        "half-block. GPT's is the plain sum, passed through its last norm.",
        pictures,
    )


_OPERANDS = {
    "q, k, v": ("qkv", "what attention reads"),
    "q kᵀ": ("q", "q"),
    "softmax v": ("v", "v"),
    "W_o": ("o", "what W_o is given"),
    "u, ν": ("u", "what the MLP reads"),
    "W_oMLP": ("o-mlp", "what W_oMLP is given"),
}
"""A name for the picture, and what the inputs of each product are."""


def bounds(several: Several) -> Chapter:
    """The largest input of each product by layer, with the limit that no text can exceed."""
    pictures = []
    for place, first in enumerate(several[0][0].bounds):
        if first.product not in _OPERANDS:  # the logits have one product for all layers
            continue
        lines = []
        for m, role in several:
            each = m.bounds[place]
            lines.append(by_layer(m, role, each.inputs))
            if each.input_limit is not None:
                lines.append(level("limit", role, each.input_limit, m.n_layers))
        name, called = _OPERANDS[first.product]
        chart = chart_of(
            f"operand-{name}",
            f"Largest number in {called}",
            LAYERS,
            Axis("magnitude", log=True),
            lines,
        )
        told = f"Look for growth with depth: {called} has a limit only on the sphere (dotted)."
        pictures.append(Picture(chart, told))
    return Chapter(
        "bounds",
        "How large operands become",
        "The largest magnitude in each product's operands on this text. On the sphere no text can "
        "exceed the limit, so eight-bit products need no scales measured on data; a GPT's inputs "
        "have no limit. The paper has no such picture.",
        pictures,
    )
