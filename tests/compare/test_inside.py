"""The page of insides that a comparison leaves, and when it leaves none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spherelm.compare.inside import look_inside_both
from spherelm.data.open import open_dataset
from tests.corpus import prepare_corpus
from tests.saved_runs import byte_model, write_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for arch in ("gpt", "ngpt"):
        write_run(tmp_path / "out" / arch, byte_model(arch=arch))
    return tmp_path / "out"


def test_both_models_are_on_one_page(out: Path, tmp_path: Path) -> None:
    dataset, said = open_dataset(prepare_corpus(tmp_path)), list[str]()
    assert look_inside_both(out, dataset, said.append) == "inside/index.html"
    assert said == ["looking inside GPT", "looking inside nGPT"]
    files = sorted(path.name for path in (out / "inside").iterdir())
    assert files == ["directions.json", "index.html", "inspect.json"]
    html = (out / "inside" / "index.html").read_text()
    assert "<h1>Inside GPT and nGPT</h1>" in html


def test_a_comparison_ends_without_it_where_it_cannot_be_made(out: Path, tmp_path: Path) -> None:
    dataset, said = open_dataset(prepare_corpus(tmp_path)), list[str]()
    broken = byte_model()
    broken.layers[0].mlp.W_u.data[0, 0] = float("nan")
    shutil.rmtree(out / "ngpt")
    write_run(out / "ngpt", broken)
    assert look_inside_both(out, dataset, said.append) is None
    assert "insides is left out: ngpt: blocks.0.mlp.W_u holds numbers that are not" in said[-1]
    shutil.rmtree(out / "gpt" / "tokenizer")
    assert look_inside_both(out, dataset) is None
    assert not (out / "inside").exists()
