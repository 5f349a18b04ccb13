"""What nGPT needs on other text: from the runs that the validation text chooses."""

from __future__ import annotations

import json
from pathlib import Path

from spherelm.paper.scaling import page
from spherelm.paper.scaling.point import Point
from tests.paper.test_scaling import LAW, made_up, tokens


def evaluated(results: Path, ends: dict[Point, float]) -> page.Data:
    """Runs whose bits per byte of a novel are by `LAW` those of so many tokens; on the validation
    text all of a budget end alike, but for rates other than the arm's, which end higher."""
    found = []
    for point, equal in ends.items():
        worse = 0.1 if point.lr else 0.0
        made_up(results / "data" / "scaling", point, LAW.loss(tokens(point.millions)) + worse)
        bits = LAW.loss(equal) / 3
        found.append({"run": f"runs/{point.id}", "text": "novel.txt", "bits_per_byte": bits})
    folder = results / "data" / "evaluations"
    folder.mkdir()
    (folder / "texts.json").write_text(json.dumps({"results": found}))
    return page.Data.read(results)


def shares(data: page.Data) -> list[list[str]]:
    text = str(data.sections()["texts"]).partition("for the bits per byte at which")[2]
    lines = text.partition("Every run")[0].splitlines()
    return [
        [cell.strip() for cell in line.split("|")[3:-1]]
        for line in lines
        if line.startswith("| 8x512")
    ]


def test_a_share_is_read_off_the_curve_of_the_text(tmp_path: Path) -> None:
    ends = {Point("gpt", d): tokens(d) for d in (46, 92, 184)}
    ends |= {Point("ngpt", d): 1.5 * tokens(d) for d in (46, 92, 184)}
    ends[Point("gpt-qk-muon", 92)] = 1.2 * tokens(92)  # one budget is an end, but no curve
    data = evaluated(tmp_path, ends)
    bits = [f"{LAW.loss(equal) / 3:.4f}" for equal in (tokens(184), 1.2 * tokens(92))]
    assert shares(data) == [
        ["novel", "GPT", "184M", bits[0], "nGPT", "123M", "0.67"],
        ["novel", "GPT, QK-norm, Muon", "92M", bits[1], "nGPT", "74M", "0.80"],
    ]
    chart = next(chart for chart in data.figures() if chart.name == "scaling-4k-novel")
    assert [line.label for line in chart.series] == ["GPT", "GPT, QK-norm, Muon", "nGPT"]
    assert [x for x, _ in chart.series[2].points] == [tokens(d) / 1e6 for d in (46, 92, 184)]
    section = str(data.sections()["texts"])
    title = "novel at the end of finished runs, 4k context"
    assert f"**{title}**\n\n![{title}](scaling-4k-novel.svg)" in section  # its title is seen


def test_the_text_does_not_choose_the_run(tmp_path: Path) -> None:
    """The second rate is far better on the novel, and worse on the validation text."""
    ends = {Point("gpt", 184): tokens(184)}
    ends |= {Point("ngpt", d): 1.5 * tokens(d) for d in (92, 184)}
    ends |= {Point("ngpt", d, lr=4e-3): 9.0 * tokens(d) for d in (92, 184)}
    ((*_, needed, share),) = shares(evaluated(tmp_path, ends))
    assert needed in ("122M", "123M", "124M", "125M", "126M")  # two budgets make a line
    assert 0.66 <= float(share) <= 0.69
