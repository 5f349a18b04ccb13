"""The package where modules of Unix are missing."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_UNIX = """
import builtins, contextlib, importlib, io, os, pkgutil

UNIX = ("resource", "fcntl", "termios", "readline", "tty", "pty", "pwd", "grp", "syslog")

def as_on_windows(name, globals=None, *rest, **more):
    ours = globals and globals.get("__name__", "").startswith("spherelm")
    if ours and name in UNIX:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real_import(name, globals, *rest, **more)

real_import, builtins.__import__ = builtins.__import__, as_on_windows
import torch
for name in ("sched_getaffinity", "sched_setaffinity", "register_at_fork", "pread", "O_NOFOLLOW"):
    delattr(os, name)
import spherelm

imported = 0
for module in pkgutil.walk_packages(spherelm.__path__, "spherelm."):
    if module.name == "spherelm.__main__":
        continue
    try:
        importlib.import_module(module.name)
        imported += 1
    except ModuleNotFoundError as error:  # a package that is an extra
        if error.name in UNIX:
            raise
assert imported > 100, imported

from spherelm.cli import VERBS, main

for verb in ("", *VERBS, "eval length", "eval tasks", "bench step", "bench data"):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        assert main([*verb.split(), "--help"]) == 0
    assert "usage: spherelm " + verb in shown.getvalue(), verb

from spherelm.free_memory import free_host_memory
from spherelm.ops.device import peak_memory
print(peak_memory(torch.device("cpu")), (free_host_memory() or 1) > 0)
"""


def test_every_module_can_be_imported_without_those_of_unix() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_UNIX], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["0", "True"]
