"""The record kept of a run, small enough for a repository.

    ID/config.toml      the whole configuration
    ID/metrics.jsonl    the curve: every evaluation, and the training loss of every 20th step
    ID/result.json      how it ended, how many seconds it took, and what it ran on

Every table and figure can be redrawn from these alone. The data folder is left out of the
configuration, as its path means nothing on another machine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.config import RunConfig
from spherelm.config_io import read_toml, to_toml
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir

EVERY = 20
"""Steps between the training losses that are kept."""
KEPT = ("step", "tokens", "loss", "lr", "grad_norm", "val_loss", "val_bits_per_byte")


@dataclass(frozen=True)
class Record:
    """A run, as read from its record."""

    id: str
    config: RunConfig
    curve: tuple[tuple[int, float], ...]
    """(tokens, validation loss) of each evaluation."""
    finished: bool
    """Whether its schedule reached its end: only such runs are compared."""
    diverged: bool
    """Whether its loss became non-finite."""
    seconds: float
    """Of its training steps alone; the device may have been shared meanwhile."""
    made_with: Mapping[str, Any]

    @property
    def tokens(self) -> int:
        return self.config.tokens

    @property
    def seed(self) -> int:
        return self.config.train.seed

    @property
    def loss(self) -> float:
        """The validation loss at its end."""
        return self.curve[-1][1]


def keep(run: Path, folder: Path, name: str, diverged: bool = False) -> None:
    """Write the record of the run directory `run` as `folder`/`name`."""
    run_dir, target = RunDir(run), folder / name
    config = run_dir.read_config()
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, path=None))
    metrics, speed = read_metrics(run_dir.metrics), read_metrics(run_dir.speed)
    target.mkdir(parents=True, exist_ok=True)
    durable.write_text(target / "config.toml", to_toml(config))
    durable.write_text(target / "metrics.jsonl", "".join(_thinned(metrics)))
    env = records.read(run_dir.env)
    result = {
        "finished": bool(metrics) and metrics[-1]["step"] == config.train.steps,
        "seconds": round(sum(line["seconds"] for line in speed), 2),
        "made_with": {key: env[key] for key in ("torch", "gpu", "started") if key in env},
    }
    if diverged:
        result["diverged"] = True
    durable.write_json(target / "result.json", result)


def _thinned(metrics: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for line in metrics:
        if "val_loss" in line or line["step"] % EVERY == 0:
            kept = {key: line[key] for key in KEPT if key in line}
            short = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in kept.items()}
            yield json.dumps(short) + "\n"


def has(folder: Path, name: str) -> bool:
    """Whether there is a record of a finished run of this name."""
    result = folder / name / "result.json"
    return result.is_file() and records.read(result).get("finished") is True


def has_end(folder: Path, name: str) -> bool:
    """Whether there is a record of a run that has ended, by finishing or diverging."""
    result = folder / name / "result.json"
    return has(folder, name) or (result.is_file() and bool(records.read(result).get("diverged")))


def read(folder: Path) -> list[Record]:
    """All records in a folder, sorted by name, including those of unfinished runs."""
    return [read_one(path.parent) for path in sorted(folder.glob("*/result.json"))]


def read_one(folder: Path) -> Record:
    """The record in `folder`."""
    result, metrics = records.read(folder / "result.json"), folder / "metrics.jsonl"
    record = Record(
        id=folder.name,
        config=read_toml(folder / "config.toml", RunConfig()),
        curve=tuple(
            (
                records.field(line, "tokens", int, metrics),
                records.field(line, "val_loss", (int, float), metrics),
            )
            for line in read_metrics(metrics)
            if "val_loss" in line
        ),
        finished=records.field(result, "finished", bool, folder / "result.json"),
        diverged=bool(result.get("diverged")),
        seconds=records.field(result, "seconds", (int, float), folder / "result.json"),
        made_with=result.get("made_with", {}),
    )
    if record.finished and (not record.curve or record.curve[-1][0] != record.tokens):
        raise records.damaged(metrics, f"it has no loss after {record.tokens:,} tokens, the last")
    return record
