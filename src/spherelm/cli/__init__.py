"""The command line: `spherelm VERB ...`, each verb a module of this package.

Nothing heavy is imported until a verb needs it, so that `spherelm --help` is instant. A mistake of
the user's ends in one line on stderr and exit status 2; Ctrl-C in status 130.
"""

from __future__ import annotations

import importlib
import os
import sys
import time

from spherelm import launcher
from spherelm.errors import UserError, nearest

VERBS = {
    "compare": "train GPT and nGPT on the same tokens; see how many fewer nGPT needs",
    "prepare": "text, JSONL, Parquet or a Hugging Face dataset -> token shards",
    "train": "one training run, from a preset, a TOML file and overrides",
    "eval": "loss and bits per byte, perplexity by length, the paper's downstream tasks",
    "generate": "text from a trained model",
    "export": "a Hugging Face folder with safetensors",
    "import": "an exported folder -> a checkpoint of ours, bit for bit",
    "bench": "speed of a step, of the kernels, of decoding and of the data, GPT beside nGPT",
    "info": "parameters, FLOPs and memory of a configuration, without allocating it",
}

PATIENCE = 5.0
"""Seconds in which a launcher such as torchrun ends the other processes when one has failed."""


def main(argv: list[str] | None = None) -> int:
    """Run one verb; the exit status is returned."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        from spherelm import __version__

        print(f"spherelm {__version__}")
        return 0
    verb, rest = argv[0], argv[1:]
    try:
        if verb not in VERBS:
            raise UserError(f"there is no verb {verb!r}; {nearest(verb, VERBS)}")
        return int(importlib.import_module(f"spherelm.cli.{verb}").main(rest))
    except UserError as error:
        _say(error)
        return error.exit_status
    except KeyboardInterrupt:
        if launcher.is_first():
            print("spherelm: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _say(error: UserError) -> None:
    """Print an error once, however many processes a launcher has started.

    Where all raise it alike the first speaks for them. Another process with an error of its own
    waits: if the first has the same one, the launcher ends us meanwhile; if not, it must be said.
    """
    if launcher.is_first():
        print(f"spherelm: {error}", file=sys.stderr)
    elif not error.everywhere:
        time.sleep(PATIENCE)
        print(f"spherelm: rank {launcher.rank()}: {error}", file=sys.stderr)


def _help() -> str:
    verbs = "\n".join(f"  {verb:<9} {what}" for verb, what in VERBS.items())
    return (
        "spherelm: nGPT, the normalized Transformer, beside its GPT baseline\n\n"
        "usage: spherelm VERB [options]      (spherelm VERB --help for its options)\n\n"
        f"{verbs}\n\n"
        "start here: spherelm compare --out runs/demo"
    )
