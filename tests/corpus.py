"""A small made-up corpus: sentences of a tiny grammar, so that there is something to learn."""

from __future__ import annotations

import random
from pathlib import Path

from spherelm.data.prepare import PrepareConfig, prepare

SUBJECTS = ("the sphere", "a vector", "every row", "the angle", "a token", "the norm")
VERBS = ("turns", "follows", "meets", "leaves", "finds", "keeps")
OBJECTS = ("the surface", "its neighbour", "a longer path", "the same point", "another head")


def sentences(count: int, seed: int = 0) -> str:
    """`count` sentences, every twentieth followed by the end of a document."""
    draw = random.Random(seed)
    lines = []
    for number in range(1, count + 1):
        words = (draw.choice(part) for part in (SUBJECTS, VERBS, OBJECTS))
        lines.append(" ".join(words) + ".")
        if number % 20 == 0:
            lines.append("<|endoftext|>")
    return "\n".join(lines)


def prepare_corpus(folder: Path, count: int = 3000, seed: int = 0) -> Path:
    """The sentences as byte shards in `folder`/data; returns that folder."""
    text = folder / "text.txt"
    text.write_text(sentences(count, seed))
    out = folder / "data"
    prepare(PrepareConfig((str(text),), out, tokenizer="bytes", val_fraction=0.2, workers=1))
    return out
