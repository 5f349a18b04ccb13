"""How the commands and programs of the documentation are run by the tests: the whole of it.

Every command of every page is run as it stands, in a folder with what `sandbox.py` puts there, but
for what this file says. A line here that changes nothing is a failing test, too.
"""

from __future__ import annotations

SMALLER = {
    r"(--preset (?:n?gpt-)?)[a-z0-9.-]+": r"\1debug",  # every size as the smallest
    r"(^spherelm compare )(?!.*--preset)": r"\1--preset debug ",
    r"--steps \d+": "--steps 2",
    r"(^spherelm (?:train|compare) (?!.*--(?:steps|dry-run)).*)": r"\1 --steps 2",
    r"--train-tokenizer \d+": "--train-tokenizer 300",
}
"""Pattern and what stands in its place, in this order."""

OTHER_PROGRAMS = {
    "torchrun": "needs several devices; tests/distributed starts it for real",
    "make": "takes minutes, or would start these tests",
    "pip": "needs the network",
    "pytest": "would start these tests",
    "python": "a sweep takes hours; tests/compare/test_sweep.py sweeps less",
    "lm_eval": "needs the network; tests/eval/test_harness.py compares with the harness",
}
"""Programs that are not run, and why: `shell.py` knows how to let their own parser read a line."""

ONLY_PARSED = {
    r" hf:": "needs the network; tests/data/test_hub.py reads local datasets",
    r"^spherelm bench |--train.precision fp8": "takes minutes or a GPU; tests/bench, tests/data "
    "and tests/generation run smaller ones",
    r"^spherelm reproduce (?!.*--(?:list|redraw|dry-run))": "takes minutes to weeks; tests/paper "
    "rehearses it",
}
"""Commands of ours that are not run, and why: they are read by the verb's own parser instead."""

RECORDS = {
    "docs/results/small-models.md",
    "docs/results/speed.md",
    "docs/results/decode.md",
    "docs/results/data.md",
    "docs/results/insides.md",
    "docs/results/longer-contexts.md",
}
"""Pages that tell what was run somewhere else: their commands are only parsed."""

RUN_FIRST = {
    "docs/everyday.md": r"^spherelm prepare new.txt",  # shown after the training that reads it
}

WITH_PNG = {"docs/evaluation.md"}
"""Pages whose commands also draw PNGs: elsewhere that would take longer than all the rest."""

PROGRAMS = {
    "docs/everyday.md": {"ngpt-nano": "ngpt-debug"},
}
"""What is replaced in the Python of a page."""

FRAGMENTS = {
    "docs/where-things-go.md": (
        "from typing import Literal\n"
        "from torch import Tensor\n"
        "from spherelm.ops.reference import residual_lerp\n"
    ),
}
"""What stands before those pieces of Python that import nothing themselves."""

QUOTED = {"docs/paper-in-code.md"}
"""Pages whose Python is quoted from the source: compared with it instead of run."""
