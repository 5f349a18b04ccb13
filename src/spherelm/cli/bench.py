"""`spherelm bench WHAT`: the speed of steps, kernels, decoding and data; what FP8 rounds away."""

from __future__ import annotations

import importlib
import os

from spherelm import console
from spherelm.bench import flags
from spherelm.errors import UserError, nearest
from spherelm.flags import parse

BENCHMARKS: dict[str, type[flags.BenchFlags]] = {
    "step": flags.StepFlags,
    "kernels": flags.KernelsFlags,
    "decode": flags.DecodeFlags,
    "data": flags.DataFlags,
    "rounding": flags.RoundingFlags,
}
"""Each is a module of `spherelm.bench` whose `run(flags)` returns a `Report`."""


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_help())
        return 0
    what, rest = argv[0], argv[1:]
    if what not in BENCHMARKS:
        raise UserError(f"there is no benchmark {what!r}; {nearest(what, BENCHMARKS)}")
    parsed = parse(BENCHMARKS[what], rest, f"bench {what}")
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or torch's profiler logs every start and stop
    importlib.import_module(f"spherelm.bench.{what}").run(parsed).print(parsed.json)
    return 0


def _help() -> str:
    kinds = [(what, (each.__doc__ or "").split("\n")[0]) for what, each in BENCHMARKS.items()]
    blocks = (
        console.paragraph("usage: spherelm bench WHAT [options]"),
        console.paragraph(
            "Speed on this machine, GPT beside nGPT. Without options each runs at a size that "
            "suits it: the paper's 0.5B on a GPU, a small one on a CPU."
        ),
        console.entries("WHAT is one of", kinds),
        console.paragraph("spherelm bench WHAT --help lists the options of one."),
        console.command("spherelm bench step --sizes nano"),
    )
    return "\n\n".join(blocks)
