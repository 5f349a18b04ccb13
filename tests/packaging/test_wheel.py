"""What the wheel holds: all of the package, what pip needs to know, and nothing else."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest

from spherelm import __version__
from tests.packaging.build import ROOT, build

SOURCE = ROOT / "src" / "spherelm"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel")))


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_it_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    ours = {p for p in SOURCE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert names == {str(PurePosixPath("spherelm") / p.relative_to(SOURCE)) for p in ours}
    assert "spherelm/py.typed" in names
    assert "spherelm/hf/remote_code/modeling_spherelm.py" in names  # travels with exports
    (data,) = (name for name in names if name.endswith(".json"))
    assert data == "spherelm/measured/measured.json"  # what `train` chooses from
    suffixes = {PurePosixPath(name).suffix for name in names}
    assert suffixes <= {".py", ".typed", ".css", ".js", ".json"}
    assert not [name for name in names if re.search(r"(^|/)(tests?/|test_|conftest)", name)]
    assert sum(info.compress_size for info in wheel.infolist()) < 1_000_000


def test_it_says_what_pip_needs_to_know(wheel: zipfile.ZipFile) -> None:
    said = metadata(wheel)
    assert (said["Name"], said["Version"]) == ("spherelm", __version__)
    assert said["Requires-Python"] == ">=3.10"
    assert said["License-Expression"] == "MIT"
    assert {"data", "hf", "eval", "plots", "track", "attention", "docs", "dev"} == {
        *said.get_all("Provides-Extra", [])
    }
    core = [r for r in said.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert {re.split(r"[>=; ]", r)[0] for r in core} == {
        "torch", "numpy", "safetensors", "tyro", "rich", "tomli",
    }  # fmt: skip
    assert all(">=" in requirement for requirement in core)  # each says how old it may be
    (entry,) = (n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    assert "spherelm = spherelm.cli:main" in wheel.read(entry).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_the_source_archive_builds_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {PurePosixPath(name) for name in archive.getnames()}
    inside = {str(PurePosixPath(*name.parts[1:])) for name in names}
    package = {name for name in wheel.namelist() if name.startswith("spherelm/")}
    assert {f"src/{name}" for name in package} <= inside
    other = {name for name in inside if not name.startswith("src/")}
    assert other == {
        "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore",
    }  # fmt: skip
