"""The rooms of the house stand in one order: a room may use those before it, and none after it.

Every import counts: at the top of a file, inside a function, and for types alone.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import spherelm

SOURCE = Path(spherelm.__file__).parent

ORDER = (
    "errors", "validate", "durable", "records", "config_io", "console", "free_memory", "cpu_isa",
    "lifeline", "flags", "folders", "ops", "model", "config", "presets", "measured", "optim",
    "data", "distributed", "runs", "plots", "hf", "saved", "generation", "eval", "inspect",
    "training", "bench", "compare", "paper", "api", "cli",
)  # fmt: skip
"""First those that know nothing of the others."""

NEVER = {
    "data": {"model"},
    "generation": {"training"},
    "hf": {"training", "generation", "eval"},
    "runs": {"training", "eval", "hf"},
    "plots": {"model", "training", "runs"},
}
"""Said again, so that a change of the order cannot allow them."""


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(file) for file in files()}


def imported(file: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, _, inside = name.partition(".")
            if root != "spherelm":
                continue
            while inside and inside not in MODULES:  # a name in a module: the module itself
                inside = inside.rpartition(".")[0]
            if inside:
                found.add(inside)
    return found


def room_of(module: str) -> str:
    return module.partition(".")[0]


# What runs for the user first stands above all rooms, and is held to be lazy elsewhere.
GRAPH = {
    module_of(file): imported(file)
    for file in files()
    if module_of(file) not in ("", "__main__") and "remote_code" not in file.parts
}


def test_every_room_has_its_place() -> None:
    assert {room_of(module) for module in GRAPH} == set(ORDER)


def test_no_room_uses_a_later_one() -> None:
    place = {room: index for index, room in enumerate(ORDER)}
    upward = [
        f"{module} imports {other}"
        for module, others in GRAPH.items()
        for other in sorted(others)
        if place[room_of(other)] > place[room_of(module)]
    ]
    assert not upward, "\n".join(upward)


def test_some_rooms_know_nothing_of_each_other() -> None:
    known: dict[str, set[str]] = defaultdict(set)
    for module, others in GRAPH.items():
        known[room_of(module)] |= {room_of(other) for other in others}
    for room, never in NEVER.items():
        assert not known[room] & never, room


def test_no_file_needs_itself() -> None:
    """No cycle between files, inside a room either."""
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " → ".join((*way, module))
        if module not in done:
            for other in sorted(GRAPH.get(module, ())):
                visit(other, (*way, module))
            done.add(module)

    for module in GRAPH:
        visit(module, ())


def test_no_function_is_written_twice() -> None:
    """The same lines under whatever name: a later change of one would forget the other.

    A line of one call says too little to be a repetition.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for file in files():
        if "remote_code" in file.parts:  # stands alone, by what an export is
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                if sum(1 for statement in body for _ in ast.walk(statement)) > 12:
                    written = ast.dump(node.args) + "".join(map(ast.dump, body))
                    places[written].append(f"{module_of(file)}.{node.name}")
    twice = [" = ".join(names) for names in places.values() if len(names) > 1]
    assert not twice, "\n".join(twice)
