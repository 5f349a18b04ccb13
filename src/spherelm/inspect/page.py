"""`index.html`: the insides of one or several models on one page that asks for nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from spherelm.inspect import explorer
from spherelm.inspect.charts import chapters_of
from spherelm.inspect.insides import Insides
from spherelm.inspect.picture import Chapter, Picture, roles_of, symbol_of
from spherelm.plots import svg
from spherelm.plots.page import CLOSING, figure, opening

DIRECTIONS_SHOWN = 20
STYLE = (
    """
nav ol { columns: 16rem; margin: .25rem 0 0; padding-left: 1.4rem; }
nav a, .models a { color: inherit; }
h3 { font-size: 1rem; margin: 1rem 0 .35rem; }
.pictures { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.pictures svg.chart { font-size: 18px; }
.pictures figcaption { margin-top: .25rem; }
.pictures figure { break-inside: avoid; }
.models td, .models th, .bounds td, .bounds th { white-space: nowrap; }
.directions td { font-size: .85rem; }
.directions th, .directions td span { white-space: nowrap; }
.directions i { font-style: normal; }
section { scroll-margin-top: 1rem; }
@media (max-width: 600px) { .pictures svg.chart { font-size: 22px; } }
@media (max-width: 760px) { .pictures { grid-template-columns: minmax(0, 1fr); } }
@media print { .card { break-inside: auto; } }
"""
    + explorer.STYLE
)


def render(models: Sequence[Insides], text: str) -> str:
    """The page as HTML; `text` says what the models read."""
    return "\n".join(_page(models, text)) + "\n"


def _page(models: Sequence[Insides], text: str) -> Iterator[str]:
    title = f"Inside {_listed([model.label for model in models])}"
    chapters = chapters_of(models)
    yield opening(title, STYLE)
    yield f"<header>\n<h1>{escape(title)}</h1>"
    yield (
        f'<p class="quiet">What the networks look like after training, and what they do with '
        f"{escape(text)}. Point at a curve for its values.</p>\n</header>"
    )
    yield _card("models", "The models", "\n".join(_models(models)))
    others = [
        ("explorer-part", "One token's path"),
        ("directions", "Neurons as directions"),
        ("bounds", "How large operands become"),
    ]
    yield '<nav class="card" aria-label="contents">\n<h2>Contents</h2>\n<ol>'
    for name, called in [(c.name, c.title) for c in chapters] + others:
        yield f'<li><a href="#{name}">{escape(called)}</a></li>'
    yield "</ol>\n</nav>"
    for chapter in chapters:
        yield _card(chapter.name, chapter.title, "\n".join(_chapter(chapter)))
    yield _card("explorer-part", "One token's path", _explorer())
    yield _card("directions", "Neurons as directions", "\n".join(_directions(models)))
    yield _card("bounds", "How large operands become", "\n".join(_bounds(models)))
    yield f'<script type="application/json" id="paths">{explorer.data_of(models)}</script>'
    yield f"<script>{explorer.SCRIPT}</script>"
    yield CLOSING


def _models(models: Sequence[Insides]) -> Iterator[str]:
    names = ("", "parameters", "layers", "width", "tokenizer", "loss on the text", "from")
    yield '<div class="scroll"><table class="models">\n<thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in names)
    yield "</tr></thead>\n<tbody>"
    for m, role in zip(models, roles_of(models), strict=True):
        cells = (
            f"{m.parameters:,}",
            str(m.n_layers),
            str(m.d_model),
            m.tokenizer,
            f"{m.loss:.3f}",
            m.run,
        )
        name = f'<th scope="row" style="color: var(--{role})">{escape(m.label)}</th>'
        yield f"<tr>{name}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</tbody>\n</table></div>"


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f"<p>{escape(chapter.paper)}</p>"
    yield '<div class="pictures">'
    for picture in chapter.pictures:
        yield _picture(picture)
    yield "</div>"


def _picture(picture: Picture) -> str:
    title = f"<h3>{escape(picture.chart.title)}</h3>\n"
    return figure(title + svg.draw(picture.chart), picture.caption)


def _explorer() -> str:
    return (
        "<p>Choose a token of the text (arrow keys go on from there): how each half-block moves "
        "it, how near it comes to what follows, what the network would say at each depth, and "
        "where the logit of what follows comes from. The greener a token, the surer the first "
        "model was of what follows it.</p>\n"
        "<noscript><p>This part needs the few lines of script in this file.</p></noscript>\n"
        '<div id="explorer"></div>'
    )


def _directions(models: Sequence[Insides]) -> Iterator[str]:
    yield (
        "<p>Every neuron of an MLP reads one direction, a row of W_u, and writes another, a row of "
        "W_oMLP. Both live in the space of the embeddings, so their nearest tokens by cosine say "
        f"what they are about. Here the {DIRECTIONS_SHOWN} nearest to any token; inspect.json has "
        "all of the layer.</p>"
    )
    for m in models:
        chance = math.sqrt(2 * math.log(max(2, m.embeddings[0].tokens)) / m.d_model)
        yield f"<h3>{escape(m.label)}, layer {m.layer}</h3>"
        yield (
            f'<p class="quiet">The nearest of {m.embeddings[0].tokens:,} tokens in random '
            f"directions would have a cosine of about {min(chance, 1):.2f}.</p>"
        )
        yield '<div class="pair">'
        for each in m.directions:
            yield '<div class="scroll"><table class="directions">\n<thead><tr>'
            matrix = symbol_of(each.matrix)
            yield f'<th scope="col">row of {matrix}</th><th scope="col">nearest in '
            yield f"{each.embedding}</th></tr></thead>\n<tbody>"
            for row in each.strongest(DIRECTIONS_SHOWN):
                near = ", ".join(
                    f'<span><code>{escape(m.texts[i])}</code> <i class="quiet">{c:.2f}</i></span>'
                    for i, c in zip(each.tokens[row], each.cosines[row], strict=True)
                )
                yield f'<tr><th scope="row">{row}</th><td>{near}</td></tr>'
            yield "</tbody>\n</table></div>"
        yield "</div>"


def _bounds(models: Sequence[Insides]) -> Iterator[str]:
    yield (
        "<p>The largest magnitude in each product's operands, over all layers, on this text. On "
        "the sphere no text can exceed the limit, so eight-bit products need no scales measured on "
        "data; a GPT's inputs have no limit.</p>"
    )
    yield '<div class="scroll"><table class="bounds">\n<thead><tr>'
    for name in ("", "product", "matrix", "input", "limit of the input"):
        yield f'<th scope="col">{name}</th>'
    yield "</tr></thead>\n<tbody>"
    for m, role in zip(models, roles_of(models), strict=True):
        for each in m.bounds:
            limit = "none" if each.input_limit is None else f"{each.input_limit:.3g}"
            cells = (each.product, f"{max(each.matrices):.3g}", f"{max(each.inputs):.3g}", limit)
            name = f'<th scope="row" style="color: var(--{role})">{escape(m.label)}</th>'
            yield f"<tr>{name}{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</tbody>\n</table></div>"


def _card(name: str, title: str, content: str) -> str:
    return f'<section class="card" id="{name}">\n<h2>{escape(title)}</h2>\n{content}\n</section>'


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
