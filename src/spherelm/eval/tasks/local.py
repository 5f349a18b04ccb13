"""Task data from local files, in the form that lm-evaluation-harness expects from the hub.

arc_easy_test.jsonl        id, question, choices (list of texts), gold (index)
hellaswag_val.jsonl        as on the hub
winogrande_xl_dev.jsonl    as on the hub
wsc273.txt                 four lines and a blank one each: sentence with [MASK], the word
                           [MASK], candidates divided by a comma, the right one
lambada_test.jsonl         text
newstest2014.fra, .eng     a sentence on each line
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spherelm.errors import UserError

Example = dict[str, Any]
Splits = dict[str, list[Example]]

MASK = "[MASK]"
WSC_NOUNS = frozenset(
    {"arms", "back", "bassinet", "bathroom", "bishop", "boyfriend", "bunk", "chest", "toy"}
    | {"concentration", "education", "empty", "legs", "place", "shoulders", "silence", "turn"}
    | {"will"}
)
"""Words after a hidden pronoun that show it to be possessive: candidates there get an 's."""


def read_task(task: str, folder: Path) -> Splits:
    """The splits of a task from the files in `folder`; a mistake in them is named with its line."""
    return _READERS[task](folder)


def _arc_easy(folder: Path) -> Splits:
    rows = []
    file = folder / "arc_easy_test.jsonl"
    for where, row in _json_examples(file, question=str, choices=list, gold=int):
        choices, gold = row["choices"], row["gold"]
        if not 0 <= gold < len(choices):
            raise UserError(f"{where}: gold must be the index of a choice, not {gold}")
        labels = [chr(ord("A") + i) for i in range(len(choices))]
        asked = {"text": choices, "label": labels}
        rows.append({"question": row["question"], "choices": asked, "answerKey": labels[gold]})
    return {"test": rows}


def _hellaswag(folder: Path) -> Splits:
    kinds = {"activity_label": str, "ctx_a": str, "ctx_b": str, "endings": list, "label": str}
    examples = _json_examples(folder / "hellaswag_val.jsonl", **kinds)
    return {"validation": [example for _, example in examples]}


def _winogrande(folder: Path) -> Splits:
    rows = []
    kinds = dict.fromkeys(("sentence", "option1", "option2", "answer"), str)
    for where, row in _json_examples(folder / "winogrande_xl_dev.jsonl", **kinds):
        if "_" not in row["sentence"] or row["answer"] not in ("1", "2"):
            raise UserError(f"{where}: a sentence needs a blank (_) and the answer 1 or 2")
        rows.append(row)
    return {"validation": rows}


def _wsc273(folder: Path) -> Splits:
    file = folder / "wsc273.txt"
    rows = []
    for number, lines in _paragraphs(file):
        where = f"{file} line {number}"
        if len(lines) != 4:
            raise UserError(f"{where}: a schema has 4 lines before a blank one, not {len(lines)}")
        sentence, _, candidates, answer = lines
        options = [option.strip() for option in candidates.split(",")]
        if MASK not in sentence or len(options) != 2 or answer.strip() not in options:
            raise UserError(
                f"{where}: a schema needs {MASK} in its sentence, two candidates divided by a "
                "comma, and one of them as the answer"
            )
        rows.append(_schema(sentence, options, options.index(answer.strip())))
    return {"test": rows}


def _schema(sentence: str, options: list[str], label: int) -> Example:
    """A Winograd schema as on the hub, with a stand-in for the pronoun that [MASK] hides.

    The harness puts the candidates in the pronoun's place and scores what follows, so the pronoun
    itself is never seen; it only decides whether candidates get an 's.
    """
    sentence = re.sub(rf"{re.escape(MASK)}\s+([.,;!?])", rf"{MASK}\1", " ".join(sentence.split()))
    location = sentence.index(MASK)
    following = re.match(r"\W*(\w*)", sentence[location + len(MASK) :])
    possessive = following is not None and following[1] in WSC_NOUNS
    pronoun = "their" if possessive else "it"
    return {
        "text": sentence.replace(MASK, pronoun, 1),
        "pronoun": pronoun,
        "pronoun_loc": location,
        "options": options,
        "label": label,
    }


def _lambada(folder: Path) -> Splits:
    examples = _json_examples(folder / "lambada_test.jsonl", text=str)
    return {"test": [example for _, example in examples]}


def _wmt14(folder: Path) -> Splits:
    french, english = (_lines(folder / f"newstest2014.{language}") for language in ("fra", "eng"))
    if len(french) != len(english):
        raise UserError(
            f"{folder}: newstest2014.fra has {len(french)} lines, newstest2014.eng {len(english)}"
        )
    pairs = zip(french, english, strict=True)
    return {"test": [{"translation": {"fr": fr, "en": en}} for fr, en in pairs]}


_READERS: dict[str, Callable[[Path], Splits]] = {
    "arc_easy": _arc_easy,
    "hellaswag": _hellaswag,
    "winogrande": _winogrande,
    "wsc273": _wsc273,
    "lambada_openai": _lambada,
    "wmt14-fr-en": _wmt14,
}


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"cannot read the task file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not a text in UTF-8") from None
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise UserError(f"the task file {file} is empty")
    return lines


def _json_examples(file: Path, **kinds: type) -> Iterator[tuple[str, Example]]:
    """Where each line stands, and its fields of these names, each of the type asked for."""
    for number, line in enumerate(_lines(file), 1):
        where = f"{file} line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{where} is not a JSON object")
        for name, kind in kinds.items():
            if name not in row:
                raise UserError(f"{where} lacks the field {name!r}")
            if not isinstance(row[name], kind):
                raise UserError(f"{where}: {name} must be a {kind.__name__}, not {row[name]!r}")
        yield where, {name: row[name] for name in kinds}


def _paragraphs(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Groups of lines between blank ones, each with the number of its first line."""
    paragraph: list[str] = []
    for number, line in enumerate([*_lines(file), ""], 1):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield number - len(paragraph), paragraph
            paragraph = []
