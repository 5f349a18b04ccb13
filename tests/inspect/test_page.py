"""The page: from two small runs to a browser that clicks on a token."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import re
import shutil
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from spherelm.cli import main
from spherelm.data.open import open_builtin, open_dataset
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.folders.kinds import INSPECT, stranger
from spherelm.hf.export import export_to_hf
from spherelm.inspect.insides import look_inside, texts_of
from spherelm.inspect.page import render
from spherelm.inspect.picture import short_labels
from spherelm.plots import png
from tests.browser import Page, browser
from tests.compare.test_report import Tags
from tests.corpus import prepare_corpus
from tests.model.tiny import VARIANTS
from tests.saved_runs import byte_model, write_run

TEXT = '<b>Le théâtre</b> & the sphere\'s "way"\n\tturn by turn.\n' * 3
"""With what could break a page: marks of HTML, a letter of two bytes, white space."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT, an nGPT, and the look inside both in `out`."""
    folder = tmp_path_factory.mktemp("inspect")
    write_run(folder / "gpt", byte_model(arch="gpt"))
    write_run(folder / "ngpt", byte_model(n_layers=3))
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        drawn = png.write
        patch.setattr(png, "write", lambda charts, place: drawn(charts[:2], place))  # 0.1 s each
        assert inspect(folder, "gpt", "ngpt", "--out", "out", "--text", "text.txt") == 0
    return folder


def inspect(folder: Path, *words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return main(["inspect", *words, "--device", "cpu"])


def test_everything_is_written_and_known(folder: Path) -> None:
    out = folder / "out"
    assert stranger(out, INSPECT) is None
    pictures = {path.name for path in (out / "pictures").iterdir()}
    assert {"input-norms.svg", "condition-w-q.svg", "factor-alpha-attn.svg"} <= pictures
    assert {
        "angle-attention.svg",
        "contributions-mlp.svg",
        "half-life.svg",
        "histogram-s-z.svg",
    } <= pictures
    for path in (out / "pictures").glob("*.svg"):
        ElementTree.parse(path)


def test_json_holds_all_numbers(folder: Path) -> None:
    gpt, ngpt = json.loads((folder / "out" / "inspect.json").read_text())["models"]
    all_rows = json.loads((folder / "out" / "directions.json").read_text())
    assert (gpt["label"], ngpt["label"]) == ("GPT", "nGPT")
    assert (gpt["layer"], ngpt["layer"]) == (2, 3)
    assert gpt["factors"] == []
    assert len(ngpt["conditions"][0]["by_layer"]) == 3
    assert len(gpt["conditions"][0]["rows_normalized"]) == 2
    assert ngpt["path"]["tokens"] == list(TEXT.encode()[:64])  # as many as its context has
    assert ngpt["path"]["targets"] == list(TEXT.encode()[1:65])
    for model in (gpt, ngpt):
        sums = torch.tensor(model["attribution"]["contributions"]).sum(0)
        logits = torch.tensor(model["attribution"]["logits"])
        torch.testing.assert_close(sums, logits, rtol=0, atol=1e-5)
        shape = (model["n_layers"], 48, 5)  # of each of the two matrices
        rows = next(r for r in all_rows if r["label"] == model["label"])
        assert len(rows["directions"]) == len(model["directions"]) == 2 * shape[0]
        assert {(len(d["tokens"]), len(d["cosines"][0])) for d in rows["directions"]} == {shape[1:]}
        assert set(map(str, rows["directions"][0]["tokens"][0])) <= set(rows["texts"])


def test_the_page_is_whole(folder: Path) -> None:
    html = (folder / "out" / "index.html").read_text(encoding="utf-8")
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    for anchor in re.findall(r'href="#([^"]+)"', html):
        assert html.count(f'id="{anchor}"') == 1
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert html.count("<figure>") == html.count("<figcaption>") >= 36


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    with browser(folder / "profile") as page:
        page.open(folder / "out" / "index.html")
        yield page


def test_the_browser_has_nothing_to_say_and_asks_for_nothing(page: Page, folder: Path) -> None:
    page.run("1")
    assert page.errors == []
    assert page.requests == [(folder / "out" / "index.html").as_uri()]


def test_choosing_a_token_changes_the_picture(page: Page) -> None:
    assert page.run("document.querySelectorAll('.tokens').length") == 1  # shared by both models
    assert page.run("document.querySelectorAll('.panel').length") == 2

    def shown() -> list[str]:
        return page.run("[...document.querySelectorAll('.panel')].map(p => p.innerHTML)")

    page.run("document.querySelector('[data-token=\"0\"]').click()")
    before = shown()
    page.run("document.querySelector('[data-token=\"1\"]').click()")
    after = shown()
    assert all(one != other for one, other in zip(before, after, strict=True))
    pressed = "document.querySelector('.tokens [aria-pressed=\"true\"]')"
    assert page.run(f"{pressed}.textContent") == "b"
    assert "comes <code>&gt;</code>" in after[0]  # the text's own marks are no marks of the page
    assert page.run("document.querySelectorAll('.panel')[1].querySelectorAll('svg').length") == 4
    page.run(f"{pressed}.focus()")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
    assert page.run(f"{pressed}.dataset.token") == "2"
    assert page.errors == []


def test_the_likeliest_tokens_at_each_depth_are_all_in_sight(page: Page) -> None:
    """A number may stand below its token: on one line the last ones were cut off."""
    page.size(1280)
    longer = "document.querySelectorAll('.panel td span:first-child').forEach(e => "
    page.run(longer + "{ e.textContent = '⟨214⟩⟨2' })")
    rows = "[...document.querySelectorAll('.panel .scroll')]"
    assert page.run(rows + ".map(e => e.scrollWidth - e.clientWidth)") == [0, 0]


def test_neurons_of_another_layer_and_near_a_token(page: Page, folder: Path) -> None:
    rows = json.loads((folder / "out" / "directions.json").read_text())[1]
    tables = "[...document.querySelectorAll('#neurons h3')].map(h => h.textContent)"
    assert page.run(tables) == ["GPT, layer 2", "nGPT, layer 2"]

    def choose(layer: int) -> None:
        page.run(
            f"(c => {{ c.value = {layer}; c.dispatchEvent(new Event('change')); }})"
            "(document.getElementById('neuron-layer'))"
        )

    choose(3)  # which the GPT does not have
    assert "not compared" in page.run("document.querySelector('#neurons').textContent")
    shown = page.run(
        "[...document.querySelectorAll('#neurons table')].map(t => "
        "[...t.querySelectorAll('tbody tr')].map(r => [+r.cells[0].textContent, "
        "r.querySelector('code').textContent, +r.querySelector('.quiet').textContent]))"
    )
    wanted = [d for d in rows["directions"] if d["layer"] == 3]
    for table, direction in zip(shown, wanted, strict=True):
        cosines = [row[0] for row in direction["cosines"]]
        assert [cosine for *_, cosine in table] == pytest.approx(
            sorted(cosines, reverse=True)[: len(table)], abs=0.006
        )
        for row, token, _ in table:
            assert token == rows["texts"][str(direction["tokens"][row][0])]
    token = shown[0][0][1]
    page.run(
        f"(f => {{ f.value = {json.dumps(token)}; f.dispatchEvent(new Event('input')); }})"
        "(document.getElementById('neuron-token'))"
    )
    found = page.run("[...document.querySelectorAll('#neurons mark')].map(m => m.textContent)")
    assert found
    assert all(token in each for each in found)
    assert page.errors == []


def test_an_export_alone_and_the_numbers_on_stdout(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    export_to_hf(folder / "ngpt", folder / "hf")
    capsys.readouterr()
    words = ("hf", "--out", "alone", "--text", "text.txt", "--tokens", "5", "--layer", "1")
    assert inspect(folder, *words, "--json") == 0
    said = capsys.readouterr()
    (model,) = json.loads(said.out)["models"]
    both = json.loads((folder / "out" / "inspect.json").read_text())["models"]
    assert model["conditions"] == both[1]["conditions"]
    assert len(model["path"]["tokens"]) == 5
    assert "hf: condition numbers" in said.err
    assert png.NO_MATPLOTLIB in said.err


def test_a_text_may_be_all_that_is_evaluated_on(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder "is a directory", a compressed file "not a text in UTF-8": eval reads both."""
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    text = "Vectors of length one."
    (folder / "texts").mkdir()
    (folder / "texts" / "a.txt").write_text(text)
    line = json.dumps({"body": text}).encode()
    (folder / "texts.jsonl.gz").write_bytes(gzip.compress(line))
    paths = []
    for name in ("texts", "texts.jsonl.gz", "texts/a.txt"):
        words = ("--text", name, "--field", "body", "--tokens", "9")
        assert inspect(folder, "ngpt", "--out", "any", *words) == 0
        result = json.loads((folder / "any" / "inspect.json").read_text())
        assert result["text"] == f"the beginning of {Path(name).name}"
        paths.append(result["models"][0]["path"]["tokens"])
    assert len(paths[0]) == 9
    assert paths[0] == paths[1] == paths[2]


def test_of_a_long_text_the_beginning_alone_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it was held in memory: what comes last would have ended the call."""
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    long = "Vectors of length one.\n" * 40_000
    paths = []
    for separator in ("", "<|endoftext|>\n"):
        beginning = long if not separator else long[:23]
        (folder / "long.txt").write_bytes((beginning + separator + long).encode() + b"\xff")
        assert inspect(folder, "ngpt", "--out", "any", "--text", "long.txt", "--tokens", "9") == 0
        result = json.loads((folder / "any" / "inspect.json").read_text())
        paths.append(result["models"][0]["path"]["tokens"])
    assert len(paths[0]) == 9
    assert paths[0] == paths[1]


def test_the_table_has_medians_over_layers(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    monkeypatch.setenv("COLUMNS", "100")
    assert inspect(folder, "gpt", "ngpt", "--out", "table", "--text", "text.txt") == 0
    shown = capsys.readouterr().out
    assert "on the beginning of text.txt" in shown.splitlines()[0]
    models = json.loads((folder / "table" / "inspect.json").read_text())["models"]
    for place, name in enumerate(("W_q", "W_k", "W_v", "W_o", "W_u", "W_nu", "W_o_mlp")):
        # Of an even number of layers, GPT's two, the middle between two numbers.
        values = (statistics.median(m["conditions"][place]["by_layer"]) for m in models)
        cells = " │ +".join(rf"{value:,.3g}" for value in values)
        assert re.search(rf"condition of {name}, median over layers +│ +{cells} │", shown)
    s_z = next(f for f in models[1]["factors"] if f["name"] == "s_z")["all_layers"]["mean"]
    assert re.search(rf"mean s_z +│ +│ +{s_z:.3g} │", shown)


def test_without_a_text_the_built_in_corpus_is_read_and_nothing_old_remains(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    assert inspect(folder, "ngpt", "--out", "again", "--text", "text.txt") == 0
    assert (folder / "again" / "pictures" / "histogram-s-z.svg").exists()
    assert inspect(folder, "gpt", "--out", "again", "--tokens", "20") == 0
    assert not (folder / "again" / "pictures" / "histogram-s-z.svg").exists()  # a GPT has no s_z
    result = json.loads((folder / "again" / "inspect.json").read_text())
    assert result["text"] == "validation text of the built-in corpus"
    assert len(result["models"][0]["path"]["tokens"]) == 20


def test_without_a_text_models_read_of_the_data_that_all_of_them_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "write", lambda charts, place: None)
    monkeypatch.chdir(tmp_path)
    data = prepare_corpus(tmp_path)
    assert (
        main(["train", "--preset", "ngpt-debug", "--data", "data", "--steps", "2", "--out", "mine"])
        == 0
    )
    write_run(tmp_path / "other", byte_model(arch="gpt"))

    def read(*runs: str) -> tuple[str, list[int]]:
        assert inspect(tmp_path, *runs, "--out", "read", "--tokens", "20") == 0
        result = json.loads((tmp_path / "read" / "inspect.json").read_text())
        return result["text"], result["models"][0]["path"]["tokens"]

    held_out = open_dataset(data).val.shards[0].tokens[:20].tolist()
    built_in = open_builtin().val.shards[0].tokens[:20].tolist()
    assert read("mine") == ("validation text of data", held_out)
    assert read("mine", "other") == ("validation text of the built-in corpus", built_in)
    data.rename(tmp_path / "elsewhere")
    assert read("mine") == ("validation text of the built-in corpus", built_in)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--out new", "inspect needs at least one run"),
        ("gpt gpt --out new", "gpt is named twice"),
        ("gpt ngpt --out new --layer 3", "--layer must be from 1 to 2, the layers of gpt, not 3"),
        ("gpt --out new --tokens 0", "--tokens must be a whole number of at least 1"),
        ("gpt --out gpt/x", "lies inside the input gpt"),
        ("gpt --out ngpt", "holds"),
        ("gpt --out new --text nowhere.txt", "cannot read nowhere.txt"),
        ("gpt --out new --text one.txt", "fewer than two tokens"),
        ("gpt --out new --text none.txt", "none.txt is empty; name one that has something in it"),
        ("gpt --out new --text one.bin", "tokens, not text; give the text that they were made"),
        ("nan --out new", "blocks.0.mlp.W_u holds numbers that are not finite"),
    ],
)
def test_mistakes_end_in_one_line(
    folder: Path, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one.txt").write_text("x")
    (folder / "none.txt").touch()
    if not (folder / "nan").exists():
        broken = byte_model(arch="gpt")
        broken.layers[0].mlp.W_u.data[0, 0] = float("nan")
        write_run(folder / "nan", broken)
    assert inspect(folder, *words.split()) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (folder / "new").exists()


@pytest.mark.parametrize("fields", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_has_a_page(fields: dict[str, Any]) -> None:
    """Also with one layer, and read to the end of a short context."""
    model = byte_model(**{**fields, "n_layers": 1, "context": 6})
    found = look_inside(model, ByteTokenizer(), TEXT, run="a run", label="it")
    html = render([found], "a text")
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert len(found.path.tokens) == 6
    assert math.isfinite(found.loss)
    assert found.attribution is not None
    json.dumps(found.as_json(), allow_nan=False)


def test_the_loss_is_the_models_own_however_large_it_is() -> None:
    model = byte_model()
    ids = torch.tensor(list(TEXT.encode()[:65]))[None]
    for factor in (1.0, 40.0):  # at a temperature at which most of what comes has no chance
        with torch.no_grad():
            model.s_z.stored.mul_(factor)  # type: ignore[union-attr]
            own = float(model.loss(ids[:, :-1], ids[:, 1:]))
        found = look_inside(model, ByteTokenizer(), TEXT, run="a run", label="it")
        assert found.loss == pytest.approx(own, rel=1e-4)
    assert own > 15


def test_no_token_can_end_the_script() -> None:
    found = look_inside(byte_model(), ByteTokenizer(), TEXT, run="a run", label="it")
    evil = dict.fromkeys(found.texts, "</script><!-- <script>")
    html = render([dataclasses.replace(found, texts=evil)], "a text")
    assert html.count("</script>") == html.count("<script") == 5


def test_tokens_are_shown_so_that_one_can_see_them() -> None:
    shown = texts_of(ByteTokenizer(), [10, 32, 65, 7, 200, 256, 300])
    assert list(shown.values()) == ["⟨0x7⟩", "⏎", "␣", "A", "⟨200⟩", "⟨end⟩", "⟨300⟩"]


def test_short_names() -> None:
    assert short_labels(["gpt", "ngpt"], ["runs/a", "runs/b"]) == ["GPT", "nGPT"]
    assert short_labels(["ngpt", "ngpt"], ["runs/a", "runs/b/checkpoints/step_7"]) == ["a", "b"]
    same = short_labels(["ngpt"] * 3, ["x/run", "y/run", "a-very-long-name-of-a-run"])
    assert same == ["run 1", "run 2", "a-very-long…"]


def test_more_models_than_colours_are_refused_before_any_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "0", byte_model())
    for number in range(1, 6):
        shutil.copytree(tmp_path / "0", tmp_path / str(number))
    assert inspect(tmp_path, *["0", "1", "2", "3", "4", "5", "--out", "new"]) == 2
    said = capsys.readouterr().err
    assert "one page takes at most 6 models, 5 where all are GPT or all nGPT, not 6" in said
    assert "reading" not in said
