"""A row of the table of bad inputs, and the good commands that mistakes are added to."""

from __future__ import annotations

from dataclasses import dataclass

LONG = "n" * 300
"""A name longer than any file system takes."""


@dataclass(frozen=True)
class BadInput:
    """A command line, and what is said of it."""

    argv: tuple[str, ...]
    says: str
    """A part of the line."""
    status: int = 2

    @property
    def id(self) -> str:
        words = (word if len(word) <= 40 else f"{word[:37]}..." for word in self.argv)
        return " ".join(words).encode("ascii", "backslashreplace").decode()


def row(command: str, *words: str, says: str, status: int = 2) -> BadInput:
    """`command` is split at spaces; `words` are taken as they are."""
    return BadInput((*command.split(), *words), says, status)


TRAIN = "train --preset debug --data data --device cpu --out new"
START = "train --init-from run --data data --device cpu --out new"
COMPARE = "compare --preset debug --data data --device cpu --out new"
PREPARE = "prepare text.txt --out new"
EVAL = "eval run --text text.txt --device cpu"
LENGTH = "eval length run --books books --lengths 64 --device cpu"
TASKS = "eval tasks run --tasks lambada_openai --data tasks --device cpu"  # which are not there
GENERATE = "generate run --prompt a --max-new-tokens 1 --device cpu"
EXPORT = "export run --out new"
IMPORT = "import hf --out new"
INFO = "info --preset debug"
STEP = "bench step --device cpu --sizes debug"
KERNELS = "bench kernels --device cpu"
DECODE = "bench decode --device cpu --size debug"
BENCH_DATA = "bench data"
COMMANDS = (
    *(TRAIN, COMPARE, PREPARE, EVAL, LENGTH, TASKS, GENERATE, EXPORT, IMPORT, INFO),
    *(STEP, KERNELS, DECODE, BENCH_DATA),
)
"""A good command for each verb, which a mistake is added to. None of them is ever carried out."""
