"""Answers of a model kept on disk as they come, so that an evaluation can go on where it stopped.

A file of sealed JSON lines (see `records`): the first names the model, each other one holds a
question's digest and its answer. A line that a kill cut short is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections import UserDict
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.errors import UserError


class Journal(UserDict[str, Any]):
    """Answers by the digest of their question; with a file, they survive the process."""

    def __init__(self, file: Path | None = None, model: str = "") -> None:
        super().__init__()
        self._file = None
        if file is None:
            return
        head = {"model": model}
        whole = _whole_lines(file)
        if whole and whole[0] != head:
            raise UserError(
                f"{file} holds answers of another model ({whole[0].get('model')}); "
                "remove it or choose another --out"
            )
        self.data = {
            records.field(line, "question", str, file): line.get("answer") for line in whole[1:]
        }
        lines = [head, *({"question": q, "answer": a} for q, a in self.items())]
        durable.write_text(file, "".join(map(records.line, lines)))
        # Closed by close(); until then each line goes to the operating system as it is written.
        self._file = open(file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def __setitem__(self, question: str, answer: Any) -> None:
        super().__setitem__(question, answer)
        if self._file is not None:
            self._file.write(records.line({"question": question, "answer": answer}))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def digest(question: tuple[Any, ...]) -> str:
    """What a question is known by."""
    return hashlib.blake2b(json.dumps(question).encode(), digest_size=16).hexdigest()


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    try:
        complete = file.read_bytes().split(b"\n")[:-1]
        return [records.parse(line, file) for line in complete]
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except records.Damaged:
        raise UserError(f"{file} is damaged; remove it to begin again") from None
