"""A workaround for machines that claim to have AMX but crash on it.

A virtual machine may report that its CPU has AMX, Intel's unit for bfloat16 products, without
letting programs use it. The first bfloat16 product then ends the process with an illegal
instruction inside oneDNN. `avoid_broken_amx` tries one in a child process, remembers the result,
and if it crashed, makes oneDNN use the next best instructions.

oneDNN reads its environment variable at the first product, so this must come before; best before
torch is loaded, which is why nothing here imports it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, MutableMapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from spherelm import durable, records
from spherelm.errors import UserError

VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""oneDNN's variable and its older name; if the user has set either, we leave it at that."""
NEXT_BEST = "AVX512_CORE_BF16"

TRIAL = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); "
    "assert float((a @ a)[0, 0]) == float(torch.nn.functional.linear(a, a)[0, 0]) == 64"
)
TRIAL_SECONDS = 120
TRAPS = [getattr(signal, name, None) for name in ("SIGILL", "SIGSEGV", "SIGBUS")]
"""Signals that end a process on missing instructions; Windows does not have all of them."""


def avoid_broken_amx(
    environ: MutableMapping[str, str] = os.environ,
    *,
    cpuinfo: str | Path = "/proc/cpuinfo",
    memory: Path | None = None,
    trial: Sequence[str] = (sys.executable, "-c", TRIAL),
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
) -> bool:
    """Make bfloat16 products on this CPU safe; returns whether it set a variable in `environ`.

    Costs nothing if the CPU reports no AMX, or the variable is set. Otherwise a product is tried in
    a child process, once per machine and version of torch: `memory`, a file in the user's cache
    folder, keeps the result. If AMX crashes, a line on stderr says so.
    """
    if any(name in environ for name in VARIABLES):
        return False
    identity = _cpu_with_amx(cpuinfo)
    if identity is None:
        return False
    key = hashlib.blake2b(f"{identity} torch {_torch()}".encode(), digest_size=16).hexdigest()
    memory = memory or _usual_memory()
    works = _recall(memory).get(key)
    if works is None:
        works = _try(trial)
        if works is not None:
            _remember(memory, key, works)
    if works is not False:
        return False
    environ[VARIABLES[0]] = NEXT_BEST
    say(
        f"spherelm: this CPU claims to have AMX and crashes on it; bf16 matrix products use "
        f"{NEXT_BEST} ({VARIABLES[0]} in the environment would decide instead)"
    )
    return True


def before_products(precision: str, device: str) -> None:
    """`avoid_broken_amx` if these flags can lead to bfloat16 products on the CPU.

    For the command line, before it loads torch, when it is not known whether auto is a GPU.
    """
    if precision == "bf16" and device.partition(":")[0] in ("auto", "cpu"):
        avoid_broken_amx()


def _usual_memory() -> Path | None:
    try:
        return durable.cache_folder() / "amx.json"
    except RuntimeError:  # there is no home folder
        return None


def _cpu_with_amx(cpuinfo: str | Path) -> str | None:
    """The model and flags of the first CPU, if they include AMX."""
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            lines = list(itertools.takewhile(str.strip, file))  # there may be hundreds of CPUs
    except OSError:  # not Linux
        return None
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    flags = fields.get("flags", "").split()
    if not any(flag.startswith("amx") for flag in flags):
        return None
    return f"{fields.get('model name', '')} {' '.join(sorted(flags))}"


def _torch() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return "unknown"


def _try(trial: Sequence[str]) -> bool | None:
    """Whether a bfloat16 product works here; None if the trial was inconclusive."""
    try:
        ended = subprocess.run(
            trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ended.returncode == 0:
        return True
    return False if -ended.returncode in TRAPS else None


def _recall(memory: Path | None) -> dict[str, bool]:
    if memory is None:
        return {}
    try:
        known = records.read(memory)
    except UserError:
        return {}
    return {key: works for key, works in known.items() if isinstance(works, bool)}


def _remember(memory: Path | None, key: str, works: bool) -> None:
    if memory is None:
        return
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        durable.write_json(memory, {**_recall(memory), key: works})
    except OSError:  # the home folder is read-only: try again next time
        pass
