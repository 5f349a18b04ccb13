"""A model's answers saved on disk one by one, so that an evaluation can resume where it stopped.

The file has sealed JSON lines (see `records`): a line names a model, and each line after it holds a
question's digest and that model's answer, until another model is named. A line cut short when the
process was killed is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections import UserDict
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.errors import UserError, or_say


class Journal(UserDict[str, Any]):
    """One model's answers by the digest of the question; with a file, they outlive the process.

    The file may also hold answers of other models, which are kept.
    """

    def __init__(self, file: Path | None = None, model: str = "") -> None:
        super().__init__()
        self._file = None
        if file is None:
            return
        answers = _by_model(file)
        self.data = answers.pop(model, {})
        lines: list[dict[str, Any]] = []
        for each, known in (*answers.items(), (model, self.data)):  # ours last, to append to it
            lines += [{"model": each}, *({"question": q, "answer": a} for q, a in known.items())]
        durable.write_text(file, "".join(map(records.line, lines)))
        # Line-buffered, so each line reaches the operating system at once; close() closes it.
        self._file = open(file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def __setitem__(self, question: str, answer: Any) -> None:
        super().__setitem__(question, answer)
        if self._file is not None:
            self._file.write(records.line({"question": question, "answer": answer}))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def digest(question: tuple[Any, ...]) -> str:
    """A question's key in the journal."""
    return hashlib.blake2b(json.dumps(question).encode(), digest_size=16).hexdigest()


def _by_model(file: Path) -> dict[str, dict[str, Any]]:
    """All answers in the file, by model and question."""
    found: dict[str, dict[str, Any]] = {}
    model = ""
    for line in _whole_lines(file):
        if "model" in line:
            model = records.field(line, "model", str, file)
        else:
            question = records.field(line, "question", str, file)
            found.setdefault(model, {})[question] = line.get("answer")
    return found


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    try:
        with or_say(f"cannot read {file}"):
            complete = file.read_bytes().split(b"\n")[:-1]
        return [records.parse(line, file) for line in complete]
    except records.Damaged:
        raise UserError(f"{file} is damaged; remove it to begin again") from None
