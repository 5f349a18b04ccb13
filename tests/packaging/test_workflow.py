"""What runs elsewhere is what runs here: the workflow, the classifiers and the Makefile agree."""

from __future__ import annotations

import re
import sys

import yaml

from tests.packaging.build import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_python_that_is_promised_is_tested() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    job = workflow["jobs"]["test"]
    tested = job["strategy"]["matrix"]["python"]
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert tested == promised == ["3.10", "3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert any("make test " in f"{step.get('run', '')} " for step in job["steps"])


def test_templates_can_be_read() -> None:
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(file.read_text(encoding="utf-8"))
        if file.name != "config.yml":
            assert form["name"]
            assert form["description"]
            ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
            assert len(ids) == len(set(ids)) > 0


def test_every_pin_has_a_version_on_every_python() -> None:
    """A pin that holds from 3.11 on has a sister for 3.10."""
    pins: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pin, _, marker = line.partition("; ")
            pins.setdefault(pin.partition("==")[0], []).append(marker)
    for name, markers in pins.items():
        assert sorted(markers) in (
            [""],
            ['python_version < "3.11"', 'python_version >= "3.11"'],
        ), name
    extras = PROJECT["optional-dependencies"]
    for need in (*PROJECT["dependencies"], *extras["dev"], *extras["data"], *extras["hf"]):
        name = re.split(r"[>;\[]", need)[0]
        assert name in {*pins, "spherelm", "tomli"}, f"{name} has no pin"
