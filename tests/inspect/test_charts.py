"""Pictures show the numbers of planted networks, and those that JSON has."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from spherelm import Transformer
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.inspect import weight_charts
from spherelm.inspect.conditions import FullMatrix
from spherelm.inspect.distribution import distribution_of
from spherelm.inspect.insides import Insides, look_inside
from spherelm.inspect.page import chapters_of
from spherelm.inspect.picture import POINTS, distributions, ranked
from spherelm.plots.chart import Chart
from tests.saved_runs import byte_model


def planted() -> Transformer:
    """An nGPT of two layers whose second MLP reads and writes single tokens."""
    model = byte_model(n_layers=2)
    with torch.no_grad():
        rows = torch.arange(len(model.layers[1].mlp.W_u))
        model.layers[1].mlp.W_u.copy_(model.E_input[rows])
        model.layers[1].mlp.W_o_mlp.copy_(model.E_output[rows])  # type: ignore[index]
        alpha = model.layers[0].alpha_attn
        alpha.stored.mul_(0.2 / alpha().abs())
    return model


@pytest.fixture(scope="module")
def both() -> list[Insides]:
    models = {"GPT": byte_model(arch="gpt"), "nGPT": planted()}
    text = "the way of a token " * 8
    return [
        look_inside(model, ByteTokenizer(), text, run=label, label=label)
        for label, model in models.items()
    ]


@pytest.fixture(scope="module")
def charts(both: list[Insides]) -> dict[str, Chart]:
    return {p.chart.name: p.chart for chapter in chapters_of(both) for p in chapter.pictures}


def lines(chart: Chart) -> dict[str, Any]:
    return {line.label: [y for _, y in line.points] for line in chart.series}


def test_every_picture_has_a_name_of_its_own_and_a_sentence(both: list[Insides]) -> None:
    shown = [p for chapter in chapters_of(both) for p in chapter.pictures]
    assert len({p.chart.name for p in shown}) == len(shown) >= 50
    assert all(p.caption.endswith(".") and len(p.caption) > 30 for p in shown)
    assert all(chapter.paper for chapter in chapters_of(both))


@pytest.mark.parametrize("name", ["nearest-w-u", "nearest-w-o-mlp"])
def test_rows_that_are_tokens_are_at_one(charts: dict[str, Chart], name: str) -> None:
    series = {line.label: line for line in charts[name].series}
    assert series["nGPT"].points[1] == (2, pytest.approx(1.0))
    assert series["nGPT"].band[1][1:] == (pytest.approx(1.0), pytest.approx(1.0))
    assert 0.3 < series["nGPT"].points[0][1] < 0.8  # 257 tokens in 32 dimensions
    assert series["chance"].points[0][1] == pytest.approx(series["nGPT"].points[0][1], rel=0.2)


def test_operands_are_those_of_json(charts: dict[str, Chart], both: list[Insides]) -> None:
    products = {each.product: each for each in both[1].bounds}
    for name, product in (("operand-q", "q kᵀ"), ("operand-v", "softmax v"), ("operand-u", "u, ν")):
        found = lines(charts[name])
        assert found["nGPT"] == list(products[product].inputs)
        assert found["limit"] == [products[product].input_limit] * 2
        assert max(found["nGPT"]) <= found["limit"][0]


def test_alpha_is_the_planted_one(charts: dict[str, Chart], both: list[Insides]) -> None:
    assert lines(charts["factor-alpha-attn"])["nGPT"][0] == pytest.approx(0.2)
    (alpha, *_) = (f for f in both[1].factors if f.name == "alpha_attn")
    assert lines(charts["factor-alpha-attn"])["nGPT"] == list(alpha.means)


def test_the_dotted_line_is_gpts_with_its_rows_normalized(
    charts: dict[str, Chart], both: list[Insides]
) -> None:
    for place, name in enumerate(("condition-w-q", "condition-w-k")):
        plain, dotted, ngpt = charts[name].series
        assert (plain.label, dotted.label, ngpt.label) == ("GPT", "normalized", "nGPT")
        assert [dotted.dotted, plain.dotted, ngpt.dotted] == [True, False, False]
        assert [y for _, y in dotted.points] == list(
            both[0].conditions[place].rows_normalized or ()
        )


def test_of_each_embedding_is_told_what_the_paper_says_of_it(both: list[Insides]) -> None:
    """Of the eigenvalues of output embeddings it has a picture alone."""
    said = {p.chart.name: p.caption for chapter in chapters_of(both) for p in chapter.pictures}
    assert "GPT's input embeddings to have the higher condition" in said["input-eigenvalues"]
    assert "eigenvalues of output embeddings without comment" in said["output-eigenvalues"]


def test_singular_values_are_shown_by_rank_over_the_largest(
    charts: dict[str, Chart], both: list[Insides]
) -> None:
    for line, model in zip(charts["values-w-q"].series, both, strict=True):
        values = model.matrices[0].singular_values
        assert line.points[0] == (1, 1.0)
        assert line.points[-1] == (len(values), pytest.approx(values[-1] / values[0]))
    lost = FullMatrix("W_q", both[0].matrices[0].norms, (2.0, 1.0, 0.0))
    chapter = weight_charts.one_layer([(dataclasses.replace(both[0], matrices=[lost]), "gpt")])
    # What float64 cannot tell from 0 has a place on a logarithmic axis, too.
    assert lines(chapter.pictures[0].chart)["GPT"] == [1.0, 0.5, 1e-8]


def test_a_curve_of_many_values_keeps_its_ends() -> None:
    model = SimpleNamespace(label="a")
    points = ranked(model, "gpt", list(range(1000, 0, -1))).points  # type: ignore[arg-type]
    assert len(points) == POINTS
    assert (points[0], points[-1]) == ((1, 1000), (1000, 1))
    assert ranked(model, "gpt", [7.0]).points == [(1, 7.0)]  # type: ignore[arg-type]


def test_factors_have_a_deviation_around_them_and_their_middle_in_words(
    charts: dict[str, Chart], both: list[Insides]
) -> None:
    (s_u,) = (f for f in both[1].factors if f.name == "s_u")
    (line,) = charts["factor-s-u"].series
    ends = [(m - s, m + s) for m, s in zip(s_u.means, s_u.stds, strict=True)]
    assert [(low, high) for _, low, high in line.band] == ends
    every = distribution_of(torch.arange(1.0, 102.0))
    told = weight_charts._middle(every)
    assert told == "mean 51, 90% from 6 to 96"


def test_a_histogram_is_as_high_as_its_fullest_bin_and_ends_where_the_values_do() -> None:
    found = distribution_of(torch.tensor([0.0, 0.5, 0.5, 0.5, 1.0]), bins=10)
    (line,) = distributions("a", "A", "length", [("GPT", "gpt", found)]).series
    assert max(y for _, y in line.points) == 1.0
    assert [y for _, y in line.points if y] == pytest.approx([1 / 3, 1.0, 1 / 3])
    assert line.points[0] == (pytest.approx(-0.05), 0.0)
    assert line.points[-1] == (pytest.approx(1.05), 0.0)
