"""Small made-up task files in the form of the real ones."""

from __future__ import annotations

import json
from pathlib import Path

ARC = [
    {"id": "1", "question": "What is wet?", "choices": ["sand", "water", "fire"], "gold": 1},
    {"id": "2", "question": "Which is a tool?", "choices": ["a hammer", "rain"], "gold": 0},
    {"id": "3", "question": "Who barks?", "choices": ["cats", "dogs", "fish", "ants"], "gold": 1},
]
HELLASWAG = [
    {
        "activity_label": "Baking",
        "ctx_a": "A cook opens the oven.",
        "ctx_b": "she",
        "endings": ["takes out bread.", "swims [step] away.", "sings.", "paints a wall."],
        "label": "0",
    },
    {
        "activity_label": "Rowing",
        "ctx_a": "Two people sit in a boat.",
        "ctx_b": "they",
        "endings": ["eat the boat.", "fly.", "begin to row.", "read the sea."],
        "label": "2",
    },
]
WINOGRANDE = [
    {
        "sentence": "The jug did not fit the bag because _ was big.",
        "option1": "jug",
        "option2": "bag",
        "answer": "1",
    },
    {
        "sentence": "Ada thanked Eve since _ had helped.",
        "option1": "Ada",
        "option2": "Eve",
        "answer": "2",
    },
]
WSC = """The dog chased the cat because  [MASK]  was angry.
[MASK]
The dog , The cat
The dog

The man asked the boy to lift  [MASK]  arms .
[MASK]
 The man ,The boy
The boy

The cup hit the plate. [MASK] broke.
[MASK]
The plate, The cup
The plate
"""
LAMBADA = [{"text": "She opened the door and saw the cat"}, {"text": "xy a"}]
FRENCH = [f"phrase {i}" for i in range(7)]
ENGLISH = ["a;b!c?d", "a;b!c?e", *(f"sentence {i}" for i in range(5))]


def write_task_files(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (
        ("arc_easy_test.jsonl", ARC),
        ("hellaswag_val.jsonl", HELLASWAG),
        ("winogrande_xl_dev.jsonl", WINOGRANDE),
        ("lambada_test.jsonl", LAMBADA),
    ):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "wsc273.txt").write_text(WSC)
    (folder / "newstest2014.fra").write_text("\n".join(FRENCH) + "\n")
    (folder / "newstest2014.eng").write_text("\n".join(ENGLISH) + "\n")
    return folder
