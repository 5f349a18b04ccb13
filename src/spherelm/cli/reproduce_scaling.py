"""`spherelm reproduce scaling`: the runs of the study, its records, tables and figures."""

from __future__ import annotations

from pathlib import Path

from spherelm.cli.reproduce_flags import ReproduceFlags
from spherelm.errors import UserError


def main(flags: ReproduceFlags) -> int:
    from spherelm.paper import store
    from spherelm.paper.scaling import grid, page, settings

    if not flags.results:
        raise UserError("--results is empty; name a folder")
    results = Path(flags.results)
    records = results / "data" / flags.item
    if flags.redraw:
        for path in page.redraw(results):
            print(path)
        return 0
    shows = flags.list or flags.dry_run
    if flags.rehearse and not shows and results.resolve() == settings.OURS.resolve():
        raise UserError(
            f"--rehearse must not write among the results in {results}; name another folder with "
            "--results"
        )
    if flags.time:
        from spherelm.paper.scaling import times

        for measured in times.measure(times.chosen(flags.only), flags.rehearse, _say):
            _say(str(times.keep(results, measured)))
        return 0
    points = grid.chosen(flags.only)
    if flags.list:
        for point in points:
            done = "done" if store.has(records, point.id) else "    "
            print(f"{done}  {point.millions:>4}M tokens  {point.id}")
        return 0
    if flags.dry_run:
        from spherelm.config_io import to_toml

        for point in points:
            if not store.has(records, point.id):
                print(f"# {point.id}\n{to_toml(point.config())}")
        return 0
    if flags.out is None:
        raise UserError("--out must be given: the folder for the run directories")
    if flags.data is None and not flags.rehearse:
        raise UserError("--data must be given: the folder of tokens that `spherelm prepare` made")

    from spherelm.paper.runner import Runner

    Path(flags.out).mkdir(parents=True, exist_ok=True)
    Runner(
        [point.job(flags.rehearse) for point in points],
        flags.data,
        Path(flags.out),
        records,
        workers=2 if flags.workers is None else flags.workers,
        seconds=None if flags.minutes is None else 60 * flags.minutes,
        say=_say,
    ).run()
    for path in page.redraw(results):
        print(path)
    return 0


def _say(line: str) -> None:
    print(line, flush=True)
