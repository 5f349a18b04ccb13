"""The run directory: everything a run leaves behind, and who may write there.

config.toml        the complete configuration: enough to repeat the run
env.json           an id for this run, versions, machine, command line
metrics.jsonl      a line for every step: the same bytes however often the run was interrupted
speed.jsonl        seconds, tokens/s and memory: what differs from one repetition to the next
tensorboard/       the same curves for TensorBoard
checkpoints/       step_N/, see `checkpoint`
tokenizer/         a copy of the data's tokenizer
.spherelm          who writes here, see `spherelm.folders`
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from spherelm import __version__, durable, records
from spherelm.config import RunConfig
from spherelm.config_io import read_toml, seal_toml, to_toml, toml_values
from spherelm.errors import UserError, or_say
from spherelm.folders import place
from spherelm.folders.kinds import TRAIN
from spherelm.folders.owner import Owner
from spherelm.folders.place import Input

Resume = Literal["never", "auto", "strict"]
"""strict: like auto, but refuses if anything is damaged instead of resuming from before it."""


class RunDir:
    """The paths of a run directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.toml"
        self.env = root / "env.json"
        self.metrics = root / "metrics.jsonl"
        self.speed = root / "speed.jsonl"
        self.tensorboard = root / "tensorboard"
        self.tokenizer = root / "tokenizer"
        self.checkpoints = root / "checkpoints"

    @staticmethod
    def around(checkpoint: str | Path) -> Path | None:
        """The run directory that a checkpoint lies in, if `checkpoint` is one."""
        folder = Path(os.path.realpath(checkpoint)).parent  # not resolve(), which fails on loops
        return folder.parent if folder.name == "checkpoints" else None

    def holds_a_run(self) -> bool:
        return self.config.exists()

    def began_by(self, launches: Iterable[str]) -> bool:
        """Whether one of these launches (one per machine) began the run here.

        `torchrun --max-restarts` restarts its processes when one fails, even if it only refused its
        flags. Only a run that this very launch began, according to env.json, is then resumed; with
        any other run the flags mean what they meant the first time.
        """
        if not self.holds_a_run():
            return False
        try:
            before = records.read(self.env).get("launch")
        except UserError:
            return False
        return isinstance(before, list) and any(name in before for name in launches)

    def read_config(self) -> RunConfig:
        """The configuration of the run, which is complete: no field is left to a default."""
        there = toml_values(self.config, sealed=True)
        for section in ("model", "optim", "train"):
            if section not in there:
                raise records.damaged(self.config, f"it has no [{section}]")
        return read_toml(self.config, RunConfig(), sealed=True)

    def write_config(self, config: RunConfig) -> None:
        """Write the configuration to config.toml, unless it is already there."""
        text = seal_toml(to_toml(config))
        if not self.config.is_file() or self.config.read_bytes() != text.encode():
            durable.write_text(self.config, text)


def runs_in(folder: Path) -> list[Path]:
    """The run directories in a folder, such as the two of a comparison."""
    return sorted(config.parent for config in folder.glob("*/config.toml"))


class Claim:
    """This run's claim to its directory: checked, then held until the run ends.

    Only the main process calls the methods; all processes enter and leave it.
    """

    def __init__(
        self, run_dir: RunDir, *, resume: Resume, force: bool, inputs: Sequence[Input] = ()
    ) -> None:
        self.run_dir, self.resume, self.force, self.inputs = run_dir, resume, force, inputs
        self._owner: Owner | None = None

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        if self._owner is not None:
            place.disown(self._owner)

    def check(self) -> None:
        """Refuse a folder that we may not write to; writes nothing itself."""
        root = self.run_dir.root
        if self.goes_on():
            place.check_apart(root, ())
            return
        place.check_apart(root, self.inputs)
        if self.run_dir.holds_a_run() and not self.force:
            raise UserError(
                f"{root} already holds a run; continue it with --resume auto, "
                f"or replace it with --force"
            )
        place.check_own(root, TRAIN)

    def take(self) -> bool:
        """Take hold of the folder; returns whether it has a run to resume."""
        self._owner = place.own(self.run_dir.root, TRAIN)
        self.check()  # another process may have begun a run here since
        return self.goes_on()

    def go_on(self, config: RunConfig) -> None:
        """Sign a resumed run, and update its configuration, which may have more steps now."""
        assert self._owner is not None
        self._owner.sign(TRAIN.verb)
        self.run_dir.write_config(config)

    def create(
        self,
        config: RunConfig,
        tokenizer: Path | None = None,
        launch: Sequence[str] = (),
        init_from: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a fresh run; one that it replaces is swapped out in a single step.

        The folder `tokenizer` is copied, so that the model can be used when its data is gone;
        `launch` and `init_from` are those of `write_description`.
        """

        def fill(folder: Path) -> None:
            run_dir = RunDir(folder)
            run_dir.checkpoints.mkdir(parents=True)
            if tokenizer is not None and tokenizer.is_dir():
                run_dir.tokenizer.mkdir()
                for file in sorted(tokenizer.iterdir()):
                    if file.is_file() and TRAIN.knows(("tokenizer", file.name)):
                        durable.write_bytes(run_dir.tokenizer / file.name, file.read_bytes())
            write_description(run_dir, config, launch, init_from)

        assert self._owner is not None
        with or_say(f"cannot make {self.run_dir.root}"):
            if self.run_dir.holds_a_run():
                self._owner = place.renew(self._owner, TRAIN, fill)
            else:
                self._owner.sign(TRAIN.verb)
                place.remove(self._owner.folder, TRAIN)  # leftovers of a call killed right here
                fill(self.run_dir.root)

    def goes_on(self) -> bool:
        """Whether there is a run to resume."""
        return self.resume != "never" and not self.force and self.run_dir.holds_a_run()


def write_description(
    run_dir: RunDir,
    config: RunConfig,
    launch: Sequence[str] = (),
    init_from: Mapping[str, Any] | None = None,
) -> None:
    """Write env.json, then config.toml: any folder with a run also says who began it.

    `launch` names the launch that begins the run (see `distributed.launcher`), `init_from` the
    model whose weights it begins with, if they are not random (see `training.origin`).
    """
    import numpy
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    environment = {
        "id": secrets.token_hex(4),
        "spherelm": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_threads": torch.get_num_threads(),
        "gpu": gpu,
        "command": _command(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "launch": list(launch),
    }
    if init_from is not None:
        environment["init_from"] = dict(init_from)
    records.write(run_dir.env, environment)
    run_dir.write_config(config)


def _command() -> list[str]:
    """The command line; `python -m spherelm`, as under torchrun, becomes `spherelm`."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return [name, *sys.argv[1:]]
