"""Values under the pointer: the script and style included in every page with charts.

Pointing at a chart, touching it or moving through it with the arrow keys shows the values of all
its curves at that x. The script reads the data that `svg` wrote with each curve and loads nothing.
"""

from __future__ import annotations

STYLE = """
svg.chart { touch-action: pan-y; }
svg.chart:focus { outline: none; }
svg.chart:focus-visible { outline: 2px solid var(--quiet); outline-offset: 2px; }
svg.chart .hover-line { stroke: var(--quiet); stroke-width: 1; }
svg.chart .hover-dot { fill: var(--card); stroke-width: 2.5; }
.tip {
  position: fixed; z-index: 3; pointer-events: none; max-width: min(20rem, 90vw);
  background: var(--card); color: var(--text); border: 1px solid var(--quiet);
  border-radius: .4rem; padding: .35rem .6rem; font-size: .85rem; line-height: 1.4;
  font-variant-numeric: tabular-nums; box-shadow: 0 2px 8px rgb(0 0 0 / .25);
}
.tip[hidden] { display: none; }
.tip b { font-weight: 600; }
@media print { .tip { display: none; } }
"""

SCRIPT = r"""
"use strict";
{
  const NS = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let shown = null;  // the chart whose values are shown
  let at = 0;  // the x at which they are, in the chart's own units

  const written = v => typeof v !== "number" ? v
    : v !== 0 && (Math.abs(v) < 1e-4 || Math.abs(v) >= 1e9) ? v.toExponential(2)
    : v.toLocaleString("en-US", {maximumSignificantDigits: 4});

  // Every curve: where its points are drawn, and the values they stand for.
  const curves = chart => [...chart.querySelectorAll("polyline[data-values]")].map(line => ({
    line,
    places: line.getAttribute("points").trim().split(/\s+/).map(p => p.split(",").map(Number)),
    values: JSON.parse(line.dataset.values),
  }));

  const nearest = (places, x) => places.reduce((best, p, i) =>
    Math.abs(p[0] - x) < Math.abs(places[best][0] - x) ? i : best, 0);

  // Whether a curve has a value at x: x is not far beyond its ends.
  const covers = (places, x) =>
    x >= Math.min(...places.map(p => p[0])) - 8 && x <= Math.max(...places.map(p => p[0])) + 8;

  function hide() {
    if (shown) shown.querySelector(".hover").remove();
    shown = null;
    tip.hidden = true;
  }

  function show(chart, x) {
    const all = curves(chart).filter(c => c.places.length);
    if (!all.length) return;
    hide();
    const spots = all.flatMap(c => c.places.map(p => p[0]));
    at = spots.reduce((best, p) => Math.abs(p - x) < Math.abs(best - x) ? p : best, spots[0]);
    const group = document.createElementNS(NS, "g");
    group.setAttribute("class", "hover");
    const add = (kind, attributes) => {
      const element = document.createElementNS(NS, kind);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      group.append(element);
    };
    const {top, floor} = chart.dataset;
    add("line", {class: "hover-line", x1: at, x2: at, y1: top, y2: floor});
    tip.replaceChildren();
    const row = (colour, label, text) => {
      const line = document.createElement("div");
      if (colour) line.style.color = colour;
      const value = document.createElement("b");
      value.textContent = text;
      line.append(label, value);
      tip.append(line);
    };
    const here = all.filter(c => covers(c.places, at));
    const first = here[0].values[nearest(here[0].places, at)][0];
    row("", chart.dataset.x ? chart.dataset.x + ": " : "", written(first));
    for (const {line, places, values} of here) {
      const i = nearest(places, at), [, y, low, high] = values[i];
      const colour = line.dataset.colour || getComputedStyle(line).stroke;
      if (places[i][1] >= top - 6)
        add("circle", {class: "hover-dot", cx: places[i][0], cy: places[i][1], r: 5,
          style: "stroke: " + colour});
      row(colour, line.dataset.label + ": ", written(y) +
        (low === undefined ? "" : ` (${written(low)} to ${written(high)})`));
    }
    chart.append(group);
    shown = chart;
    tip.hidden = false;
    const area = chart.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const scale = area.width / chart.viewBox.baseVal.width, place = area.left + at * scale;
    const left = place + 14 + box.width > innerWidth - 8 ? place - 14 - box.width : place + 14;
    tip.style.left = Math.max(8, Math.min(left, innerWidth - box.width - 8)) + "px";
    // On a phone, above the chart: inside, the box would cover the curves.
    const over = innerWidth < 600 ? area.top - box.height - 2 : area.top + top * scale + 4;
    tip.style.top = Math.max(8, Math.min(over, innerHeight - box.height - 8)) + "px";
  }

  const point = event => {
    const chart = event.target.closest && event.target.closest("svg.chart");
    if (!chart) return hide();
    const area = chart.getBoundingClientRect();
    show(chart, (event.clientX - area.left) * chart.viewBox.baseVal.width / area.width);
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("scroll", hide, {passive: true});
  document.addEventListener("focusin", event => {
    if (!event.target.matches("svg.chart")) hide();
  });
  document.addEventListener("keydown", event => {
    const chart = document.activeElement, way = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (event.key === "Escape") return hide();
    if (!way || !chart || !chart.matches("svg.chart")) return;
    const spots = [...new Set(curves(chart).flatMap(c => c.places.map(p => p[0])))];
    spots.sort((a, b) => a - b);
    if (!spots.length) return;
    const next = way > 0 ? spots.find(x => x > at) : spots.findLast(x => x < at);
    show(chart, shown === chart ? next ?? at : spots[0]);
    event.preventDefault();
  });
  for (const chart of document.querySelectorAll("svg.chart")) chart.setAttribute("tabindex", "0");
}
"""
