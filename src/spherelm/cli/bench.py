"""`spherelm bench WHAT`: speed of a training step, of the kernels, of decoding and of the data."""

from __future__ import annotations

import importlib

from spherelm.errors import UserError, nearest

BENCHMARKS = {
    "step": "spherelm.bench.step",
    "kernels": "spherelm.bench.kernels",
    "decode": "spherelm.bench.decode",
    "data": "spherelm.bench.data",
}
"""Each is a module with `main(argv)`."""


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(f"usage: spherelm bench {{{','.join(BENCHMARKS)}}} [--help | options]")
        return 0
    what, rest = argv[0], argv[1:]
    if what not in BENCHMARKS:
        raise UserError(f"there is no benchmark {what!r}; {nearest(what, BENCHMARKS)}")
    return int(importlib.import_module(BENCHMARKS[what]).main(rest))
