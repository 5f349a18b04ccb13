"""A folder with what the commands of the documentation read: texts, data, trained models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.corpus import prepare_corpus, sentences
from tests.docs.pages import ROOT
from tests.eval.task_files import write_task_files
from tests.saved_runs import byte_model, write_run


def fill(folder: Path) -> None:
    """Everything that pages name and do not make themselves, but for `tokens`."""
    write_run(folder / "runs" / "ngpt", byte_model(n_layers=4))
    write_run(folder / "runs" / "gpt", byte_model(arch="gpt"))
    for name in ("a", "b"):
        shutil.copytree(ROOT / "tests" / "compat" / "ngpt", folder / "runs" / f"ngpt-{name}")
    documents = [f"Document {i} says that {i} is more than {i - 1}." for i in range(2000)]
    text = "\n<|endoftext|>\n".join(documents)
    files = {
        "corpus.txt": text,
        "held-out.txt": sentences(20, seed=1),
        "new.txt": sentences(2000),
        "notes.jsonl": json.dumps({"text": "a note"}),
        "prompts.txt": "one\ntwo\n",
        "story.txt": "Once upon a time\n",
        "text.txt": "some text " * 30,
        "texts/a.txt": sentences(2000, seed=2),
        "texts/b.txt": sentences(500, seed=3),
        "more/a.txt": sentences(2000, seed=4),
        "books/a.txt": "a long story " * 40,
        "gpt.toml": "",
        "ngpt.toml": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    pq.write_table(pa.table({"body": documents}), folder / "rows.parquet")
    write_task_files(folder / "tasks")
    shutil.copytree(ROOT / "docs" / "results", folder / "docs" / "results")


def add_tokens(folder: Path) -> None:
    """Prepared data in `tokens`."""
    (folder / "prepared").mkdir()
    prepare_corpus(folder / "prepared").rename(folder / "tokens")
