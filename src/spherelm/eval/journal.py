"""Answers of a model kept on disk as they come, so that an evaluation can go on where it stopped.

A file of sealed JSON lines (see `records`): the first names the model, each other one holds a
question's digest and its answer. A line that a kill cut short is dropped.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.errors import UserError


class Journal:
    """A dictionary of answers; with a file, it survives the process."""

    def __init__(self, file: Path | None = None, model: str = "") -> None:
        self._answers: dict[str, Any] = {}
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
        self._answers = {
            records.field(line, "question", str, file): line.get("answer") for line in whole[1:]
        }
        lines = [head, *({"question": q, "answer": a} for q, a in self._answers.items())]
        durable.write_text(file, "".join(map(records.line, lines)))
        # Closed by close(); until then each line goes to the operating system as it is written.
        self._file = open(file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def get(self, *question: Any) -> Any:
        """The answer to a question that was asked before, else None."""
        return self._answers.get(_digest(question))

    def put(self, answer: Any, *question: Any) -> None:
        """Keep the answer to a question."""
        key = _digest(question)
        self._answers[key] = answer
        if self._file is not None:
            self._file.write(records.line({"question": key, "answer": answer}))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _digest(question: tuple[Any, ...]) -> str:
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
