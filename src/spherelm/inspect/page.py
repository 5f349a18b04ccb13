"""`index.html`: the insides of one or several models on one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from spherelm.inspect import explorer, neuron_charts, neurons, text_charts, weight_charts
from spherelm.inspect.insides import Insides
from spherelm.inspect.picture import Chapter, coloured
from spherelm.plots.page import Named, Part, data_element, document, pictures, table

SHORT = {
    "conditions": "Condition numbers",
    "layer": "One layer",
    "factors": "Factors",
    "path": "Path of a text",
    "attribution": "Logits",
    "directions": "Neurons",
    "bounds": "Operands",
}
"""Shorter chapter titles for the contents."""


def render(models: Sequence[Insides], text: str) -> str:
    """The page as HTML; `text` says what the models read."""
    title = f"Inside {_listed([model.label for model in models])}"
    lead = (
        f'<p class="quiet">What the networks look like after training, and what they do with '
        f"{escape(text)}. Point at a picture for its values.</p>"
    )
    scripts = (
        data_element("paths", explorer.data_of(models))
        + data_element("rows", neurons.data_of(models))
        + f"<script>{explorer.SCRIPT}</script>\n<script>{neurons.SCRIPT}</script>\n"
    )
    style = explorer.STYLE + neurons.STYLE
    return document(title, title, lead, _parts(models), style, scripts)


def _parts(models: Sequence[Insides]) -> Iterator[Part]:
    yield Part("models", "The models", _models(models), "Models")
    below = {"directions": neurons.CONTENT, "bounds": _bounds(models)}
    for chapter in chapters_of(models):
        if chapter.name == "directions":
            yield Part("explorer-part", "One token's path", EXPLORER)
        content = f"<p>{escape(chapter.paper)}</p>\n{pictures(chapter.pictures)}"
        content += below.get(chapter.name, "")
        yield Part(chapter.name, chapter.title, content, SHORT.get(chapter.name))


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


def _models(models: Sequence[Insides]) -> str:
    names = ("", "parameters", "layers", "width", "tokenizer", "loss on the text", "from")
    rows = [
        (
            Named(m.label, role),
            f"{m.parameters:,}",
            str(m.n_layers),
            str(m.d_model),
            m.tokenizer,
            f"{m.loss:.3f}",
            m.run,
        )
        for m, role in coloured(models)
    ]
    return table(names, rows, stacked=True)


EXPLORER = (
    "<p>Choose a token of the text (arrow keys go on from there) to see how each half-block moves "
    "it, how near it comes to the next token, what the network would predict at each depth, and "
    "where the next token's logit comes from. The greener a token, the surer the first model was "
    "of the next one.</p>\n"
    "<noscript><p>This part needs the few lines of script in this file.</p></noscript>\n"
    '<div id="explorer"></div>'
)


def _bounds(models: Sequence[Insides]) -> str:
    rows = [
        (
            Named(m.label, role),
            each.product,
            f"{max(each.matrices):.3g}",
            f"{max(each.inputs):.3g}",
            "none" if each.input_limit is None else f"{each.input_limit:.3g}",
        )
        for m, role in coloured(models)
        for each in m.bounds
    ]
    head = ("", "product", "matrix", "input", "limit of the input")
    return "\n<h3>Over all layers</h3>\n" + table(head, rows)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
