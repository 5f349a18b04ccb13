"""The command line: `spherelm VERB ...`, each verb a module of this package.

Nothing heavy is imported until a verb needs it, so `spherelm --help` is instant. A user's mistake,
a full disk or a shortage of memory prints one line on stderr and exits with status 2; a loss that
is not finite exits with 3, Ctrl-C with 130. When nobody reads the output any more, as after
`| head`, the program exits with 0, but a training run continues silently.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import time

from spherelm.cli import process
from spherelm.console import command, entries, paragraph
from spherelm.distributed import launcher
from spherelm.errors import UserError, nearest

VERBS = {
    "compare": "train GPT and nGPT on the same tokens; see how many fewer nGPT needs",
    "prepare": "text, JSONL, Parquet or a Hugging Face dataset -> token shards",
    "train": "one training run, from a preset, a TOML file and overrides",
    "eval": "loss and bits per byte, perplexity by length, the paper's downstream tasks",
    "inspect": "the insides of trained models on one page: the paper's pictures, paths of tokens",
    "generate": "text from a trained model",
    "export": "a Hugging Face folder with safetensors",
    "import": "an exported folder -> a checkpoint of ours, bit for bit",
    "bench": "speed of a step, of the kernels, of decoding and of the data, GPT beside nGPT",
    "reproduce": "a figure or table of the paper, at a size you choose, ours beside the paper's",
    "report": "how one run or many went, on one page; also while they go on",
    "presets": "all presets with their size, context, tokens and, if you like, time",
    "info": "parameters, FLOPs and memory of a configuration, without allocating it",
}

FOR_MANY = ("train",)
"""Verbs that may run in several processes, started by a launcher such as torchrun."""

PATIENCE = 5.0
"""Seconds within which a launcher such as torchrun kills the other processes when one fails."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit status.

    Called without arguments it is the whole program: it reads sys.argv and sets up the process's
    streams and signals.
    """
    if argv is not None:
        return _guarded(argv)
    if not process.take_over():
        return complain("stdout is closed; give it a file, or /dev/null")
    try:
        return _guarded(sys.argv[1:])
    finally:
        process.ignore_interrupts()  # only Python's own shutdown is left


def _guarded(argv: list[str]) -> int:
    """Run one verb; any failure a user can cause prints one line. Anything else is a bug."""
    try:
        try:
            return _run(argv)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # so a full disk or a closed pipe raises here, not at shutdown
    except UserError as error:
        return _say(error)
    except KeyboardInterrupt:
        return complain("interrupted", 130) if launcher.is_first() else 130
    except BrokenPipeError:  # whoever read our output, such as `head`, has exited
        process.discard_output()
        return 0
    except OSError as error:
        process.discard_output()
        return complain(_of_the_system(error))
    except (MemoryError, RuntimeError) as error:
        if (shortage := _of_memory(error)) is None:
            raise
        return complain(shortage)


def _run(argv: list[str]) -> int:
    if {"-h", "--help"} & {*argv} and not launcher.is_first():
        return 0  # the first process prints the page
    if argv[0:1] == ["help"] and len(argv) == 2:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        from spherelm import __version__

        print(f"spherelm {__version__}")
        return 0
    for word in argv:
        if word.encode(errors="ignore").decode() != word:
            raise UserError(f"{word!a} is not UTF-8; names and texts must be")
    verb, rest = argv[0], argv[1:]
    if verb.startswith("-"):
        hint = nearest(verb, ("--help", "--version"))
        raise UserError(f"there is no option {verb} before a verb; {hint}")
    if verb not in VERBS:
        raise UserError(f"there is no verb {verb!r}; {nearest(verb, VERBS)}")
    if launcher.world_size() > 1 and verb not in FOR_MANY:
        raise UserError(
            f"{verb} runs in one process, not in {launcher.world_size()}: start it without "
            f"torchrun (for several there is {' and '.join(FOR_MANY)})",
            everywhere=True,
        )
    return int(importlib.import_module(f"spherelm.cli.{verb}").main(rest))


def complain(message: str, status: int = 2) -> int:
    """Print an error on one line, escaping whatever is not printable; returns the exit status."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split("\n")))
    with contextlib.suppress(OSError):
        print(f"spherelm: {line}", file=sys.stderr, flush=True)
    return status


def _of_the_system(error: OSError) -> str:
    """What the operating system refused, and where: a full disk, a long name, no permission."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"cannot read or write: {reason}"
    name = str(error.filename)
    return f"{name if len(name) <= 120 else f'{name[:117]}...'}: {reason}"


def _of_memory(error: Exception) -> str | None:
    """One line about a shortage of memory; None if the error is something else."""
    reason = str(error).split("\n")[0]
    shortages = ("can't allocate memory", "out of memory", "not enough memory", "size calculation")
    if not isinstance(error, MemoryError) and not any(words in reason for words in shortages):
        return None
    wanted = re.search(r"allocate (\d+) bytes", reason)
    what = reason if wanted is None else f"{int(wanted[1]) / 2**30:,.1f} GiB more were asked for"
    return f"there is not enough memory for this{f': {what}' if what else ''}"


def _say(error: UserError) -> int:
    """Print an error once, however many processes a launcher has started.

    If every process raises it, the first prints it. Any other process waits: if the first fails
    too, the launcher kills us in the meantime; if it does not, the error is ours alone to print.
    """
    if launcher.is_first():
        return complain(str(error), error.exit_status)
    if not error.everywhere:
        time.sleep(PATIENCE)
        complain(f"rank {launcher.rank()}: {error}")
    return error.exit_status


def _help() -> str:
    blocks = (
        paragraph("spherelm: nGPT, the normalized Transformer, beside its GPT baseline"),
        paragraph("usage: spherelm VERB [options]"),
        entries("VERB is one of", list(VERBS.items())),
        paragraph("spherelm VERB --help lists the options of a verb. Start here:"),
        command("spherelm compare --out runs/demo"),
    )
    return "\n\n".join(blocks)
