"""`spherelm import`: turn an exported folder back into a run directory."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from spherelm.console import show
from spherelm.flags import parse


@dataclass(frozen=True)
class ImportFlags:
    """Bring an exported nGPT, or a Llama with spherelm's shape, back as a run directory.

    spherelm import mine-hf --out runs/back
    """

    folder: tyro.conf.Positional[str]
    """The exported folder."""
    out: str
    """The run directory to make."""
    force: bool = False
    """Replace the import that --out holds; a folder with anything else is refused."""
    json: bool = False
    """Print one JSON object."""


def main(argv: list[str]) -> int:
    flags = parse(ImportFlags, argv, "import")

    from spherelm.hf.import_run import import_from_hf

    out = import_from_hf(flags.folder, flags.out, force=flags.force)
    result = {"folder": flags.folder, "out": str(out)}
    return show(result, flags.json, lambda: print(f"imported to {out}"))
