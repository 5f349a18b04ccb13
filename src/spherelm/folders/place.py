"""May this verb write here, and a folder to write to: new, gone on with, or replaced.

    check        refuse what is not this verb's to write, before anything is written
    owned        hold a folder and write into it: train, compare, prepare
    results      the same for files that replace those of an earlier call: eval, sweep
    whole        a folder that appears in one step when all of it is there: export, import
    renew        put a new folder in the place of one that is held: --force of train and compare

Nothing is ever removed that the verb does not write. An input is never an output, nor around it,
nor inside it; and nothing is written into what another call has written.
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
    """The folder that `out` means, through symbolic links; a file there is refused, and so is a
    home that the shell has left as it was typed: a folder named ~ is soon removed with all else."""
    with _readable(out):
        if (first := next(iter(Path(out).parts), "")).startswith("~"):
            home = os.path.expanduser(Path(out))
            meant = "" if home == str(Path(out)) else f"{home}, or "  # no such user is known
            raise UserError(
                f"--out {out} means a folder named {first} here, since no shell has replaced the "
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
    """A name that cannot be looked at ends in one line."""
    try:
        yield
    except UserError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"--out {out} cannot be used: {reason}") from None


def is_vacant(out: str | Path) -> bool:
    """Whether nothing is there, or nothing but the mark of a call that came no further."""
    path = resolve(out)
    with _readable(out):
        return not path.exists() or not any(entry != OWNER for entry in os.listdir(path))


def check_apart(out: str | Path, inputs: Sequence[Input]) -> None:
    """Refuse an output that is an input, holds one, or lies in one or in another's output, and one
    that cannot be made."""
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
    """Refuse a folder that may not be made or filled, before there is anything to put in it.

    This only looks: whether the disk has room, say, is seen when the folder is held.
    """
    with _readable(out):
        there = next(path for path in (target, *target.parents) if path.exists())
        if not there.is_dir():
            raise _elsewhere(f"--out {out} lies inside {there}, which is a file")
        effective = os.access in os.supports_effective_ids
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=effective):
            raise _elsewhere(f"--out {out} cannot be used: you may not write in {there}")


def check_own(out: str | Path, kind: Kind) -> None:
    """Refuse a folder that holds anything but what this verb wrote; `out` is a folder."""
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
    """Refuse a folder that a new one may not take the place of; nothing is written."""
    check_apart(out, inputs)
    check_own(out, kind)
    if not force and not is_vacant(out):
        raise UserError(
            f"{out} already holds {kind.what}; choose another --out, or replace it with --force"
        )


@contextlib.contextmanager
def results(out: str | Path | None, kind: Kind, inputs: Sequence[Input] = ()) -> Iterator[None]:
    """Hold the folder `out`, if there is to be one, for results that replace those before them."""
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
    """Hold the folder `out`, which is made if need be; where nothing is written, none remains."""
    owner = own(out, kind)
    try:
        yield owner
    finally:
        disown(owner)


def own(out: str | Path, kind: Kind) -> Owner:
    """Hold the folder `out`, until `disown`; what killed calls left beside it is removed."""
    path = resolve(out)
    with or_say(f"cannot write {out}"):
        swap.recover(path)
        missing = [p for p in (path, *path.parents) if not p.exists()]
        owner = owners.take(path, kind.verb)
    owner.made = missing
    with contextlib.suppress(OSError, UserError):  # somebody builds there now; not ours to judge
        _remove_leftover(swap.beside(path), kind)
    return owner


def disown(owner: Owner) -> None:
    """Let go of a folder; one that was made for nothing is removed."""
    if is_vacant(owner.folder):
        owner.remove()
        with contextlib.suppress(OSError):  # somebody has begun there just now
            for path in owner.made:
                path.rmdir()
    elif owner.verb is None:  # nobody's output, and not ours either
        owner.remove()
    else:
        owner.release()


def disown_all() -> None:
    """Let go of all that this process holds: for an end that comes without any `finally`."""
    for owner in owners.all_held():
        disown(owner)


def renew(owner: Owner, kind: Kind, fill: Callable[[Path], None]) -> Owner:
    """A new folder, filled by `fill`, in the place of the one that is held; returns its hold.

    A kill leaves the old folder or the new one. The old one must have passed `check_own`.
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
    """A folder to fill beside `out`, which takes its place in one step when all went well.

    `marked`: whether the mark stays, or the folder is told by its signs alone.
    """
    check(out, kind, force=force, inputs=inputs)
    target = resolve(out)
    refuse_working_folder(target)
    before: Owner | None = None
    with or_say(f"cannot write {out}"):
        swap.recover(target)
        owner = _build(target, kind)
        try:
            if (target / OWNER).exists():  # somebody may go on with what we are to replace
                before = owners.take(target, kind.verb)
            check(out, kind, force=force, inputs=inputs)  # another call may have ended meanwhile
            owner.sign(kind.verb)
            yield owner.folder
            check(out, kind, force=force, inputs=inputs)  # nor may be lost what came since
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
    """A folder that is replaced would go away under whoever works in it."""
    here = Path.cwd()
    if target == here or target in here.parents:
        raise UserError(f"{target} is the folder you are in; start from outside of it")


def remove(folder: Path, kind: Kind) -> None:
    """Remove what `kind` writes, and the folders that are then empty; all else stays."""
    for path, known in walk(folder, kind):
        if not known or path == folder / OWNER:
            continue
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # it holds something that stays
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _build(target: Path, kind: Kind) -> Owner:
    """Hold the folder beside `target` in which its successor is built, empty."""
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
    if target.exists():  # else what lies aside is `target` itself
        _remove_leftover(swap.aside(target), kind)
    return owner


def _remove_leftover(place: Path, kind: Kind) -> None:
    """Remove what is left beside a target, unless somebody builds there or it is not ours."""
    if place.is_symlink() or not place.is_dir() or stranger(place, kind) is not None:
        return
    _end(owners.take(place, kind.verb), kind)


def _end(owner: Owner, kind: Kind) -> None:
    """Remove a folder that is held."""
    remove(owner.folder, kind)
    owner.remove()
    with contextlib.suppress(OSError):
        owner.folder.rmdir()
