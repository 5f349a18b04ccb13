"""What people get wrong on a command line, as data.

Each row is refused in one line on stderr with its exit status, and nothing on the disk changes. A
row names things of `tests.faults.sandbox`, the working directory. Rows are made from kinds of
mistakes and the places where they can be made (`kinds`); what is peculiar to a verb is written out
in a file of its name.
"""

from __future__ import annotations

from tests.faults.bad_inputs import (
    bench,
    compare,
    eval,
    export,
    generate,
    info,
    prepare,
    report,
    train,
    verbs,
)
from tests.faults.bad_inputs.kinds import made
from tests.faults.bad_inputs.row import BadInput

__all__ = ["BadInput", "rows"]

VERBS = (verbs, train, compare, prepare, eval, generate, export, bench, report, info)


def rows() -> dict[BadInput, bool]:
    """The whole table: each row once, and whether it is tried every day.

    Of those made from kinds and places every third is; all of them are in `make test-slow`.
    """
    every_third = {bad: number % 3 == 0 for number, bad in enumerate(made())}
    peculiar = {bad: True for verb in VERBS for bad in verb.ROWS}
    return every_third | peculiar
