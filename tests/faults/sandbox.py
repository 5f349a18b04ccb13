"""A folder of good and bad things for the table of bad inputs, made without training."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np

from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.hf.export import export_to_hf
from tests.corpus import sentences
from tests.saved_runs import byte_model, write_run

DEEP = 100_000
"""Brackets inside each other: far beyond what a parser's stack holds."""


def build(root: Path) -> None:
    """Fill `root`; the rows of the table name what is here, relative to it."""
    _texts(root)
    _data(root)
    _models(root)
    _tokenizers(root)
    _configs(root)
    _tasks(root)
    (root / "empty").mkdir()
    (root / "full").mkdir()
    (root / "full" / "mine.txt").write_text("mine\n")
    os.symlink("nowhere", root / "dangling")
    os.symlink("loop", root / "loop")
    (root / "[red]folder").mkdir()


def listing(root: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below `root` with its mode, and files with their size and time of change.

    A folder that was held and let go again (`folders.owner`) has another time and is the same.
    """
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            about = os.lstat(path)
            content = (0, 0) if name in folders else (about.st_size, about.st_mtime_ns)
            found[path] = (*content, about.st_mode)
    return found


def _texts(root: Path) -> None:
    (root / "text.txt").write_text(sentences(400))
    (root / "nothing.txt").write_text("")
    (root / "binary.txt").write_bytes(b"\xff\xfe\x00\x80" * 20)
    (root / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (root / "torn.txt.gz").write_bytes(gzip.compress(b"hello " * 1000)[:40])
    (root / "not.txt.gz").write_text("no gzip at all")
    (root / "not.txt.xz").write_text("no xz at all")
    (root / "not.txt.bz2").write_text("no bz2 at all")
    (root / "not.parquet").write_text("no parquet at all")
    (root / "odd.bin").write_bytes(b"\x00\x01\x02")
    (root / "nothing.bin").write_bytes(b"")
    (root / "tokens.bin").write_bytes(np.arange(300, dtype="<u2").tobytes())
    (root / "words.jsonl").write_text('{"text": "a"}\nnot json\n')
    (root / "list.jsonl").write_text("[1, 2]\n")
    (root / "number.jsonl").write_text('{"text": 3}\n')
    (root / "other.jsonl").write_text('{"content": "a"}\n')
    (root / "deep.jsonl").write_text("[" * DEEP + "\n")
    (root / "digits.jsonl").write_text('{"text": ' + "9" * 5000 + "}\n")
    (root / "books").mkdir()
    (root / "books" / "one.txt").write_text(sentences(100))
    (root / "short").mkdir()
    (root / "short" / "one.txt").write_text("short")
    (root / "bad books").mkdir()
    (root / "bad books" / "one.txt").write_bytes(b"\xff" * 200)
    (root / "no texts").mkdir()
    (root / "no texts" / "picture.png").write_bytes(b"\x89PNG")


def _data(root: Path) -> None:
    settings = {"workers": 1}
    text = (str(root / "text.txt"),)
    prepare(PrepareConfig(text, root / "data", val_fraction=0.2, **settings))
    prepare(PrepareConfig(text, root / "bpe", train_tokenizer=280, val_fraction=0.2, **settings))
    prepare(PrepareConfig(text, root / "without val", val_fraction=0.0, **settings))
    for name, content in {
        "list": "[1]",
        "object": "{}",
        "number": "3",
        "deep": "[" * DEEP,
        "binary": None,
        "version": '{"format": "spherelm dataset", "version": 99}',
    }.items():
        folder = root / f"data {name}"
        shutil.copytree(root / "data", folder)
        manifest = folder / "dataset.json"
        manifest.write_bytes(b"\xff\xfe") if content is None else manifest.write_text(content)
    half = root / "data half"
    shutil.copytree(root / "data", half)
    (half / "dataset.json").unlink()
    short = root / "data short"
    shutil.copytree(root / "data", short)
    tokens = short / "train-00000.tokens"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    flipped = root / "data flipped"
    shutil.copytree(root / "data", flipped)
    tokens = flipped / "train-00000.tokens"
    content = bytearray(tokens.read_bytes())
    content[7] ^= 1
    tokens.write_bytes(content)
    nano = root / "nanogpt"
    nano.mkdir()
    for split in ("train", "val"):
        np.arange(5000, dtype="<u2").tofile(nano / f"{split}.bin")


def _models(root: Path) -> None:
    write_run(root / "run", byte_model())
    write_run(root / "gpt", byte_model(arch="gpt"))
    bpe = write_run(root / "bpe run", byte_model(vocab_size=280))
    shutil.rmtree(bpe / "tokenizer")
    load_tokenizer(root / "bpe" / "tokenizer").save(bpe / "tokenizer")
    write_run(root / "[bold]run", byte_model())
    export_to_hf(root / "run", root / "hf")
    export_to_hf(root / "run", root / "folded", fold=True)
    untold = root / "run without tokenizer"
    shutil.copytree(root / "bpe run", untold)
    shutil.rmtree(untold / "tokenizer")
    young = root / "run without checkpoint"
    shutil.copytree(root / "run", young)
    shutil.rmtree(young / "checkpoints")
    for name, content in {"list": "[1]", "deep": "[" * DEEP, "words": "not json"}.items():
        damaged = root / f"run {name}"
        shutil.copytree(root / "run", damaged)
        next(damaged.glob("checkpoints/*/manifest.json")).write_text(content)
        export = root / f"hf {name}"
        shutil.copytree(root / "hf", export)
        (export / "config.json").write_text(content)
    torn = root / "run torn"
    shutil.copytree(root / "run", torn)
    weights = next(torn.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    torn = root / "hf torn"
    shutil.copytree(root / "hf", torn)
    (torn / "model.safetensors").write_bytes(b"no weights")
    bare = root / "hf bare"
    shutil.copytree(root / "hf", bare)
    (bare / "model.safetensors").unlink()
    (bare / "spherelm.json").unlink()


def _tokenizers(root: Path) -> None:
    folder = root / "tokenizers"
    folder.mkdir()
    (folder / "words.json").write_text("not json")
    (folder / "list.json").write_text("[1]")
    (folder / "deep.json").write_text("[" * DEEP)
    (folder / "binary.json").write_bytes(b"\xff\xfe")
    (folder / "bad.model").write_bytes(b"no sentencepiece")
    (folder / "encoder.json").write_text("{}")
    (folder / "vocab.bpe").write_text("#version: 0.2\nx y z\n")
    good = json.loads((root / "bpe" / "tokenizer" / "tokenizer.json").read_text())
    endless = {**good, "added_tokens": []}
    endless["model"] = {**good["model"], "vocab": {"a": 0, "b": 1}, "merges": []}
    (folder / "endless.json").write_text(json.dumps(endless))
    (folder / "empty").mkdir()
    torn = folder / "torn"
    shutil.copytree(root / "bpe" / "tokenizer", torn)
    (torn / "spherelm-tokenizer.json").write_text("[" * DEEP)


def _configs(root: Path) -> None:
    folder = root / "configs"
    folder.mkdir()
    for name, content in {
        "words": "this is no toml",
        "open": "[model\n",
        "tensor": "[parallel]\ntensor = 2\n",  # a good one, but not for one device
        "key": "[model]\nd_modle = 3\n",
        "section": "[modle]\nd_model = 3\n",
        "type": '[model]\nd_model = "wide"\n',
        "table": "[train.steps]\na = 1\n",
        "number": "model = 3\n",
        "bool": "[train]\nsteps = true\n",
        "float": "[train]\nsteps = 2.5\n",
        "nan": "[optim]\nlr = nan\n",
        "date": "[train]\nsteps = 1979-05-27\n",
        "huge": f"[train]\nsteps = {10**30}\n",
        "digits": f"[train]\nsteps = {'9' * 5000}\n",
        "deep": "a = " + "[" * DEEP,
        "tables": "a = " + '{"b" = ' * 5000,
        "twice": "[train]\nsteps = 3\nsteps = 4\n",
        "path": "[data]\npath = 3\n",
        "null": '[data]\npath = "a\\u0000b"\n',
        "scale": "[model]\ns_z = 3\n",
        "mode": '[model.s_z]\nmode = "loud"\n',
    }.items():
        (folder / f"{name}.toml").write_text(content)
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")


def _tasks(root: Path) -> None:
    for name, content in {
        "words": "not json\n",
        "list": "[1]\n",
        "deep": "[" * DEEP + "\n",
        "fields": '{"txt": "a"}\n',
        "type": '{"text": 3}\n',
        "nothing": "",
    }.items():
        folder = root / f"tasks {name}"
        folder.mkdir()
        (folder / "lambada_test.jsonl").write_text(content)
    (root / "tasks binary").mkdir()
    (root / "tasks binary" / "lambada_test.jsonl").write_bytes(b"\xff\xfe\n")
    (root / "tasks wsc").mkdir()
    (root / "tasks wsc" / "wsc273.txt").write_text("one line\n\n")
    (root / "tasks wmt").mkdir()
    (root / "tasks wmt" / "newstest2014.fra").write_text("un\ndeux\n")
    (root / "tasks wmt" / "newstest2014.eng").write_text("one\n")
    (root / "scores").mkdir()
    (root / "scores" / "answers.jsonl").write_text("[" * DEEP + "\n")
