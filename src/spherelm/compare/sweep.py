"""The sweep behind the defaults of `spherelm compare`, for anyone to repeat.

    python -m spherelm.compare.sweep --preset nano --out runs/sweep

Both models are tuned alike: four values each, or six with Muon (`--preset nano-muon`), the same
ladders of rates, warmups and momentum, the same seeds, the same rule. Starting from the preset's
own values, the sweep tries every neighbour, one step up or down in one value, and moves to the best
until none is better; a setting is judged by its mean over the seeds. So the final values are an
optimum of the grid: all settings around them were run and lost. The lowest of many means is partly
luck, so the two winners run once more with fresh seeds, which had no part in the choice.

`sweep.csv` gets a row whenever a run ends, and the same command resumes where it stopped. Runs are
in float32 on every device, so that a GPU finds the same as a CPU.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from spherelm import presets
from spherelm.compare.sweep_grid import (
    Grid,
    Plan,
    Seeds,
    Trial,
    configure,
    describe,
    grids_of,
    neighbours,
    setting_of,
)
from spherelm.compare.sweep_record import Record, summary
from spherelm.config_io import override
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.folders.kinds import SWEEP
from spherelm.lifeline import deaf, watched_pool
from spherelm.model.config import Arch
from spherelm.training.failures import Diverged
from spherelm.validate import require_int


def run_trial(plan: Plan, trial: Trial) -> float:
    """The final validation loss of a trial; infinite where it diverged."""
    from spherelm.data.open import open_dataset
    from spherelm.training.loop import train

    dataset = open_dataset(plan.data)
    run = override(configure(plan, trial), {"model.vocab_size": dataset.vocab_size})
    with tempfile.TemporaryDirectory(prefix="spherelm-sweep-") as scratch:
        try:
            result = train(run, dataset, Path(scratch) / "run")
        except Diverged:
            return math.inf
    assert result.val_loss is not None
    return result.val_loss


def sweep(
    plan: Plan, record: Record, *, seeds: Seeds, jobs: int, grids: Mapping[Arch, Grid]
) -> None:
    """Descend from the preset's values until no neighbour is better; rerun the winners with fresh
    seeds."""
    with watched_pool(jobs, _start_worker, plan.cores) as (pool, lifeline):
        try:
            _climb(pool, plan, record, seeds, grids)
        except BrokenProcessPool:
            raise UserError(
                "a run has died, perhaps for want of memory; the same command goes on from here, "
                "with fewer --jobs if needed"
            ) from None
        except BaseException:
            lifeline.close()  # ends the active runs; otherwise all queued ones would still run
            raise


def _start_worker(cores: int) -> None:
    import torch

    torch.set_num_threads(cores)


def _climb(
    pool: ProcessPoolExecutor,
    plan: Plan,
    record: Record,
    seeds: Seeds,
    grids: Mapping[Arch, Grid],
) -> None:
    where = {
        arch: setting_of(presets.of_size(plan.preset, arch), grid) for arch, grid in grids.items()
    }
    moved = True
    while moved:
        around = {arch: (here, *neighbours(here, grids[arch])) for arch, here in where.items()}
        trials = (
            Trial(arch, setting, seed)
            for arch, settings in around.items()
            for setting in settings
            for seed in seeds.chosen_by
        )
        _run(pool, plan, record, trials)
        best = {arch: record.best(arch, seeds.chosen_by) for arch in grids}
        moved, where = best != where, best
    _run(pool, plan, record, (Trial(*w, seed) for w in where.items() for seed in seeds.fresh))


def _run(pool: ProcessPoolExecutor, plan: Plan, record: Record, trials: Iterable[Trial]) -> None:
    waiting = [trial for trial in trials if trial not in record.losses]
    with deaf():  # submitting starts processes
        futures = {pool.submit(run_trial, plan, trial): trial for trial in waiting}
    for done, future in enumerate(as_completed(futures), start=1):
        trial, loss = futures[future], future.result()
        record.add(trial, loss)
        line = f"{trial.arch:<4}  {describe(trial.setting)}  seed {trial.seed}: {loss:.4f}"
        print(f"[{done}/{len(waiting)}] {line}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spherelm.compare.sweep",
        description="Find the tuned values of each model of a small preset.",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for sweep.csv")
    parser.add_argument("--preset", default="nano", help="debug, nano or nano-muon")
    parser.add_argument("--data", help="folder of token shards; default: the built-in corpus")
    parser.add_argument("--steps", type=int, help="steps of each run; default: the preset's")
    parser.add_argument("--seeds", type=int, default=3, help="runs of every setting")
    parser.add_argument("--fresh", type=int, help="fresh seeds of the winners; default: --seeds")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps or auto")
    flags = parser.parse_args(argv)

    from spherelm.compare.pair import check_data
    from spherelm.data.open import open_dataset

    try:
        for name in ("jobs", "seeds", "fresh", "steps"):
            if (count := getattr(flags, name)) is not None:
                require_int(f"--{name}", count)
        cores = max(1, (os.cpu_count() or 1) // flags.jobs)
        steps = flags.steps or presets.of_size(flags.preset, "gpt").train.steps
        grids = grids_of(flags.preset)
        seeds = Seeds(flags.seeds, flags.fresh or flags.seeds)
        plan = Plan(flags.preset, flags.data, flags.device, steps, cores)
        dataset = open_dataset(flags.data)
        check_data(dataset)
        with place.results(flags.out, SWEEP, inputs=[flags.data]):
            file = flags.out / "sweep.csv"
            record = Record(file, flags.preset, steps, dataset.fingerprint)
            sweep(plan, record, seeds=seeds, jobs=flags.jobs, grids=grids)
    except UserError as error:
        print(f"spherelm: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("spherelm: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(summary(record, seeds, grids), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
