"""The part of the page that shows one token's path: its data and a short script.

The script uses only data in the page; token texts are escaped before they become HTML. Its pictures
show their values on hover, as those of `plots.svg` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spherelm.inspect.insides import Insides
from spherelm.inspect.picture import coloured


def data_of(models: Sequence[Insides]) -> list[dict[str, Any]]:
    """The paths of all tokens."""
    return [_model(m, role) for m, role in coloured(models)]


def _model(m: Insides, role: str) -> dict[str, Any]:
    """One row per token, in the form that the script reads."""
    path = m.path
    on_sphere = path.moves[0].at_mean_alpha is not None
    return {
        "label": m.label,
        "role": role,
        "tokens": [m.texts[i] for i in path.tokens],
        "targets": [m.texts[i] for i in path.targets],
        "depths": path.depths,
        "angle": _by_token([move.angle for move in path.moves]),
        "at_mean": _by_token([move.at_mean_alpha or () for move in path.moves])
        if on_sphere
        else None,
        "alignment": _by_token([r.alignment for r in path.readings]),
        "entropy": _by_token([r.entropy for r in path.readings]),
        "target": _by_token([r.target_probability for r in path.readings]),
        "top": [
            [[[m.texts[i], _short(p)] for i, p in reading.top[t]] for reading in path.readings]
            for t in range(len(path.tokens))
        ],
        "parts": None if m.attribution is None else _by_token(m.attribution.contributions),
        "logits": None if m.attribution is None else [_short(z) for z in m.attribution.logits],
    }


def _by_token(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[_short(value) for value in column] for column in zip(*rows, strict=True)]


def _short(value: float) -> float:
    """Round to four digits, as precise as a picture."""
    return float(f"{value:.4g}")


STYLE = """
.tokens { font: .9rem/2 ui-monospace, "SF Mono", Menlo, Consolas, monospace; max-height: 15rem;
  overflow-y: auto; overflow-wrap: anywhere; border: 1px solid var(--grid); border-radius: .5rem;
  padding: .5rem .6rem; margin: .5rem 0 1rem; }
.tokens button { font: inherit; line-height: 1.35; color: inherit; border: 0; border-radius: .25rem;
  padding: .05em .18em; margin: 0 1px; cursor: pointer; white-space: pre-wrap;
  background: color-mix(in srgb, var(--fourth) calc(var(--sure) * 45%), transparent); }
.tokens button:hover { outline: 1px solid var(--quiet); }
.tokens button[aria-pressed="true"] { outline: 2px solid var(--text); font-weight: 700; }
.panel h3 { margin: .6rem 0 .2rem; }
.panel h4 { margin: 1rem 0 .1rem; font-size: .95rem; font-weight: 600; }
.panel svg.chart text { fill: var(--quiet); }
.panel .mark { stroke: var(--text); stroke-width: 2.5; }
.panel table { font-size: .85rem; }
.panel td, .panel th { padding: .2rem .5rem .2rem 0; }
.panel th, .panel td span { white-space: nowrap; }
.panel tbody th { color: var(--quiet); }
.panel .hit { font-weight: 700; text-decoration: underline; }
.panel details summary { cursor: pointer; margin-top: .75rem; }
@media print {
  .tokens { max-height: none; }
  .panel { break-inside: avoid; }
  .panel table { font-size: .7rem; }
  .panel td, .panel th { padding-right: .3rem; }
  .panel th, .panel td span { white-space: normal; }
}
"""

SCRIPT = r"""
"use strict";
{
const models = JSON.parse(document.getElementById("paths").textContent);
const safe = text => text.replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const percent = p => p < 0.0005 ? "&lt;0.1%" : (100 * p).toFixed(p < 0.1 ? 1 : 0) + "%";

// A picture: bars or a line, marks across bars; hovering reads the values of hidden curves.
function plot(names, values, role, options) {
  const W = 720, H = 240, right = 10, top = 12, bottom = 38;
  const all = values.concat(options.marks || [], [0]);
  let low = Math.min(...all), high = Math.max(...all);
  if (high === low) high = low + 1;
  const short = v => String(+v.toPrecision(2));
  const left = 20 + 14 * Math.max(4, short(low).length, short(high).length);
  const x = i => +(left + (i + 0.5) * (W - left - right) / values.length).toFixed(1);
  const y = v => +(top + (high - v) / (high - low) * (H - top - bottom)).toFixed(1);
  const wide = Math.max(2, 0.7 * (W - left - right) / values.length);
  const parts = [`<svg class="chart" viewBox="0 0 ${W} ${H}" role="img" tabindex="0" ` +
    `aria-label="${safe(options.label)}" data-top="${top}" data-floor="${H - bottom}">`];
  for (const v of new Set([low, 0, high])) {
    if (v === 0 && (y(0) > y(low) - 26 && low < 0 || y(0) < y(high) + 26 && high > 0)) continue;
    parts.push(`<line class="grid" x1="${left}" x2="${W - right}" y1="${y(v)}" y2="${y(v)}"/>`,
      `<text x="${left - 8}" y="${y(v) + 6}" text-anchor="end">${short(v)}</text>`);
  }
  parts.push(`<line class="grid" x1="${left}" x2="${W - right}" y1="${y(0)}" y2="${y(0)}"/>`);
  const curve = (label, numbers, colour, shown) => parts.push(
    `<polyline fill="none" stroke="${shown ? colour : "none"}" stroke-width="2.5" ` +
    `points="${numbers.map((v, i) => x(i) + "," + y(v)).join(" ")}" data-colour="${colour}" ` +
    `data-label="${safe(label)}" data-values="${safe(JSON.stringify(
      numbers.map((v, i) => [names[i], v])))}"/>`);
  values.forEach((v, i) => {
    parts.push(options.line
      ? `<circle cx="${x(i)}" cy="${y(v)}" r="4" fill="var(--${role})"/>`
      : `<rect x="${x(i) - wide / 2}" width="${wide}" y="${Math.min(y(v), y(0))}" ` +
        `height="${Math.max(1, Math.abs(y(v) - y(0)))}" fill="var(--${role})"/>`);
    if (options.marks) parts.push(`<line class="mark" x1="${x(i) - wide / 2}" ` +
      `x2="${x(i) + wide / 2}" y1="${y(options.marks[i])}" y2="${y(options.marks[i])}"/>`);
  });
  curve(options.label, values, `var(--${role})`, options.line);
  if (options.marks) curve("at the mean of α", options.marks, "var(--text)", false);
  parts.push(`<text x="${left}" y="${H - 8}">${safe(names[0])}</text>`,
    `<text x="${W - right}" y="${H - 8}" text-anchor="end">${safe(names.at(-1))}</text></svg>`);
  return parts.join("");
}

function panel(m, t) {
  const steps = m.depths.slice(1), last = m.top[t].at(-1);
  const hit = (token, p) => `<span class="${token === m.targets[t] ? "hit" : ""}">` +
    `${safe(token)}</span> <span class="quiet">${percent(p)}</span>`;
  const rows = m.depths.map((name, d) => `<tr><th scope="row">${safe(name)}</th>` +
    m.top[t][d].map(([token, p]) => `<td>${hit(token, p)}</td>`).join("") + "</tr>");
  const show = (title, picture) => `<h4>${title}</h4>${picture}`;
  return `<h3 class="${m.role}-name">${safe(m.label)}</h3>` +
    `<p>After <code>${safe(m.tokens[t])}</code> comes <code>${safe(m.targets[t])}</code>, ` +
    `to which the model gives ${percent(m.target[t].at(-1))}; its first choice is ` +
    `<code>${safe(last[0][0])}</code> with ${percent(last[0][1])}.</p>` +
    show("Angle moved, in degrees" + (m.at_mean ? " (line: at the mean of α)" : ""),
      plot(steps, m.angle[t], m.role,
        {label: "degrees", marks: m.at_mean && m.at_mean[t]})) +
    show("Alignment with the target's output embedding",
      plot(m.depths, m.alignment[t], m.role, {label: "cosine", line: true})) +
    show("Entropy of the prediction, in nats",
      plot(m.depths, m.entropy[t], m.role, {label: "nats", line: true})) +
    (m.parts ? show(`Contributions to the target's logit, ${m.logits[t].toFixed(2)}`,
      plot(m.depths, m.parts[t], m.role, {label: "contribution"})) : "") +
    `<details open><summary>What it would say at each depth</summary><div class="scroll">` +
    `<table><tbody>${rows.join("")}</tbody></table></div></details>`;
}

// Models that cut the text into the same tokens share one text to choose from.
const groups = new Map();
for (const m of models) {
  const key = JSON.stringify(m.tokens);
  groups.set(key, (groups.get(key) || []).concat(m));
}
const place = document.getElementById("explorer");
for (const members of groups.values()) {
  const [first] = members;
  const part = document.createElement("div");
  part.innerHTML = `<div class="tokens" role="group" aria-label="the text">` +
    first.tokens.map((token, t) => `<button type="button" data-token="${t}" ` +
      `style="--sure: ${first.target[t].at(-1)}" ` +
      `title="next: ${safe(first.targets[t])}, ${percent(first.target[t].at(-1))}">` +
      `${safe(token)}</button>${token.includes("⏎") ? "<br>" : ""}`).join("") +
    `</div><div class="pair">${members.map(() => '<div class="panel"></div>').join("")}</div>`;
  place.append(part);
  const buttons = [...part.querySelectorAll("button")];
  const panels = [...part.querySelectorAll(".panel")];
  const choose = t => {
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(i === t)));
    panels.forEach((p, i) => { p.innerHTML = panel(members[i], t); });
  };
  part.addEventListener("click", event => {
    const button = event.target.closest("button");
    if (button) choose(+button.dataset.token);
  });
  part.addEventListener("keydown", event => {
    const way = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    const at = buttons.indexOf(document.activeElement);
    if (!way || at < 0) return;
    const to = Math.min(buttons.length - 1, Math.max(0, at + way));
    buttons[to].focus();
    choose(to);
    event.preventDefault();
  });
  choose(Math.min(buttons.length - 1, Math.floor(buttons.length / 2)));
}
}
"""
