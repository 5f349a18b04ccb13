"""The run directory: everything a run leaves behind, and who may write there.

config.toml        the complete configuration: enough to repeat the run
env.json           versions, machine, command line
metrics.jsonl      a line for every step: the same bytes however often the run was interrupted
speed.jsonl        seconds, tokens/s and memory: what differs from one repetition to the next
tensorboard/       the same curves for TensorBoard
checkpoints/       step_N/, see `checkpoint`
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from spherelm import __version__, durable, records
from spherelm.config import RunConfig
from spherelm.config_io import read_toml, seal_toml, to_toml
from spherelm.errors import UserError

Resume = Literal["never", "auto", "strict"]
"""strict: as auto, but refuse where anything is damaged instead of going on from before it."""


@dataclass(frozen=True)
class RunDir:
    """The paths of a run directory."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def env(self) -> Path:
        return self.root / "env.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def speed(self) -> Path:
        return self.root / "speed.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def holds_a_run(self) -> bool:
        return self.config.exists()

    def read_config(self) -> RunConfig:
        return read_toml(self.config, RunConfig(), sealed=True)

    def write_config(self, config: RunConfig) -> None:
        """Put the configuration in config.toml, unless it is what stands there."""
        text = seal_toml(to_toml(config))
        if not self.config.is_file() or self.config.read_bytes() != text.encode():
            durable.write_text(self.config, text)


def check_claim(run_dir: RunDir, *, resume: Resume, force: bool) -> None:
    """Refuse a folder that is not ours to write to; nothing is written yet."""
    root = run_dir.root
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; --out must be a folder")
    if run_dir.holds_a_run():
        if resume == "never" and not force:
            raise UserError(
                f"{root} already holds a run; continue it with --resume auto, "
                f"or replace it with --force"
            )
    elif root.is_dir() and any(root.iterdir()) and not force:
        raise UserError(f"{root} is not empty and holds no run; choose another --out, or --force")


def create(
    run_dir: RunDir,
    config: RunConfig,
    tokenizer: Path | None = None,
    launch: Sequence[str] = (),
) -> None:
    """Start a fresh run: whatever an earlier run left here is removed.

    The folder `tokenizer` is copied, so that the model can be used when its data is gone. `launch`
    names the start that makes the run (see `launch`).
    """
    for old in (run_dir.config, run_dir.metrics, run_dir.speed):
        old.unlink(missing_ok=True)
    for old in (run_dir.checkpoints, run_dir.tensorboard, run_dir.tokenizer):
        shutil.rmtree(old, ignore_errors=True)
    try:
        run_dir.checkpoints.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot make {run_dir.root}: {error.strerror}") from None
    if tokenizer is not None and tokenizer.is_dir():
        shutil.copytree(tokenizer, run_dir.tokenizer)
    write_description(run_dir, config, launch)


def write_description(run_dir: RunDir, config: RunConfig, launch: Sequence[str] = ()) -> None:
    """env.json and config.toml, in this order: a folder that holds a run says who began it."""
    import numpy
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    environment = {
        "spherelm": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_threads": torch.get_num_threads(),
        "gpu": gpu,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "launch": list(launch),
    }
    records.write(run_dir.env, environment)
    run_dir.write_config(config)
