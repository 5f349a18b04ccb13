"""Checks whether a verb may write to a folder, and claims it: new, resumed or replaced.

    check        refuse a folder that this verb may not write to, before anything is written
    owned        hold a folder and write into it: train, compare, prepare
    results      the same for files that replace those of an earlier call: eval, sweep
    whole        a folder that appears in one step when it is complete: export, import
    renew        replace a folder that is held by a new one: --force of train and compare

Only what the verb writes is ever removed. An output is never an input, nor inside one, nor contains
one; and nothing is written into the output of another verb.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spherelm.errors import UserError, or_say
from spherelm.folders import owner as owners
from spherelm.folders import swap
from spherelm.folders.kinds import OWNER, Kind, stranger, walk
from spherelm.folders.owner import Owner, read_record

Input = str | os.PathLike[str] | None


def resolve(out: str | Path) -> Path:
    """The folder that `out` means, through symbolic links; refuses a file, and a ~ that the shell
    has not expanded: whoever deletes a folder named ~ soon deletes their home."""
    with _readable(out):
        if (first := next(iter(Path(out).parts), "")).startswith("~"):
            home = os.path.expanduser(Path(out))
            meant = "" if home == str(Path(out)) else f"{home}, or "  # no such user is known
            raise UserError(
                f"--out {out} means a folder named {first} here, since no shell has expanded the "
                f"~: write {meant}{Path.cwd() / out} if you do mean that"
            )
        path = Path(out).resolve()
        if path.exists() and not path.is_dir():
            raise UserError(f"{out} is a file; --out must be a folder")
        if Path(out).is_symlink() and not path.exists():
            raise _elsewhere(f"--out {out} is a link that leads nowhere")
    return path


@contextlib.contextmanager
def _readable(out: str | Path) -> Iterator[None]:
    """Turn errors from looking at the path `out` into one line."""
    try:
        yield
    except UserError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"--out {out} cannot be used: {reason}") from None


def is_vacant(out: str | Path) -> bool:
    """Whether nothing is there, or only the file `.spherelm` of a call that wrote nothing else."""
    path = resolve(out)
    with _readable(out):
        return not path.exists() or not any(entry != OWNER for entry in os.listdir(path))


def check_apart(out: str | Path, inputs: Sequence[Input]) -> None:
    """Refuse an output that is an input, contains one, or lies inside one or inside another output;
    and one that cannot be written."""
    target = resolve(out)
    for given in inputs:
        if given is None or not os.path.exists(given):  # a name on a hub, or refused elsewhere
            continue
        source = Path(given).resolve()
        if source == target:
            raise _elsewhere(f"--out {out} is an input, too")
        if source in target.parents and source.is_dir():
            raise _elsewhere(f"--out {out} lies inside the input {given}")
        if target in source.parents:
            raise _elsewhere(f"--out {out} holds the input {given}")
    for above in target.parents:
        verb = read_record(above).verb
        if verb is not None and not owners.holds(above):
            raise _elsewhere(f"--out {out} lies inside {above}, which `spherelm {verb}` wrote")
    _check_writable(out, target)


def _check_writable(out: str | Path, target: Path) -> None:
    """Refuse a folder that we have no permission to make or write, before any work is done.

    Checks permissions only; a full disk, for example, is noticed when the folder is taken.
    """
    with _readable(out):
        there = next(path for path in (target, *target.parents) if path.exists())
        if not there.is_dir():
            raise _elsewhere(f"--out {out} lies inside {there}, which is a file")
        effective = os.access in os.supports_effective_ids
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=effective):
            raise _elsewhere(f"--out {out} cannot be used: you may not write in {there}")


def check_own(out: str | Path, kind: Kind) -> None:
    """Refuse a folder that contains anything that this verb did not write."""
    if is_vacant(out):
        return
    path = resolve(out)
    verb = read_record(path).verb
    if verb is not None and verb != kind.verb:
        raise _elsewhere(f"{out} was written by `spherelm {verb}`, not by `spherelm {kind.verb}`")
    with _readable(out):
        foreign = stranger(path, kind)
        if foreign is None and verb is None and not kind.signed(path):
            foreign = min(entry for entry in os.listdir(path) if entry != OWNER)
    if foreign is not None:
        raise _elsewhere(f"{out} holds {foreign}, which `spherelm {kind.verb}` did not write")


def _elsewhere(why: str) -> UserError:
    return UserError(f"{why}; choose another --out")


def check(out: str | Path, kind: Kind, *, force: bool, inputs: Sequence[Input] = ()) -> None:
    """Refuse a folder that a new one may not replace; writes nothing."""
    check_apart(out, inputs)
    check_own(out, kind)
    if not force and not is_vacant(out):
        raise UserError(
            f"{out} already holds {kind.what}; choose another --out, or replace it with --force"
        )


@contextlib.contextmanager
def results(out: str | Path | None, kind: Kind, inputs: Sequence[Input] = ()) -> Iterator[None]:
    """Hold the folder `out`, if any, for results that replace those of an earlier call."""
    if out is None:
        yield
        return
    check_apart(out, inputs)
    check_own(out, kind)
    with owned(out, kind) as owner:
        check_own(out, kind)  # another call may have written here since
        owner.sign(kind.verb)
        yield


@contextlib.contextmanager
def owned(out: str | Path, kind: Kind) -> Iterator[Owner]:
    """Hold the folder `out`, made if needed; if nothing is written there, it is removed again."""
    owner = own(out, kind)
    try:
        yield owner
    finally:
        disown(owner)


def own(out: str | Path, kind: Kind) -> Owner:
    """Hold the folder `out` until `disown`, and remove what killed calls left beside it."""
    path = resolve(out)
    with or_say(f"cannot write {out}"):
        swap.recover(path)
        missing = [p for p in (path, *path.parents) if not p.exists()]
        owner = owners.take(path, kind.verb)
    owner.made = missing
    with contextlib.suppress(OSError, UserError):  # for example, somebody else is building there
        _remove_leftover(swap.beside(path), kind)
    return owner


def disown(owner: Owner) -> None:
    """Release a folder; one that was made and remained empty is removed."""
    if is_vacant(owner.folder):
        owner.remove()
        with contextlib.suppress(OSError):  # somebody else has just begun there
            for path in owner.made:
                path.rmdir()
    elif owner.verb is None:  # not an output of any verb, so it gets no mark
        owner.remove()
    else:
        owner.release()


def disown_all() -> None:
    """Release all folders that this process holds, for an exit that runs no `finally`."""
    for owner in owners.all_held():
        disown(owner)


def renew(owner: Owner, kind: Kind, fill: Callable[[Path], None]) -> Owner:
    """Replace the folder that is held by a new one, filled by `fill`; returns the new claim.

    If killed, either the old folder or the new one remains. The old one must have passed
    `check_own`.
    """
    target = owner.folder
    refuse_working_folder(target)
    new = _build(target, kind)
    try:
        new.sign(kind.verb)
        fill(new.folder)
        swap.put(new.folder, target)
    except BaseException:
        _end(new, kind)
        raise
    new.folder, owner.folder = target, new.folder
    _end(owner, kind)
    return new


@contextlib.contextmanager
def whole(
    out: str | Path, kind: Kind, *, force: bool, inputs: Sequence[Input] = (), marked: bool = True
) -> Iterator[Path]:
    """A folder to fill beside `out`, which takes its place in one step if no error occurs.

    `marked`: whether the mark stays; without, the folder is identified by its signs.
    """
    check(out, kind, force=force, inputs=inputs)
    target = resolve(out)
    refuse_working_folder(target)
    before: Owner | None = None
    with or_say(f"cannot write {out}"):
        swap.recover(target)
        owner = _build(target, kind)
        try:
            if (target / OWNER).exists():  # somebody may be resuming what we are about to replace
                before = owners.take(target, kind.verb)
            check(out, kind, force=force, inputs=inputs)  # another call may just have ended
            owner.sign(kind.verb)
            yield owner.folder
            check(out, kind, force=force, inputs=inputs)  # keep what was written there since
            swap.put(owner.folder, target)
        except BaseException:
            _end(owner, kind)
            if before is not None:
                before.release()
            raise
    owner.folder = target
    if marked:
        owner.release()
    else:
        owner.remove()
    if before is not None:
        before.folder = swap.beside(target)
        _end(before, kind)
    with contextlib.suppress(OSError, UserError):
        _remove_leftover(swap.beside(target), kind)


def refuse_working_folder(target: Path) -> None:
    """Refuse to replace the working folder or one around it, which would vanish under the user."""
    here = Path.cwd()
    if target == here or target in here.parents:
        raise UserError(f"{target} is the folder you are in; start from outside of it")


def remove(folder: Path, kind: Kind) -> None:
    """Remove what `kind` writes, and folders that are then empty; everything else stays."""
    for path, known in walk(folder, kind):
        if not known or path == folder / OWNER:
            continue
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # it holds something that stays
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _build(target: Path, kind: Kind) -> Owner:
    """Hold the empty folder beside `target` in which its replacement is built."""
    place = swap.beside(target)
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise UserError(f"{place} is in the way; move it elsewhere")
    if place.is_dir() and (foreign := stranger(place, kind)) is not None:
        raise UserError(f"{place} is in the way: it holds {foreign}; move it elsewhere")
    try:
        owner = owners.take(place, kind.verb)
    except owners.Held as error:
        raise UserError(str(error).replace(str(place), str(target), 1)) from None
    remove(place, kind)
    if target.exists():  # otherwise the folder put aside is `target` itself
        _remove_leftover(swap.aside(target), kind)
    return owner


def _remove_leftover(place: Path, kind: Kind) -> None:
    """Remove a leftover beside a target, unless somebody is building there or it is not ours."""
    if place.is_symlink() or not place.is_dir() or stranger(place, kind) is not None:
        return
    _end(owners.take(place, kind.verb), kind)


def _end(owner: Owner, kind: Kind) -> None:
    """Remove a folder that we hold."""
    remove(owner.folder, kind)
    owner.remove()
    with contextlib.suppress(OSError):
        owner.folder.rmdir()
