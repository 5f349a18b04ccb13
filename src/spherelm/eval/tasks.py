"""The paper's tasks: five scored by accuracy, with no examples in the prompt, and one translation.

Prompts, metrics and the format of questions are those of lm-evaluation-harness. Questions can also
be read from local files:

arc_easy_test.jsonl        id, question, choices (list of texts), gold (index)
hellaswag_val.jsonl        as on the hub
winogrande_xl_dev.jsonl    as on the hub
wsc273.txt                 per question four lines and a blank one: sentence with [MASK], the word
                           [MASK], candidates separated by a comma, the right one
lambada_test.jsonl         text
newstest2014.fra, .eng     a sentence on each line
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm.errors import UserError, nearest
from spherelm.eval.texts import read_text

Example = dict[str, Any]

NO_HARNESS = "the tasks need lm-evaluation-harness: pip install 'spherelm[eval]'"
MASK = "[MASK]"
HALF = re.compile("[\ud800-\udfff]")
"""Half of a character (a lone surrogate)."""
WSC_NOUNS = frozenset(
    {"arms", "back", "bassinet", "bathroom", "bishop", "boyfriend", "bunk", "chest", "toy"}
    | {"concentration", "education", "empty", "legs", "place", "shoulders", "silence", "turn"}
    | {"will"}
)
"""Words that, after a hidden pronoun, show it to be possessive, so that candidates get an 's."""


def _arc_easy(folder: Path) -> Iterator[Example]:
    file = folder / "arc_easy_test.jsonl"
    for where, row in _json_examples(file, question=str, choices=list, gold=int):
        choices, gold = row["choices"], row["gold"]
        if not 0 <= gold < len(choices):
            raise UserError(f"{where}: gold must be the index of a choice, not {gold}")
        labels = [chr(ord("A") + i) for i in range(len(choices))]
        asked = {"text": choices, "label": labels}
        yield {"question": row["question"], "choices": asked, "answerKey": labels[gold]}


def _hellaswag(folder: Path) -> Iterator[Example]:
    kinds = {"activity_label": str, "ctx_a": str, "ctx_b": str, "endings": list, "label": str}
    for where, row in _json_examples(folder / "hellaswag_val.jsonl", **kinds):
        if row["label"] not in map(str, range(len(row["endings"]))):
            raise UserError(f"{where}: label must be the index of an ending, not {row['label']!r}")
        yield row


def _winogrande(folder: Path) -> Iterator[Example]:
    kinds = dict.fromkeys(("sentence", "option1", "option2", "answer"), str)
    for where, row in _json_examples(folder / "winogrande_xl_dev.jsonl", **kinds):
        options = row["option1"] and row["option2"]
        if "_" not in row["sentence"] or not options or row["answer"] not in ("1", "2"):
            raise UserError(
                f"{where}: a sentence needs a blank (_), two options, and the answer 1 or 2"
            )
        yield row


def _wsc273(folder: Path) -> Iterator[Example]:
    file = folder / "wsc273.txt"
    numbered = enumerate(_lines(file), 1)
    for blank, group in itertools.groupby(numbered, lambda line: not line[1].strip()):
        if blank:
            continue
        numbers, lines = zip(*group, strict=True)
        where = f"{file} line {numbers[0]}"
        if len(lines) != 4:
            raise UserError(f"{where}: a schema has 4 lines before a blank one, not {len(lines)}")
        sentence, _, candidates, answer = lines
        options = [option.strip() for option in candidates.split(",")]
        if MASK not in sentence or len(options) != 2 or answer.strip() not in options:
            raise UserError(
                f"{where}: a schema needs {MASK} in its sentence, two candidates divided by a "
                "comma, and one of them as the answer"
            )
        yield _schema(sentence, options, options.index(answer.strip()))


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


def _lambada(folder: Path) -> Iterator[Example]:
    for _, row in _json_examples(folder / "lambada_test.jsonl", text=str):
        yield row


def _wmt14(folder: Path) -> Iterator[Example]:
    french, english = (_lines(folder / f"newstest2014.{language}") for language in ("fra", "eng"))
    if len(french) != len(english):
        raise UserError(
            f"{folder}: newstest2014.fra has {len(french)} lines, newstest2014.eng {len(english)}"
        )
    for fr, en in zip(french, english, strict=True):
        yield {"translation": {"fr": fr, "en": en}}


def _lines(file: Path) -> list[str]:
    lines = read_text(file, "task file").removesuffix("\n").split("\n")
    if lines == [""]:
        raise UserError(f"the task file {file} is empty")
    return [line.removesuffix("\r") for line in lines]


def _json_examples(file: Path, **kinds: type) -> Iterator[tuple[str, Example]]:
    """The position of each line, and its fields with the names and types of `kinds`.

    A list must hold non-empty texts, because the harness looks at how they begin. JSON can also
    spell a lone surrogate, which no tokenizer accepts.
    """
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
            for text in row[name] if kind is list else ():
                if not isinstance(text, str) or not text:
                    raise UserError(f"{where}: {text!r} in {name} is not a text")
        asked = {name: row[name] for name in kinds}
        if HALF.search(json.dumps(asked, ensure_ascii=False)):
            raise UserError(f"{where} holds half a character, which is not UTF-8")
        yield where, asked


@dataclass(frozen=True)
class PaperTask:
    """A task of lm-evaluation-harness as the paper uses it."""

    name: str
    title: str
    metric: str
    folder: str
    """The task's folder in the harness."""
    split: str
    """The part of the data with the questions."""
    reader: Callable[[Path], Iterator[Example]]
    shots: int = 0
    """Examples in the prompt."""

    def read(self, folder: Path) -> list[Example]:
        """The questions in the files of `folder`; an error names the file and line."""
        return list(self.reader(folder))


PAPER_TASKS = (
    PaperTask("arc_easy", "ARC-Easy", "acc", "arc", "test", _arc_easy),
    PaperTask("hellaswag", "HellaSwag", "acc", "hellaswag", "validation", _hellaswag),
    PaperTask("winogrande", "WinoGrande", "acc", "winogrande", "validation", _winogrande),
    PaperTask("wsc273", "WSC273", "acc", "wsc273", "test", _wsc273),
    PaperTask("lambada_openai", "LAMBADA", "acc", "lambada", "test", _lambada),
    PaperTask("wmt14-fr-en", "WMT14 fr-en", "bleu", "translation", "test", _wmt14, shots=5),
)
ACCURACY = tuple(task for task in PAPER_TASKS if task.metric == "acc")
"""The tasks in the paper's average accuracy."""
AVERAGED = tuple(task.name for task in ACCURACY)


def average_of(scores: Mapping[str, float]) -> float | None:
    """The paper's average accuracy over five tasks; None unless all of them are there."""
    if not set(AVERAGED) <= scores.keys():
        return None
    return sum(scores[name] for name in AVERAGED) / len(AVERAGED)


def choose_tasks(names: str) -> tuple[PaperTask, ...]:
    """The tasks of a comma-separated list; `paper` means all of them."""
    known = {task.name: (task,) for task in PAPER_TASKS} | {"paper": PAPER_TASKS}
    chosen: list[PaperTask] = []
    for name in map(str.strip, names.split(",")):
        if name not in known:
            raise UserError(f"there is no task {name!r}; {nearest(name, known)}")
        chosen += known[name]
    return tuple(dict.fromkeys(chosen))
