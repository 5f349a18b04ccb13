"""`spherelm reproduce ITEM`: a figure or table of the paper, our result beside the paper's."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spherelm.cli.reproduce_flags import ReproduceFlags
from spherelm.console import counted, entries, format_count, paragraph, print_table, show
from spherelm.errors import UserError
from spherelm.flags import given, parse

if TYPE_CHECKING:
    from spherelm.paper.item import Item
    from spherelm.paper.reproduce import Request
    from spherelm.paper.size import Size

STUDY_ALONE = {"results", "rehearse", "time"}
ITEMS_ALONE = {"size", "tasks_dir", "books", "records", "device", "tflops", "json"}
"""Flags that only the study takes, and flags that only items take."""


def main(argv: list[str]) -> int:
    flags = parse(ReproduceFlags, argv, "reproduce")

    from spherelm.paper import registry

    of_study = flags.item == registry.STUDY
    for name in sorted(given(argv) & (ITEMS_ALONE if of_study else STUDY_ALONE)):
        whose = "not for" if of_study else "for"
        raise UserError(f"--{name.replace('_', '-')} is {whose} {registry.STUDY}; leave it out")
    if of_study:
        from spherelm.cli import reproduce_scaling

        return reproduce_scaling.main(flags)
    if not flags.item and not flags.list:
        names = ", ".join((*registry.NAMES, registry.STUDY, registry.ALL))
        raise UserError(f"name what to reproduce: {names}; --list says more")
    every = flags.item in ("", registry.ALL)
    items = registry.items() if every else [registry.get(flags.item)]
    if flags.list:
        return _list(items, flags)
    return _reproduce(items, flags)


def _size(name: str, tflops: float | None) -> Size:
    from spherelm.paper import sizes

    size = sizes.get(name)
    if tflops is None:
        return size
    return dataclasses.replace(size, flops=tflops * 1e12, measured="as --tflops says")


# --- the list ------------------------------------------------------------------------------------


def _list(items: list[Item], flags: ReproduceFlags) -> int:
    from spherelm.paper import registry, sizes

    sizes.get(flags.size)  # all sizes are listed, but an unknown --size is still a mistake
    shown = [
        _size(size.name, flags.tflops if size.device == "GPU" else None)
        for size in sizes.SIZES.values()
        if not size.hidden
    ]
    found: list[dict[str, Any]] = []
    for item in items:
        costs = {}
        for size in shown:
            jobs = item.jobs(size)
            hours = sum(map(size.hours, jobs))
            costs[size.name] = {"runs": len(jobs), "hours": hours, "device": size.device}
        found.append(
            {"item": item.name, "source": item.source, "shows": item.shows, "costs": costs}
        )

    def print_all() -> None:
        listed = []
        for each in found:
            costs = [
                f"{size.name} {size.cost(cost['hours'])} ({counted(cost['runs'], 'run')})"
                for size, cost in zip(shown, each["costs"].values(), strict=True)
            ]
            trains = any(cost["runs"] for cost in each["costs"].values())
            cost = " · ".join(costs) if trains else "nothing to train"
            listed += [(each["item"], f"{each['source']}: {each['shows']}"), ("", cost)]
        if flags.item in ("", registry.ALL):
            listed += [
                (registry.STUDY, "the study of docs/results/headline.md, with runs of its own"),
                (registry.ALL, f"every item but {registry.STUDY}"),
            ]
        print(entries("", listed))
        print()
        print(
            paragraph(
                "Items share runs: what one has trained costs the next nothing. Not counted: the "
                "start of each run, and what is measured after training."
            )
        )
        for size in shown:
            print(paragraph(f"{size.name}: {size.what}; {size.speed}"))

    return show({"items": found}, flags.json, print_all)


# --- an item -------------------------------------------------------------------------------------


def _reproduce(items: list[Item], flags: ReproduceFlags) -> int:
    from spherelm.paper.reproduce import Request, reproduce

    def folder(name: str | None) -> Path | None:
        return None if name is None else Path(name)

    size = _size(flags.size, flags.tflops)
    if flags.out is None and not flags.dry_run:
        raise UserError("--out must be given: the folder for the runs and the pages")
    request = Request(
        items,
        size,
        Path(flags.out or "OUT"),
        data=flags.data,
        tasks=folder(flags.tasks_dir),
        books=folder(flags.books),
        known=folder(flags.records),
        only=flags.only,
        workers=flags.workers,
        minutes=flags.minutes,
        redraw=flags.redraw,
        device=flags.device,
    )
    if flags.dry_run:
        return _plan(request, flags)
    pages = reproduce(request, lambda line: print(line, file=sys.stderr, flush=True))
    results = {page.name: str(page / "result.json") for page in pages}

    def print_pages() -> None:
        for page in pages:
            print(page / "index.html")

    if flags.json and len(pages) == len(items) == 1:
        print((pages[0] / "result.json").read_text().strip())
        return 0
    return show({"pages": results}, flags.json, print_pages)


def _plan(request: Request, flags: ReproduceFlags) -> int:
    """Print every run with its cost; nothing is written."""
    from spherelm.paper.named import named
    from spherelm.paper.plan import plan

    size = request.size
    planned = plan(request.items, size, request.is_done, flags.out or "OUT", flags.data)
    planned = named(planned, flags.only, lambda run: run.job.id, "--dry-run")
    left = sum(p.hours for p in planned if not p.done)
    result = {
        "size": size.name,
        "device": size.device,
        "flops_per_second": size.flops,
        "hours": sum(p.hours for p in planned),
        "hours_left": left,
        "runs": [p.as_json() for p in planned],
    }

    def print_plan() -> None:
        unit = size.unit
        rows = [
            [
                p.job.id,
                f"{p.job.config.train.steps:,}",
                format_count(p.job.tokens),
                f"{p.job.flops:.2e}",
                size.amount(p.hours),
                "done" if p.done else "",
            ]
            for p in planned
        ]
        head = ["run", "steps", "tokens", "FLOPs", unit, "state"]
        print_table(None, rows, head, words=("state",))
        print(
            f"{sum(p.done for p in planned)} of {counted(len(planned), 'run')} done; left: "
            f"{size.cost(left)}, by {size.speed}"
        )
        for p in planned:
            if p.command is not None and not p.done:
                print(f"\n# {p.job.id}: {size.cost(p.hours)}\n{p.command}")

    return show(result, flags.json, print_plan)
