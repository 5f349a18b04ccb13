"""Curves for TensorBoard and Weights & Biases; both are optional and get the same numbers."""

from __future__ import annotations

import contextlib
import netrc
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spherelm import records
from spherelm.config import RunConfig
from spherelm.config_io import to_dict
from spherelm.errors import UserError, first_line, or_say, package
from spherelm.runs.run_dir import RunDir


def check_trackers(run: RunConfig) -> None:
    """Refuse, before anything is written, a tracker that would fail when the run starts."""
    if run.train.wandb_project is None:
        return
    _wandb()
    if not _logged_in():
        raise UserError(
            "train.wandb_project needs a login: run `wandb login` or set WANDB_API_KEY, "
            "or set WANDB_MODE=offline"
        )


def _wandb() -> Any:
    return package("wandb", "train.wandb_project", "track")


def _logged_in() -> bool:
    """Whether Weights & Biases will find a key, or needs none."""
    if os.environ.get("WANDB_MODE") in ("offline", "dryrun", "disabled"):
        return True
    if any(os.environ.get(f"WANDB_{name}") for name in ("API_KEY", "IDENTITY_TOKEN_FILE")):
        return True
    server = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    named = os.environ.get("NETRC")
    for file in [named] if named else ["~/.netrc", "~/_netrc"]:
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            if netrc.netrc(os.path.expanduser(file)).authenticators(server or "") is not None:
                return True
    return False


class TensorBoard:
    """Event files. On resume, events that the interrupted run wrote after its checkpoint are
    purged; all of them if it had no checkpoint yet."""

    def __init__(self, folder: Path, start_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder, self._closed = folder, False
        # Before creating the writer, whose thread begins to write at once.
        self._before, threading.excepthook = threading.excepthook, self._thread_ended
        try:
            with or_say(f"cannot write {folder}"):
                self._writer = SummaryWriter(str(folder), purge_step=start_step + 1)
        except BaseException:
            self._let_go()
            raise

    def log(self, record: Mapping[str, Any]) -> None:
        with or_say(f"cannot write {self._folder}"):
            for name, value in _scalars(record):
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        try:
            with or_say(f"cannot write {self._folder}"):
                self._writer.close()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Restore the previous hook, skipping those of closed writers. A hook that somebody else
        has set since stays; it may still call ours."""
        self._closed = True
        hook: Any = threading.excepthook
        while isinstance(ours := getattr(hook, "__self__", None), TensorBoard) and ours._closed:
            hook = threading.excepthook = ours._before

    def _thread_ended(self, ended: threading.ExceptHookArgs) -> None:
        """Ignore a full disk in the writer's thread, since `log` raises that too; pass on all other
        errors of threads."""
        written = isinstance(ended.exc_value, OSError)
        if not (written and type(ended.thread).__module__.startswith("tensorboard.")):
            self._before(ended)


class WeightsAndBiases:
    """A run on Weights & Biases, named after the run directory and resumed with it.

    Other run directories may have the same name, and so has one that is started over; the id in
    env.json tells them apart.
    """

    def __init__(self, run: RunConfig, folder: Path) -> None:
        wandb, env = _wandb(), RunDir(folder).env
        own = records.read(env).get("id") if env.is_file() else None
        try:
            self._run = wandb.init(
                project=run.train.wandb_project,
                name=folder.name,
                id=f"{folder.name}-{own}" if own else folder.name,  # runs of old versions have none
                dir=str(folder),
                resume="allow",
                config=to_dict(run),
            )
        except wandb.errors.Error as error:
            raise UserError(f"Weights & Biases refused the run: {first_line(error)}") from None

    def log(self, record: Mapping[str, Any]) -> None:
        self._run.log(dict(_scalars(record)), step=record["step"])

    def close(self) -> None:
        self._run.finish()


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of metrics; a list is one curve per layer."""
    for name, value in record.items():
        if isinstance(value, list):
            yield from ((f"{name}/layer_{i}", v) for i, v in enumerate(value))
        elif isinstance(value, (int, float)) and name != "step":
            yield name, value


Tracker = TensorBoard | WeightsAndBiases


def open_trackers(run: RunConfig, tensorboard_folder: Path, start_step: int) -> list[Tracker]:
    """The trackers that the configuration asks for; TensorBoard only if it is installed."""
    trackers: list[Tracker] = []
    if run.train.tensorboard:
        with contextlib.suppress(ModuleNotFoundError):
            trackers.append(TensorBoard(tensorboard_folder, start_step))
    if run.train.wandb_project is not None:
        try:
            trackers.append(WeightsAndBiases(run, tensorboard_folder.parent))
        except BaseException:
            for tracker in trackers:
                tracker.close()
            raise
    return trackers
