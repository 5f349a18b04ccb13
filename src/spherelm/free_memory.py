"""How much memory is free, checked before it is needed.

On a CPU this is what the system could still give this process: free memory, caches that can be
dropped and swap, within the limits of its control groups (containers, Slurm) and `ulimit -v`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spherelm.errors import UserError

if TYPE_CHECKING:
    import torch

NO_LIMIT = 1 << 60
"""Control groups of version 1 report at least this if there is no limit."""


def free_memory(device: torch.device) -> int | None:
    """Bytes that could be allocated now on a device; None if the system does not report it."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + reserved
    return free_host_memory()


def free_host_memory(root: Path = Path("/")) -> int | None:
    """Bytes that the system could still give this process; `root` holds proc/ and sys/."""
    numbers = [n for n in (_of_the_system(root), *_of_groups(root), _of_addresses(root)) if n]
    return min(numbers, default=None)


def require_memory(
    what: str, needed: int, device: torch.device, remedy: str, processes: int = 1
) -> None:
    """Refuse what needs more memory than is free, in one line with both numbers.

    `processes` is the number of processes that each take that much of the same memory.
    """
    free = free_memory(device)
    if free is None or needed * processes <= free:
        return
    where = "this GPU" if device.type == "cuda" else "this machine"
    times = "" if processes == 1 else f" in each of {processes} processes"
    raise UserError(
        f"{what} needs at least {gib(needed)}{times}, but {gib(free)} are free on {where}; {remedy}"
    )


def gib(count: int) -> str:
    """Bytes for people to read: 3.1 GiB, or in other units as needed."""
    if count >= 1 << 90:
        return f"2^{count.bit_length() - 1} bytes"
    for unit, size in (("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / (1 << 20):,.1f} MiB"


def _of_the_system(root: Path) -> int | None:
    """Free memory including droppable caches and swap; if unknown, the total memory."""
    fields = _numbers(root / "proc/meminfo")
    if "MemAvailable" in fields:
        return (fields["MemAvailable"] + fields.get("SwapFree", 0)) << 10  # in KiB
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _of_groups(root: Path) -> Iterator[int]:
    """What is left in each control group of this process that has a limit."""
    for folder, second in _groups(root):
        limit = _number(folder / ("memory.max" if second else "memory.limit_in_bytes"))
        used = _number(folder / ("memory.current" if second else "memory.usage_in_bytes"))
        if limit is None or used is None or limit >= NO_LIMIT:
            continue
        stat = _numbers(folder / "memory.stat")
        prefix = "" if second else "total_"
        droppable = sum(stat.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
        swap = _number(folder / "memory.swap.max") if second else 0
        yield max(1, limit - used + droppable + (swap or 0))


def _groups(root: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of our control groups and their ancestors, and whether they are of version 2.

    Ancestors up to the root: in a container, the path may be that outside, and the group the root.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, second = root / "sys/fs/cgroup", True
        elif "memory" in controllers.split(","):
            top, second = root / "sys/fs/cgroup/memory", False
        else:
            continue
        folder = top / path.strip().lstrip("/")
        for ancestor in (folder, *folder.parents):
            yield ancestor, second
            if ancestor == top:
                break


def _of_addresses(root: Path) -> int | None:
    """What is left of `ulimit -v`."""
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _lines(root / "proc/self/statm")
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return max(1, limit - int(pages[0].split()[0]) * os.sysconf("SC_PAGE_SIZE"))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def _number(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def _numbers(file: Path) -> dict[str, int]:
    """`name value` or `name: value unit` on each line."""
    words = [line.replace(":", " ").split() for line in _lines(file)]
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}
