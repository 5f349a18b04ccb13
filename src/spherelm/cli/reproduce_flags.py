"""The flags of `spherelm reproduce`, for both the paper's items and the study."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from spherelm.validate import FromZero, check_fields


@dataclass(frozen=True)
class ReproduceFlags:
    """Train the runs of a figure or table of the paper, and draw it beside the paper's own numbers.

    Started again, it skips finished runs and resumes interrupted ones; items with the same --out
    share their runs. The item `scaling` is the study of docs/results, whose small records are kept
    in RESULTS/data/scaling.
    """

    item: tyro.conf.Positional[str] = ""
    """The name of a figure or table, as --list prints it; all for every one of them; or scaling."""
    size: str = "nano"
    """nano: two CPU cores, minutes; small: one GPU; paper: the true setup, for a cluster."""
    out: str | None = None
    """Folder for the run directories and the pages."""
    data: str | None = None
    """Folder of token shards made by `spherelm prepare`. Unset: the built-in corpus, for nano and
    --rehearse."""
    tasks_dir: str | None = None
    """Folder with the files of the downstream tasks. Unset: at nano a small built-in set."""
    books: str | None = None
    """Folder of long texts as .txt for the item length. Unset: at nano the built-in corpus."""
    records: str | None = None
    """Folder with records of finished runs, used instead of training them where no model is
    needed, such as docs/results/data/scaling at size small."""
    only: str = "*"
    """Which runs, as comma-separated patterns of names, such as 'ngpt-4k-92m-*,gpt-4k-*'."""
    workers: FromZero | None = None
    """Runs at the same time: two keep one GPU busy while one of them compiles. 0: all in this
    process, one after another. Unset: 0 at nano, else 2."""
    minutes: float | None = None
    """Start only runs that would finish within this time."""
    device: str = "auto"
    """Where trained models are measured: cpu, cuda, mps, or auto for the fastest there is."""
    tflops: float | None = None
    """Speed that one device sustains in training, for the costs that --list and --dry-run print.
    Unset: the speed measured for the size."""
    list: bool = False
    """Print what each item shows and what it costs at each size, or for scaling the names of its
    runs, and stop."""
    dry_run: bool = False
    """Print every run with its cost and whether it is done, or for scaling the configuration of
    each run that is left, and stop."""
    redraw: bool = False
    """Train nothing: only draw the tables and figures again."""
    json: bool = False
    """Print one JSON object."""
    results: str = "docs/results"
    """scaling: folder of the page; the records are in data/scaling inside it."""
    time: bool = False
    """scaling: train nothing, but time a training step of each arm in turn, alone on the GPU, for
    RESULTS/data/step-times.json. --only may also name arms; unset: six of them at 4k."""
    rehearse: bool = False
    """scaling: train every run at a tiny size for a few steps, to check that everything works."""

    def __post_init__(self) -> None:
        check_fields(self, "--")
