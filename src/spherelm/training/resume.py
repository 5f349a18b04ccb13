"""Where a resumed run continues, and which configuration it may have.

It continues from the newest checkpoint, or if that is damaged, from the one before. If a line of
metrics.jsonl is damaged, it goes back to the newest of the recent checkpoints before that line, so
that the steps write it again. Fields that decide the run's numbers must not have changed.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spherelm import records
from spherelm.config import RunConfig
from spherelm.config_io import flatten, from_dict, to_dict
from spherelm.data.dataset import TokenDataset
from spherelm.data.tokenizer_load import load_saved_tokenizer
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.load import foreign_tokens
from spherelm.runs.metrics import read_lines, what_is_wrong
from spherelm.runs.run_dir import RunDir
from spherelm.runs.state import TrainState, began, is_imported

MAY_CHANGE = {
    "parallel.tensor",
    "parallel.replicate",
    "parallel.timeout",
    "parallel.start_timeout",
    "data.path",  # the data itself is compared by its fingerprint
    "train.steps",
    "train.device",
    "train.micro_batch_size",
    "train.activation_checkpointing",
    "train.attention",
    "train.compile",
    "train.cuda_graphs",
    "train.deterministic",
    "train.log_every",
    "train.eval_every",
    "train.eval_sequences",
    "train.checkpoint_every",
    "train.keep_last",
    "train.background_checkpoints",
    "train.tensorboard",
    "train.wandb_project",
}
"""Fields that say where, how often or how long, and do not change what is learned."""


@dataclass(frozen=True)
class Found:
    """The checkpoint that a run continues from."""

    checkpoint: Path
    state: dict[str, Any]
    """The content of its state.json."""
    notes: tuple[str, ...]
    """What was skipped, and why."""


def restore(
    state: TrainState, dataset: TokenDataset, run_dir: RunDir, processes: Processes, strict: bool
) -> tuple[str, ...]:
    """Continue from a checkpoint of `run_dir`, if there is one; returns notes for the user."""

    def find() -> Found | None:
        """The checkpoint to continue from, which must have this configuration and this data."""
        check_same_run(run_dir.read_config(), state.run)  # even if there is no checkpoint yet
        found = find_checkpoint(run_dir, state.run.train.keep_last, strict)
        if found is not None:
            check_state(found, state.run)
            check_same_data(found, run_dir, dataset)
        return found

    processes.at("reading the checkpoint", long=True)
    found = processes.from_main(find)
    if found is None:
        return ()
    state.load(found.checkpoint, found.state)
    return (*found.notes, f"resuming from {found.checkpoint}", *_other_end(found, state.run))


def _other_end(found: Found, run: RunConfig) -> tuple[str, ...]:
    """A note if the run now ends at another step: intended, or because the preset was given again
    without the --steps of the first time."""
    if is_imported(found.state):  # it had no last step
        return ()
    file = found.checkpoint / "state.json"
    before = from_dict(RunConfig, found.state["config"], file).train.steps
    if before == run.train.steps:
        return ()
    return (f"ending at step {run.train.steps}, not {before}, and the schedule with it",)


def find_checkpoint(run_dir: RunDir, keep_last: int, strict: bool) -> Found | None:
    """The checkpoint to continue from; None if there is none yet. Damaged ones are set aside.

    With `strict`, anything damaged is refused instead.
    """
    checkpoints.clear_leftovers(run_dir.checkpoints)
    there = checkpoints.list_checkpoints(run_dir.checkpoints)
    lines = read_lines(run_dir.metrics)
    damaged: dict[Path, str] = {}
    sound: list[tuple[Path, dict[str, Any], str | None]] = []
    """Newest first, each with what is wrong with the metrics up to it, if anything."""
    for path in reversed(there):
        if sound and (sound[-1][2] is None or path not in there[-keep_last:]):
            break  # all is well, or this one, kept for its loss, is too far back to repair a line
        try:
            state = checkpoints.verify(path)
        except records.Damaged as error:
            if strict:
                raise
            damaged[path] = str(error)
            continue
        records.field({"began": 0, **state}, "began", int, path / "state.json")
        wrong = what_is_wrong(lines, began(state) + 1, state["step"])
        if wrong is not None and strict:
            raise records.damaged(run_dir.metrics, wrong)
        sound.append((path, state, wrong))
    if damaged and not sound:
        raise UserError(f"{next(iter(damaged.values()))}; start over with --force")
    if not sound:
        return None
    notes = [f"{said}; now {checkpoints.set_aside(path).name}" for path, said in damaged.items()]
    newest, last = sound[0], sound[-1]
    if last[2] is not None:  # going back cannot repair the line; the recorder says so
        return Found(newest[0], newest[1], tuple(notes))
    if last is not newest:
        back = f"going back to {last[0].name} to write it again"
        notes.append(f"{run_dir.metrics}: {newest[2]}; {back}")
    return Found(last[0], last[1], tuple(notes))


def check_state(found: Found, run: RunConfig) -> None:
    """Refuse a checkpoint with another configuration, or one beyond the end of the run."""
    file = found.checkpoint / "state.json"
    written = from_dict(RunConfig, records.field(found.state, "config", dict, file), file)
    if not is_imported(found.state):
        records.field(found.state, "random", dict, file)
        loader = records.field(found.state, "loader", dict, file)
        for name, kind in (("consumed", int), ("seed", int), ("context", int), ("data", str)):
            records.field(loader, name, kind, file)
    check_same_run(written, run)
    if (step := found.state["step"]) > run.train.steps:
        raise UserError(
            f"cannot resume with train.steps = {run.train.steps}: the run is at step {step}; "
            f"give --steps {step} or more, or start over with another --out"
        )


def check_same_data(found: Found, run_dir: RunDir, dataset: TokenDataset) -> None:
    """Refuse other data than before; an imported model accepts any made by its tokenizer."""
    if not is_imported(found.state):
        if found.state.get("data") != dataset.fingerprint:
            raise UserError(
                f"{found.checkpoint} was trained on other data than {dataset.path}; "
                f"give the same --data to resume"
            )
    elif run_dir.tokenizer.is_dir():
        own = load_saved_tokenizer(run_dir.tokenizer)
        if foreign_tokens(dataset, own) is not None:
            raise UserError(
                f"{dataset.path} was not made by the tokenizer of {run_dir.root} ({own.name}); "
                f"prepare it with --tokenizer {shlex.quote(str(run_dir.tokenizer))}"
            )


def check_same_run(before: RunConfig, now: RunConfig) -> None:
    """Refuse to resume with a configuration that would make it another run."""
    old, new = dict(flatten(to_dict(before))), dict(flatten(to_dict(now)))
    other_data = before.data.path != now.data.path
    for field in old | new:  # model.arch first: much else follows from it
        if field not in MAY_CHANGE and old.get(field) != new.get(field):
            given, remedy = str(new.get(field, "unset")), "leave it as it was"
            if field == "model.vocab_size" and other_data:  # set by the data, not by the user
                given += f", that of {now.data.path or 'the built-in corpus'}"
                remedy = "give the same --data"
            raise UserError(
                f"cannot resume with {field} = {given}: the run began with "
                f"{old.get(field, 'unset')}; {remedy}, or start over with another --out"
            )
