"""`spherelm bench WHAT`: speed of a step, of kernels, decoding and data; what eight bits lose."""

from __future__ import annotations

import importlib

from spherelm.errors import UserError, nearest
from spherelm.flags import parse

BENCHMARKS = ("step", "kernels", "decode", "data", "rounding")
"""Each is a module of `spherelm.bench` with its `Flags`, and `run(flags)` that gives a `Report`."""


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: spherelm bench {{{','.join(BENCHMARKS)}}} [--help | options]")
        return 0
    what, rest = argv[0], argv[1:]
    if what not in BENCHMARKS:
        raise UserError(f"there is no benchmark {what!r}; {nearest(what, BENCHMARKS)}")
    benchmark = importlib.import_module(f"spherelm.bench.{what}")
    flags = parse(benchmark.Flags, rest, f"bench {what}")
    benchmark.run(flags).print(flags.json)
    return 0
