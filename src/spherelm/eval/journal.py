"""Answers of a model kept on disk as they come, so that an evaluation can go on where it stopped.

A file of JSON lines: the first names the model, each other one holds a question's digest and its
answer. A line that a kill cut short is dropped.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

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
        self._answers = {line["question"]: line["answer"] for line in whole[1:]}
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [head, *({"question": q, "answer": a} for q, a in self._answers.items())]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        self._file = open(file, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, *question: Any) -> Any:
        """The answer to a question that was asked before, else None."""
        return self._answers.get(_digest(question))

    def put(self, answer: Any, *question: Any) -> None:
        """Keep the answer to a question."""
        key = _digest(question)
        self._answers[key] = answer
        if self._file is not None:
            self._file.write(json.dumps({"question": key, "answer": answer}) + "\n")

    def flush(self) -> None:
        """Hand what was kept to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _digest(question: tuple[Any, ...]) -> str:
    return hashlib.blake2b(json.dumps(question).encode(), digest_size=16).hexdigest()


def _whole_lines(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    try:
        complete = file.read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in complete]
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{file} is damaged; remove it to begin again") from None
