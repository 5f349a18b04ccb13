"""A small built-in set of questions in the format of the paper's tasks, for nano.

They are our own, few and easy, so that everything from a model to a table can run without a
download. They say nothing about a model: with ten questions a score moves in steps of a tenth.
"""

from __future__ import annotations

import json
from pathlib import Path

SOURCE = "a small built-in set of ten questions a task"

_ARC = (
    ("What do plants need to make food?", ("sunlight", "darkness", "sand", "noise"), 0),
    ("Which of these is a liquid at room temperature?", ("iron", "water", "oxygen", "wood"), 1),
    ("Which animal lays eggs?", ("cow", "dog", "hen", "horse"), 2),
    ("What causes day and night?", ("clouds", "the tides", "the wind", "the earth turning"), 3),
    ("Which tool measures temperature?", ("a thermometer", "a ruler", "a scale", "a clock"), 0),
    ("What happens to ice when it is heated?", ("it grows", "it melts", "it burns", "nothing"), 1),
    ("Which of these is a source of light?", ("the moon", "a mirror", "the sun", "a stone"), 2),
    ("What do lungs take in?", ("food", "blood", "water", "air"), 3),
    ("Which material does a magnet attract?", ("iron", "paper", "glass", "wool"), 0),
    ("Which season follows winter?", ("autumn", "spring", "summer", "winter"), 1),
)
_HELLASWAG = (
    ("Cooking", "A man cracks two eggs into a bowl.", "he", ("beats them with a fork.",
     "plants them in the garden.", "reads them aloud.", "throws the house away."), 0),
    ("Washing a car", "A woman fills a bucket with soapy water.", "she", ("drinks it slowly.",
     "scrubs the car with a sponge.", "sleeps on the roof.", "writes a letter to it."), 1),
    ("Swimming", "The children stand at the edge of the pool.", "they", ("fold the water.",
     "paint the sky.", "jump in together.", "eat the ladder."), 2),
    ("Reading", "A girl sits down with a thick book.", "she", ("wears it as a shoe.",
     "boils it.", "asks it to dance.", "opens it at the first page."), 3),
    ("Gardening", "He digs a small hole in the soil.", "he", ("puts a seed into it.",
     "calls it on the phone.", "sings it a tax form.", "drives through it to work."), 0),
    ("Painting a wall", "She dips a roller into the paint.", "she", ("combs her hair with it.",
     "rolls it over the wall.", "bakes it.", "mails it home."), 1),
    ("Playing chess", "Two friends set up the board.", "they", ("iron the pieces.",
     "swim across it.", "begin to play.", "plant a tree on it."), 2),
    ("Running", "The runners wait at the starting line.", "they", ("fall asleep for a year.",
     "become chairs.", "eat the stadium.", "start when they hear the signal."), 3),
    ("Making tea", "He pours hot water over the leaves.", "he", ("waits a few minutes.",
     "hammers them.", "folds the cup.", "sells the water to a fish."), 0),
    ("Packing", "She opens her suitcase on the bed.", "she", ("swims in it.",
     "puts her clothes into it.", "paints the bed blue with it.", "barks."), 1),
)  # fmt: skip
_PAIRS = (
    ("The trophy did not fit into the box because _ was too large.", "trophy", "box", 1),
    ("The trophy did not fit into the box because _ was too small.", "trophy", "box", 2),
    ("Anna asked Julia for help because _ was stuck.", "Anna", "Julia", 1),
    ("Anna thanked Julia because _ had helped.", "Anna", "Julia", 2),
    ("The ball broke the window because _ was heavy.", "ball", "window", 1),
    ("The ball broke the window because _ was thin.", "ball", "window", 2),
    ("The cat ran from the dog because _ was afraid.", "cat", "dog", 1),
    ("The cat ran from the dog because _ was angry.", "cat", "dog", 2),
    ("Tom lent Ben a pen because _ had two.", "Tom", "Ben", 1),
    ("Tom lent Ben a pen because _ had none.", "Tom", "Ben", 2),
)
"""WinoGrande and WSC273 ask the same kind of question in two forms."""
_LAMBADA = (
    "She took the key, put it into the lock, and opened the door. Behind the door",
    "He poured the tea into two cups and gave her one of the cups",
    "The dog saw the cat, and the cat saw the dog",
    "They walked along the river until it met another river",
    "My brother has a boat. Every summer we sail in his boat",
    "The baker baked bread, and all the village ate his bread",
    "It rained on Monday, it rained on Tuesday, and on Wednesday it rained",
    "The teacher asked a question, but nobody could answer the question",
    "He wrote a letter in the morning, and in the evening he burned the letter",
    "There was one tree on the hill, and under it we met, under the tree",
)
_WMT = (
    ("Le chat dort.", "The cat sleeps."),
    ("Il fait froid.", "It is cold."),
    ("Elle lit un livre.", "She reads a book."),
    ("Nous mangeons du pain.", "We eat bread."),
    ("La maison est grande.", "The house is large."),
    ("Où est la gare ?", "Where is the station?"),
    ("Je ne sais pas.", "I do not know."),
    ("Le train arrive demain.", "The train arrives tomorrow."),
    ("Merci beaucoup.", "Thank you very much."),
    ("Les enfants jouent.", "The children play."),
)


def write(folder: Path) -> Path:
    """Write the files of all tasks into `folder`, in the format that `eval.tasks` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    arc = [
        {"id": str(i), "question": question, "choices": list(choices), "gold": gold}
        for i, (question, choices, gold) in enumerate(_ARC)
    ]
    hellaswag = [
        {
            "activity_label": activity,
            "ctx_a": begins,
            "ctx_b": who,
            "endings": list(endings),
            "label": str(label),
        }
        for activity, begins, who, endings, label in _HELLASWAG
    ]
    winogrande = [
        {"sentence": sentence, "option1": first, "option2": second, "answer": str(answer)}
        for sentence, first, second, answer in _PAIRS
    ]
    for name, rows in (
        ("arc_easy_test.jsonl", arc),
        ("hellaswag_val.jsonl", hellaswag),
        ("winogrande_xl_dev.jsonl", winogrande),
        ("lambada_test.jsonl", [{"text": text} for text in _LAMBADA]),
    ):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    schemas = [
        f"{sentence.replace('_', '[MASK]')}\n[MASK]\n{first},{second}\n{(first, second)[right - 1]}"
        for sentence, first, second, right in _PAIRS
    ]
    (folder / "wsc273.txt").write_text("\n\n".join(schemas) + "\n")
    for language, place in (("fra", 0), ("eng", 1)):
        text = "".join(f"{pair[place]}\n" for pair in _WMT)
        (folder / f"newstest2014.{language}").write_text(text, encoding="utf-8")
    return folder
