"""How much memory there is: read from the files of the system, real ones and made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spherelm.errors import UserError
from spherelm.free_memory import free_host_memory, free_memory, gib, require_memory

GIB = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {50 << 20} kB\n"}


def test_this_machine() -> None:
    free = free_memory(torch.device("cpu"))
    assert free is not None
    assert 1 << 20 < free < 1 << 50


def test_the_systems_memory_with_its_swap(tmp_path: Path) -> None:
    assert free_host_memory(write(tmp_path, MEMINFO)) == 50 * GIB
    swap = MEMINFO["proc/meminfo"] + f"SwapFree: {8 << 20} kB\n"
    assert free_host_memory(write(tmp_path, {"proc/meminfo": swap})) == 58 * GIB


def test_a_control_group_of_the_second_version(tmp_path: Path) -> None:
    """The limit stands two levels above our group; caches of files can be dropped."""
    job = "sys/fs/cgroup/slurm/job_7"
    files = {
        "proc/self/cgroup": "0::/slurm/job_7/step_0\n",
        f"{job}/step_0/memory.max": "max\n",
        f"{job}/step_0/memory.current": f"{GIB}\n",
        f"{job}/memory.max": f"{10 * GIB}\n",
        f"{job}/memory.current": f"{7 * GIB}\n",
        f"{job}/memory.stat": f"anon {4 * GIB}\nactive_file {GIB}\ninactive_file {2 * GIB}\n",
    }
    assert free_host_memory(write(tmp_path, MEMINFO | files)) == 6 * GIB
    write(tmp_path, {f"{job}/memory.swap.max": f"{GIB}\n"})
    assert free_host_memory(tmp_path) == 7 * GIB


def test_a_control_group_of_the_first_version_in_a_container(tmp_path: Path) -> None:
    """The path is that outside the container; its folder is the root of what is mounted."""
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu:/docker/abc\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {GIB // 2}\n",
    }
    assert free_host_memory(write(tmp_path, MEMINFO | files)) == 3 * GIB + GIB // 2
    write(tmp_path, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert free_host_memory(tmp_path) == 50 * GIB


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    cpu = torch.device("cpu")
    require_memory("a byte", 1, cpu, "never")
    with pytest.raises(
        UserError, match=r"^it needs at least 1\.0 EiB, but .* are free .*; shrink$"
    ):
        require_memory("it", 1 << 60, cpu, "shrink")
    free = free_memory(cpu)
    assert free is not None
    with pytest.raises(UserError, match="in each of 8 processes"):
        require_memory("it", free // 2, cpu, "shrink", processes=8)


@pytest.mark.parametrize(
    ("count", "text"),
    [(3 << 20, "3.0 MiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB"), (2**2000, "2^2000 bytes")],
)
def test_units(count: int, text: str) -> None:
    assert gib(count) == text
