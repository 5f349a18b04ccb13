"""Compares what must be the same in all processes of a run, before any of them computes.

A rank with another rate, seed, context or data would go unnoticed, and one with another batch size
would wait forever. So each publishes its settings, and the first one compares them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed import DistError, Store  # type: ignore[attr-defined]

from spherelm import __version__
from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.errors import UserError

LOCAL = {"data.path"}
"""Fields that may differ between machines; that the data is the same, its fingerprint tells."""
SHOWN = 4
"""The most differences that the error names."""


def facts(run: RunConfig, data: str, out: Path) -> dict[str, str]:
    """The settings of this process, by field; `data` is the fingerprint of its data."""
    return {
        "spherelm's version": __version__,
        "torch's version": torch.__version__,
        "the data's fingerprint": data,
        "--out": str(out.absolute()),
        **{name: repr(value) for name, value in flatten(to_dict(run)) if name not in LOCAL},
    }


def agree(store: Store, rank: int, world_size: int, mine: Mapping[str, str], wait: float) -> None:
    """Wait for all processes, at most `wait` seconds, and check that their settings are the same.

    If not, all of them raise the same error. Nothing here blocks inside a call of torch, so Ctrl-C
    works.
    """
    try:
        verdict = _ask(store, rank, world_size, mine, wait)
    except DistError:
        verdict = "rank 0 ended before all processes had started"
    if verdict:
        raise UserError(verdict, everywhere=True)


def _ask(store: Store, rank: int, world_size: int, mine: Mapping[str, str], wait: float) -> str:
    """What is wrong, in one line; empty if all agree."""
    store.set(f"facts_{rank}", json.dumps(mine))
    if rank:
        if _wait_for(store, ["verdict"], wait + 30):
            return f"rank 0 did not start within {wait:g} s (parallel.start_timeout)"
        verdict = store.get("verdict").decode()
        store.set(f"heard_{rank}", "")
        return verdict
    missing = _wait_for(store, [f"facts_{r}" for r in range(world_size)], wait)
    if missing:
        late = [int(key.removeprefix("facts_")) for key in missing]
        verdict = (
            f"{named(late)} did not start within {wait:g} s (parallel.start_timeout); "
            "see what happened there"
        )
    else:
        answers = store.multi_get([f"facts_{r}" for r in range(world_size)])
        verdict = difference([json.loads(answer) for answer in answers])
    store.set("verdict", verdict)
    if verdict:  # we are about to end, and the store may end with us
        others = [f"heard_{r}" for r in range(1, world_size) if f"facts_{r}" not in missing]
        _wait_for(store, others, 5)
    return verdict


def difference(answers: list[dict[str, str]]) -> str:
    """One line that says how the processes differ, and which ones; empty if they agree."""
    found = []
    for field in dict.fromkeys(key for answer in answers for key in answer):
        ranks: dict[str, list[int]] = {}
        for rank, answer in enumerate(answers):
            ranks.setdefault(answer.get(field, "missing"), []).append(rank)
        if len(ranks) > 1:
            values = (f"{value} on {named(who)}" for value, who in ranks.items())
            found.append(f"{field} is {' and '.join(values)}")
    if not found:
        return ""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return (
        f"the processes of this run differ: {'; '.join(found[:SHOWN])}{more}; "
        "give all of them the same command, data and installation"
    )


def named(ranks: list[int]) -> str:
    """[1] -> "rank 1"; [0, 2, 3, 4] -> "ranks 0, 2-4"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    shown = (f"{s[0]}-{s[-1]}" if len(s) > 1 else f"{s[0]}" for s in spans)
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(shown)}"


def _wait_for(store: Any, keys: list[str], seconds: float) -> list[str]:
    """Wait until all keys are set; returns those still missing when the time is up."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while missing := [key for key in keys if not store.check([key])]:
        if time.monotonic() > deadline:
            return missing
        keys = missing
        time.sleep(pause)
        pause = min(0.1, 1.5 * pause)
    return []
