"""Starts `spherelm ...` quickly: one process imports torch once and forks for every command.

    python -m tests.server      reads {"id", "argv", "log", "environment", "before"} lines, answers
                                {"id", "pid"} and, when the command has ended, {"id", "status"}

It has one thread, so that forking is safe, whatever threads the tests that ask it have.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import pickle
import selectors
import signal
import sys
import traceback
from typing import Any

IMPORTED = (
    *("tyro", "typeguard", "rich.progress", "rich.table", "colorama", "numpy.random"),
    *("torch._dynamo", "torch._inductor", "triton", "safetensors.torch", "tokenizers"),
    *("spherelm.training.loop", "spherelm.hf.export", "spherelm.data.prepare"),
    *(f"spherelm.cli.{verb}" for verb in ("train", "prepare", "export", "import")),
)
"""What commands import: 1.6 of the 2 seconds that a tiny training takes without them."""


def _command(request: dict[str, Any]) -> int:
    """The command in a process of its own, its output in a file."""
    for name in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL if name != signal.SIGINT else signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    descriptor = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = os.fdopen(1, "w", closefd=False, buffering=1)
    sys.stderr = os.fdopen(2, "w", closefd=False, buffering=1)
    from spherelm.cli import main

    os.environ.update(request["environment"])
    before = pickle.loads(base64.b64decode(request["before"]))
    try:
        if before is not None:
            before()
        return main(request["argv"])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


def _answer(**values: object) -> None:
    os.write(1, json.dumps(values).encode() + b"\n")


def serve() -> None:
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    choose = selectors.DefaultSelector()
    choose.register(0, selectors.EVENT_READ)
    choose.register(reader, selectors.EVENT_READ)
    running: dict[int, int] = {}
    pending = b""
    while True:
        for key, _ in choose.select():
            if key.fd == 0:
                received = os.read(0, 1 << 16)
                if not received:
                    return  # whoever asked has gone
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    pid = os.fork()
                    if pid == 0:
                        status = _command(request)
                        os._exit(status)
                    running[pid] = request["id"]
                    _answer(id=request["id"], pid=pid)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, 1 << 12)
        while running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            _answer(id=running.pop(pid), status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve()
