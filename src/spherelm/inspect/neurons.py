"""The part of the page that shows neurons as directions, by layer or near a given token.

The page holds each layer's rows that are nearest to any token; `directions.json` has all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spherelm.inspect.directions import Directions
from spherelm.inspect.insides import Insides
from spherelm.inspect.picture import coloured, symbol_of

CARRIED = 40
"""Rows per matrix in the page's data: those with the largest cosine to any token."""
SHOWN = 12
"""Rows of these that are shown at once."""


def data_of(models: Sequence[Insides]) -> list[dict[str, Any]]:
    """The rows in the page, with cosines in thousandths."""
    found = []
    for m, role in coloured(models):
        rows = [_rows(each) for each in m.directions]
        ids = sorted({i for each in rows for _, tokens, _ in each["rows"] for i in tokens})
        found.append(
            {
                "label": m.label,
                "role": role,
                "layer": m.layer,
                "texts": {i: m.texts[i] for i in ids},
                "matrices": rows,
            }
        )
    return found


def _rows(each: Directions) -> dict[str, Any]:
    strongest = each.strongest(CARRIED)
    tokens = each.tokens[strongest].tolist()
    cosines = (1000 * each.cosines[strongest]).round().int().tolist()
    return {
        "matrix": symbol_of(each.matrix),
        "embedding": each.embedding,
        "layer": each.layer,
        "rows": list(zip(strongest, tokens, cosines, strict=True)),
    }


CONTENT = f"""
<p>Every neuron of an MLP reads one direction, a row of W_u, and writes another, a row of W_oMLP.
Both live in the space of the embeddings, so their nearest tokens by cosine say what they are about.
Choose a layer, or look for a token: the page carries the {CARRIED} rows of each matrix that are
nearest to any token; directions.json beside it has every row.</p>
<noscript><p>This part needs the few lines of script in this file.</p></noscript>
<p class="choice"><label>Layer <select id="neuron-layer"></select></label>
<label>Token <input id="neuron-token" type="search" size="12" autocomplete="off"
spellcheck="false"></label></p>
<div id="neurons"></div>
"""

STYLE = """
.choice { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; }
.choice select, .choice input { font: inherit; color: var(--text); background: var(--page);
  border: 1px solid var(--quiet); border-radius: .35rem; padding: .15rem .4rem; max-width: 100%; }
.neurons { font-size: .85rem; }
.neurons th { white-space: nowrap; }
.neurons td span { white-space: nowrap; }
.neurons mark { background: none; color: inherit; font-weight: 700; text-decoration: underline; }
@media print { .choice { display: none; } }
"""

SCRIPT = (
    r"""
"use strict";
{
const models = JSON.parse(document.getElementById("rows").textContent);
const shown = """
    f"{SHOWN}"
    r""";
const safe = text => text.replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const place = document.getElementById("neurons");
const chooser = document.getElementById("neuron-layer");
const finder = document.getElementById("neuron-token");
const layers = [...new Set(models.flatMap(m => m.matrices.map(x => x.layer)))];
layers.sort((a, b) => a - b);
for (const layer of layers) chooser.add(new Option(layer, layer, false, layer === models[0].layer));

function near(m, tokens, cosines, wanted) {
  return tokens.map((id, i) => {
    const text = safe(m.texts[id]), hit = wanted !== "" && m.texts[id].includes(wanted);
    return `<span><code>${hit ? `<mark>${text}</mark>` : text}</code> ` +
      `<span class="quiet">${(cosines[i] / 1000).toFixed(2)}</span></span>`;
  }).join(", ");
}

function table(m, matrices, wanted) {
  const first = matrices[0];
  const found = matrices.flatMap(x => x.rows.map(([row, tokens, cosines]) =>
    ({layer: x.layer, row, tokens, cosines})));
  const rank = r => Math.max(...r.cosines.filter((c, i) => m.texts[r.tokens[i]].includes(wanted)));
  const kept = found.filter(r => rank(r) > -1e4).sort((a, b) => rank(b) - rank(a)).slice(0, shown);
  const rows = kept.map(r => `<tr><th scope="row">` +
    `${wanted === "" ? "" : `layer ${r.layer}: `}${r.row}</th>` +
    `<td>${near(m, r.tokens, r.cosines, wanted)}</td></tr>`).join("");
  return `<div class="scroll"><table class="neurons"><thead><tr>` +
    `<th scope="col">row of ${safe(first.matrix)}</th>` +
    `<th scope="col">nearest in ${safe(first.embedding)}</th></tr></thead><tbody>` +
    `${rows || '<tr><td colspan="2" class="quiet">none</td></tr>'}</tbody></table></div>`;
}

function show() {
  // Tokens show spaces as ␣, so a typed space must match that.
  const wanted = finder.value.replace(/ /g, "␣"), layer = +chooser.value;
  place.innerHTML = models.map(m => {
    const title = `<h3 class="${m.role}-name">${safe(m.label)}` +
      (wanted === "" ? `, layer ${layer}` : "") + "</h3>";
    const of = wanted === "" ? m.matrices.filter(x => x.layer === layer) : m.matrices;
    const kinds = [...new Set(of.map(x => x.matrix))];
    return title + (kinds.length ? `<div class="pair">${kinds.map(kind =>
      table(m, of.filter(x => x.matrix === kind), wanted)).join("")}</div>`
      : '<p class="quiet">The rows of this layer were not compared.</p>');
  }).join("");
}
chooser.addEventListener("change", () => { finder.value = ""; show(); });
finder.addEventListener("input", show);
show();
}
"""
)
