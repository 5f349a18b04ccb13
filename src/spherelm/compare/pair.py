"""Train GPT and nGPT on the same tokens, to be compared (see `comparison`).

Both runs have the same size, steps, batches, order of data and seed; each has the values that suit
it. An interrupted comparison resumes where it stopped.

    DIR/gpt/  DIR/ngpt/    run directories
    result.json            the numbers
    report.html, *.png     the pictures
    inside/                both models' insides
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from spherelm import presets
from spherelm.config import DataConfig, RunConfig, TrainConfig
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.folders.kinds import COMPARE
from spherelm.folders.place import Input
from spherelm.model.config import ARCHS, Arch
from spherelm.runs.run_dir import Resume, RunDir
from spherelm.training.loop import TrainResult, train
from spherelm.training.report.reporter import Reporter
from spherelm.training.resume import check_same_run

RESULT = "result.json"
INSIDE = "inside"
"""The folder of the page that `inspect` makes about both models."""
FILES = (
    *(RESULT, "report.html", "loss.png", "loss-seconds.png", "alpha.png"),
    *(f"{INSIDE}/{name}" for name in ("index.html", "inspect.json", "directions.json")),
)
"""Files beside the two run directories."""


def configure(
    preset: str,
    train: TrainConfig,
    data: DataConfig,
    vocab_size: int,
    rates: Mapping[Arch, float | None],
) -> dict[Arch, RunConfig]:
    """The two runs of a comparison; `rates` replace the preset's highest learning rates, and others
    keep their proportion.

    If `train.steps` is not the preset's, warmup keeps its share of the run.
    """
    runs: dict[Arch, RunConfig] = {}
    for arch in ARCHS:
        base = presets.of_size(preset, arch)
        given, warmup = rates[arch], presets.warmup_for(base, train.steps)
        rate = base.optim.lr if given is None else given
        model = dataclasses.replace(base.model, vocab_size=vocab_size)
        own = base.optim.own_rates_at(rate)
        optim = dataclasses.replace(base.optim, lr=rate, warmup_steps=warmup, **own)
        runs[arch] = RunConfig(model, optim, data, train)
    return runs


def check_data(dataset: TokenDataset) -> None:
    """Refuse data without a validation part, as there would be nothing to compare."""
    if not dataset.has_val:
        raise UserError(
            f"{dataset.path} has no validation part, whose loss is compared; prepare it with "
            "--val-fraction 0.01"
        )


@contextlib.contextmanager
def claimed(
    out: Path,
    runs: Mapping[Arch, RunConfig],
    *,
    resume: Resume,
    force: bool,
    inputs: Sequence[Input] = (),
) -> Iterator[None]:
    """Claim `out` for this comparison, or refuse; `force` replaces an earlier one."""
    _check_claim(out, runs, resume, force, inputs)
    owner = place.own(out, COMPARE)
    try:
        _check_claim(out, runs, resume, force, inputs)  # again: another process may have begun here
        if force and not place.is_vacant(out):
            owner = place.renew(owner, COMPARE, lambda folder: None)
        owner.sign(COMPARE.verb)
        for name in FILES:  # until this comparison ends they would describe another one
            (out / name).unlink(missing_ok=True)
        yield
    finally:
        place.disown(owner)


def _check_claim(
    out: Path,
    runs: Mapping[Arch, RunConfig],
    resume: Resume,
    force: bool,
    inputs: Sequence[Input],
) -> None:
    """Refuse a folder that this comparison may not write to; writes nothing itself."""
    begun = [arch for arch in ARCHS if RunDir(out / arch).holds_a_run()]
    if begun and resume != "never" and not force:
        for arch in begun:
            before, now = RunDir(out / arch).read_config(), runs[arch]
            if before.train.steps != now.train.steps:  # a run may be extended, a comparison not
                raise UserError(
                    f"cannot resume with train.steps = {now.train.steps}: the comparison began "
                    f"with {before.train.steps}; leave it as it was, or start over with another "
                    "--out"
                )
            check_same_run(before, now)
        return
    place.check_apart(out, inputs)
    if place.is_vacant(out):
        return
    if begun and not force:
        raise UserError(
            f"{out} already holds a comparison; continue it with --resume auto, "
            f"or replace it with --force"
        )
    place.check_own(out, COMPARE)


def train_both(
    runs: Mapping[Arch, RunConfig],
    dataset: TokenDataset,
    out: Path,
    reporter: Callable[[Arch], Reporter],
) -> TrainResult | None:
    """Train GPT, then nGPT, each from its newest checkpoint; returns the result of a run that was
    stopped, or None.

    They run one after the other so that each has the whole machine and their times can be compared.
    """
    for arch in ARCHS:
        result = train(runs[arch], dataset, out / arch, resume="auto", reporter=reporter(arch))
        if not result.finished:
            return result
    return None
