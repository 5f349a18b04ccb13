"""Tables of the benchmarks, and what they were measured on."""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
from rich.table import Table

from spherelm import __version__
from spherelm.console import open_console


def environment(device: torch.device) -> dict[str, str]:
    """The machine and the versions behind the numbers."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    found = {"device": name, "spherelm": __version__, "torch": str(torch.__version__)}
    try:
        import triton
    except ImportError:
        return found
    return found | {"triton": triton.__version__}


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], device: torch.device
) -> None:
    """A table whose first column is text and whose others are numbers."""
    table = Table(
        title=title, caption=", ".join(f"{k} {v}" for k, v in environment(device).items())
    )
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    open_console(width=160).print(table)
