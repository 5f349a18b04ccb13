"""What the folder of each verb looks like, and whether a folder is of that kind.

A verb writes only known names, and a mark (`.spherelm`, see `owner`) that says which verb it was.
`--force` replaces a folder only if both match; a file of any other name is never removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OWNER = ".spherelm"
"""The file in a folder that says which verb wrote it and who writes there now."""

_TEMPORARY = re.compile(r"\.(.+)\.(?:writing|removing|replaced)")
"""The name of something being written or removed, which contains its final name."""


@dataclass(frozen=True)
class Kind:
    """The folder that a verb writes."""

    verb: str
    what: str
    """What the folder holds, with an article: "a run"."""
    names: tuple[str, ...]
    """Every path in it: one pattern for each part, separated by /; ** is anything below."""
    signs: tuple[tuple[str, ...], ...] = ()
    """Groups of files that only this verb writes together; any group identifies the folder if it
    has no mark."""

    @cached_property
    def _parts(self) -> list[list[re.Pattern[str] | None]]:
        return [
            [None if part == "**" else re.compile(part) for part in name.split("/")]
            for name in (*self.names, re.escape(OWNER))
        ]

    def signed(self, folder: Path) -> bool:
        """Whether `folder` has the signs of this verb."""
        return any(all((folder / name).is_file() for name in names) for names in self.signs)

    def knows(self, path: Sequence[str], folder: bool = False) -> bool:
        """Whether the verb writes this path, or if it is a `folder`, something inside."""
        path = [m[1] if (m := _TEMPORARY.fullmatch(part)) else part for part in path]
        return any(_fits(path, parts, folder) for parts in self._parts)


def _fits(path: Sequence[str], parts: Sequence[re.Pattern[str] | None], folder: bool) -> bool:
    for part, pattern in zip(path, parts, strict=False):
        if pattern is None:
            return True
        if not pattern.fullmatch(part):
            return False
    return len(path) == len(parts) or (folder and len(path) < len(parts))


def walk(folder: Path, kind: Kind, above: tuple[str, ...] = ()) -> Iterator[tuple[Path, bool]]:
    """Every path in `folder`, innermost first, and whether `kind` knows it.

    Symbolic links are not followed, and unknown folders not entered. `above` is the path from the
    folder of `kind` to this one.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path, inner = (*above, entry.name), Path(entry.path)
        is_folder = entry.is_dir(follow_symlinks=False)
        known = kind.knows(path, folder=is_folder or entry.is_symlink())
        if known and is_folder:
            yield from walk(inner, kind, path)
        yield inner, known


def stranger(folder: Path, kind: Kind) -> str | None:
    """A path in `folder` that `kind` does not know, relative to it; None if there is none."""
    for path, known in walk(folder, kind):
        if not known:
            return path.relative_to(folder).as_posix()
    return None


_TOKENIZER = (
    r"tokenizer/(?:spherelm-tokenizer\.json|tokenizer\.json|tokenizer\.model|"
    r"tokenizer_config\.json|.*(?:encoder\.json|vocab\.bpe|vocab\.json|merges\.txt))",
)
_RUN = (
    r"config\.toml",
    r"env\.json",
    r"metrics\.jsonl",
    r"speed\.jsonl",
    r"tensorboard/events\.out\.tfevents\..*",
    "wandb/**",
    *_TOKENIZER,
    r"checkpoints/step_\d+(?:\.damaged)?/shard-\d+-model-\d+-of-\d+\.safetensors",
    r"checkpoints/step_\d+(?:\.damaged)?/(?:state|manifest)\.json",
)

TRAIN = Kind("train", "a run", _RUN, signs=(("config.toml", "env.json"),))
IMPORT = Kind("import", "an imported run", _RUN)
COMPARE = Kind(
    "compare",
    "a comparison",
    (
        *(f"(?:gpt|ngpt)/{name}" for name in (*_RUN, re.escape(OWNER))),
        r"result\.json",
        r"report\.html",
        r"(?:loss|loss-seconds|alpha)\.png",
        r"inside/(?:index\.html|(?:inspect|directions)\.json)",
    ),
    signs=(("gpt/config.toml", "gpt/env.json"),),
)
PREPARE = Kind(
    "prepare",
    "prepared data",
    (
        r"prepare\.json",
        r"dataset\.json",
        r"(?:train|val)-\d{5,}\.(?:tokens|starts|json)",
        *_TOKENIZER,
    ),
    signs=(("prepare.json",),),
)
EXPORT = Kind(
    "export",
    "an export",
    (
        r"(?:config|generation_config|tokenizer|tokenizer_config)\.json",
        r"model\.safetensors",
        r"tokenizer\.model",
        r"(?:configuration|modeling)_spherelm\.py",
        r"spherelm(?:-tokenizer)?\.json",
        r"README\.md",
    ),
    signs=(("spherelm.json",),),
)
EVAL = Kind(
    "eval",
    "results of an evaluation",
    (r"length\.(?:json|png)", r"tasks\.json", r"answers\.jsonl"),
    signs=(("length.json",), ("tasks.json",), ("answers.jsonl",)),
)
REPORT = Kind("report", "a report of runs", (r"report\.html",), signs=())
_RUN_ID = r"[\w.-]+"
REPRODUCE = Kind(
    "reproduce",
    "reproductions",
    (
        r"reproduce\.json",
        r"index\.html",
        rf"runs/{_RUN_ID}\.(?:toml|log)",
        *(rf"runs/{_RUN_ID}/{name}" for name in (*_RUN, re.escape(OWNER))),
        rf"records/{_RUN_ID}/(?:config\.toml|metrics\.jsonl|result\.json)",
        rf"measured/{_RUN_ID}/[a-z0-9_-]+\.json",
        r"[a-z-]+/(?:index\.html|result\.md|result\.json)",
        r"[a-z-]+/pictures/[a-z0-9-]+\.svg",
    ),
    signs=(("reproduce.json",),),
)
"""Identified only by its signs: a mark would stop `spherelm train` from resuming its runs."""
SWEEP = Kind("sweep", "a sweep", (r"sweep\.csv",), signs=(("sweep.csv",),))
INSPECT = Kind(
    "inspect",
    "a look inside",
    (r"index\.html", r"(?:inspect|directions)\.json", r"pictures/[a-z-]+\.(?:svg|png)"),
    signs=(("index.html", "inspect.json"),),
)
