"""The result of a benchmark: numbers as JSON, tables for a reader, and what it ran on."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from spherelm import __version__
from spherelm.console import paragraph, print_table


class Table(NamedTuple):
    """Rows whose first column is text and whose others are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Report:
    """A benchmark's result."""

    environment: dict[str, Any]
    """The machine and the versions behind the numbers."""
    numbers: dict[str, Any]
    tables: Sequence[Table]
    conclusion: str = ""

    def print(self, as_json: bool) -> None:
        if as_json:
            print(json.dumps({"environment": self.environment, **self.numbers}))
            return
        for title, columns, rows in self.tables:
            filled = [i for i in range(len(columns)) if i == 0 or any(row[i] for row in rows)]
            kept = [[row[i] for i in filled] for row in rows]
            print_table(title, kept, [columns[i] for i in filled])
        if self.conclusion:
            print(paragraph(self.conclusion))
        print(paragraph(", ".join(f"{k} {v}" for k, v in self.environment.items())))


def measuring(what: str) -> None:
    """Say what is being measured, as it may take minutes until there is a table."""
    print(f"measuring {what}", file=sys.stderr)


def environment(device: torch.device) -> dict[str, str]:
    """The machine and the versions that compute on `device`."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        name = f"{platform.processor() or platform.machine()}, {threads} thread"
        name += "s" if threads > 1 else ""
    found = {"device": name, "spherelm": __version__, "torch": str(torch.__version__)}
    try:
        import triton
    except ImportError:
        return found
    return found | {"triton": triton.__version__}
