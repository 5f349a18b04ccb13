"""The wheel in fresh environments: the lowest versions that it allows, and the newest there are.

Each downloads torch, several GB with its CUDA libraries, into a folder that is removed afterwards.
"""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.build import build

pytestmark = pytest.mark.slow

ROOM = 16 << 30
"""Bytes that one such environment and what pip downloads may take."""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Path]:
    if shutil.disk_usage(tmp_path).free < ROOM:
        pytest.skip("an environment with torch needs 16 GiB of disk")
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    yield folder
    shutil.rmtree(folder)


def lowest(wheel: Path) -> list[str]:
    """Every requirement of the core at the lowest version that the metadata allows."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return [re.sub(r">=([\d.]+)", r"==\1", line) for line in said if "extra ==" not in line]


COMPILED = """
import torch
from spherelm import ModelConfig, Transformer

for arch in ("gpt", "ngpt"):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(arch, vocab_size=64, d_model=32, n_layers=2, n_heads=2))
    tokens = torch.arange(32).view(2, 16)
    gradients = []
    for backend in (None, "eager"):
        for block in model.blocks if backend else ():
            block.forward = torch.compile(block.forward, backend=backend)
        model.zero_grad()
        model.loss(tokens, tokens).backward()
        gradients.append([p.grad for p in model.parameters()])
    for ours, theirs in zip(*gradients):
        assert (ours - theirs).norm() < 1e-5 * ours.norm(), arch
print("alike")
"""
"""With torch 2.11 a compiled model's gradients were zero once."""


@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_the_demo_runs_from_the_wheel(versions: str, environment: Path, tmp_path: Path) -> None:
    if versions == "lowest" and sys.version_info >= (3, 13):
        pytest.skip("numpy 2.0 has no release for this Python")
    wheel = build("wheel", tmp_path)
    away = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}

    def run(*command: str) -> str:
        program = [str(environment / "bin" / command[0]), *command[1:]]
        done = subprocess.run(program, cwd=tmp_path, env=away, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    pins = lowest(wheel) if versions == "lowest" else []
    run("python", "-m", "pip", "install", "-q", str(wheel), *pins)
    run("python", "-m", "pip", "check")
    assert str(environment) in run("python", "-c", "import spherelm; print(spherelm.__file__)")
    assert "usage: spherelm" in run("spherelm", "--help")
    assert "alike" in run("python", "-c", COMPILED)
    demo = ("--preset", "debug", "--steps", "20", "--out", "demo", "--json")
    result = json.loads(run("spherelm", "compare", *demo))
    assert {"gpt", "ngpt"} <= result.keys()
    assert "<svg" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
