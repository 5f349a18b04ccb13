"""Local task files become what the harness expects from the hub; mistakes in them are named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spherelm.errors import UserError
from spherelm.eval.tasks import PAPER_TASKS, Example, choose_tasks
from tests.eval.task_files import HELLASWAG, write_task_files


def read_task(name: str, folder: Path) -> list[Example]:
    (task,) = choose_tasks(name)
    return task.read(folder)


def test_every_paper_task_can_be_read(tmp_path: Path) -> None:
    folder = write_task_files(tmp_path)
    sizes = {task.name: {task.split: len(task.read(folder))} for task in PAPER_TASKS}
    assert sizes == {
        "arc_easy": {"test": 3},
        "hellaswag": {"validation": 2},
        "winogrande": {"validation": 2},
        "wsc273": {"test": 3},
        "lambada_openai": {"test": 2},
        "wmt14-fr-en": {"test": 7},
    }


def test_files_of_another_system_are_the_same_questions(tmp_path: Path) -> None:
    """With CRLF at the ends of lines, and a byte order mark."""
    folder, other = write_task_files(tmp_path / "here"), tmp_path / "there"
    other.mkdir()
    for file in folder.iterdir():
        content = file.read_bytes().replace(b"\n", b"\r\n")
        (other / file.name).write_bytes(b"\xef\xbb\xbf" + content)
    for task in PAPER_TASKS:
        assert task.read(other) == task.read(folder)


def test_arc_gets_letters(tmp_path: Path) -> None:
    row = read_task("arc_easy", write_task_files(tmp_path))[0]
    assert row["choices"] == {"text": ["sand", "water", "fire"], "label": ["A", "B", "C"]}
    assert row["answerKey"] == "B"


def test_winograd_schemas_get_a_pronoun_and_its_place(tmp_path: Path) -> None:
    first, second, third = read_task("wsc273", write_task_files(tmp_path))
    assert first["text"] == "The dog chased the cat because it was angry."
    assert first["text"][first["pronoun_loc"] :].startswith("it was")
    assert (first["options"], first["label"]) == (["The dog", "The cat"], 0)
    assert second["pronoun"] == "their"  # a noun follows: candidates get an 's
    assert second["label"] == 1
    assert third["text"] == "The cup hit the plate. it broke."


def test_punctuation_after_a_pronoun_closes_up(tmp_path: Path) -> None:
    (tmp_path / "wsc273.txt").write_text("He saw  [MASK] .\n[MASK]\nA, B\nB\n")
    assert read_task("wsc273", tmp_path)[0]["text"] == "He saw it."


@pytest.mark.parametrize(
    ("task", "file", "content", "message"),
    [
        ("arc_easy", "arc_easy_test.jsonl", '{"question": "?", "choices": []}', "lacks .*'gold'"),
        (
            "arc_easy",
            "arc_easy_test.jsonl",
            '{"question": "?", "choices": ["a"], "gold": 1}',
            "gold must be the index of a choice, not 1",
        ),
        ("lambada_openai", "lambada_test.jsonl", '{"txt": "a b"}', "line 1 lacks .*'text'"),
        ("lambada_openai", "lambada_test.jsonl", '{"text": 3}', "text must be a str, not 3"),
        ("lambada_openai", "lambada_test.jsonl", "[]", "line 1 is not a JSON object"),
        ("lambada_openai", "lambada_test.jsonl", "", "is empty"),
        (
            "lambada_openai",
            "lambada_test.jsonl",
            r'{"text": "a \ud800"}',
            "line 1 holds half a char",
        ),
        (
            "arc_easy",
            "arc_easy_test.jsonl",
            '{"question": "?", "choices": ["a", 1], "gold": 0}',
            "line 1: 1 in choices is not a text",
        ),
        (
            "arc_easy",
            "arc_easy_test.jsonl",
            '{"question": "?", "choices": ["a", ""], "gold": 0}',
            "line 1: '' in choices is not a text",
        ),
        (
            "winogrande",
            "winogrande_xl_dev.jsonl",
            '{"sentence": "a _", "option1": "a", "option2": "", "answer": "1"}',
            "needs a blank .*, two options",
        ),
        ("hellaswag", "hellaswag_val.jsonl", '{"label": "0"}', "lacks the field 'activity_label'"),
        *(
            (
                "hellaswag",
                "hellaswag_val.jsonl",
                json.dumps({**HELLASWAG[0], "label": label}),
                f"label must be the index of an ending, not '{label}'",
            )
            for label in ("4", "-1", "")
        ),
        (
            "winogrande",
            "winogrande_xl_dev.jsonl",
            '{"sentence": "no blank", "option1": "a", "option2": "b", "answer": "1"}',
            "needs a blank",
        ),
        (
            "winogrande",
            "winogrande_xl_dev.jsonl",
            '{"sentence": "a _", "option1": "a", "option2": "b", "answer": "3"}',
            "the answer 1 or 2",
        ),
        ("wsc273", "wsc273.txt", "one\ntwo", "has 4 lines .* not 2"),
        ("wsc273", "wsc273.txt", "1 [MASK]\n[MASK]\na, b\na\n5", "has 4 lines .* not 5"),
        ("wsc273", "wsc273.txt", "x [MASK]\n[MASK]\na, b\nc", "one of them as the answer"),
        ("wmt14-fr-en", "newstest2014.fra", "un\ndeux", "has 2 lines, newstest2014.eng 7"),
    ],
)
def test_mistakes_are_named(
    task: str, file: str, content: str, message: str, tmp_path: Path
) -> None:
    folder = write_task_files(tmp_path)
    (folder / file).write_text(content)
    with pytest.raises(UserError, match=message):
        read_task(task, folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the task file .*wsc273\.txt"):
        read_task("wsc273", tmp_path)


def test_names_of_tasks() -> None:
    assert choose_tasks("paper") == PAPER_TASKS
    assert [t.name for t in choose_tasks("wsc273, arc_easy,wsc273")] == ["wsc273", "arc_easy"]
    with pytest.raises(UserError, match="did you mean 'hellaswag'"):
        choose_tasks("helaswag")


@pytest.mark.skipif("SPHERELM_EVAL_DATA" not in os.environ, reason="SPHERELM_EVAL_DATA is not set")
def test_the_real_files_have_the_published_sizes() -> None:
    folder = Path(os.environ["SPHERELM_EVAL_DATA"])
    sizes = [len(task.read(folder)) for task in PAPER_TASKS]
    assert sizes == [2376, 10042, 1267, 273, 5153, 3003]
    possessive = [r for r in read_task("wsc273", folder) if r["pronoun"] == "their"]
    assert len(possessive) == 24
    json.dumps(possessive)
