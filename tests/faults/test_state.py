"""What is read back is as it was written, or is named: kills and corruptions, in numbers.

A sample runs in `make test`, all of them with SPHERELM_ALL_TRIALS=1 (see `trials`).
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spherelm.errors import UserError
from spherelm.folders.kinds import OWNER
from spherelm.hf.read import RECORD
from spherelm.runs.run_dir import RunDir
from tests.corpus import sentences
from tests.faults.damage import hurt
from tests.faults.trials import hold
from tests.processes import Spherelm, run

STEPS = 8
SMALLEST = {
    "--model.d-model": 8,
    "--model.n-layers": 1,
    "--model.n-heads": 1,
    "--model.context": 8,
    "--train.batch-size": 2,
    "--train.checkpoint-every": 2,
    "--train.keep-last": 3,
    "--train.eval-every": 4,
    "--train.eval-sequences": 2,
    "--train.device": "cpu",
}
NOT_READ = ("README.md", "generation_config.json", "tokenizer_config.json", "text.txt")
"""What spherelm writes for others and never reads."""


def command(out: Path, data: Path) -> list[str]:
    argv = ["train", "--preset", "ngpt-debug", "--out", str(out), "--data", str(data)]
    argv += ["--steps", str(STEPS), "--train.no-tensorboard"]
    return argv + [word for pair in SMALLEST.items() for word in map(str, pair)]


def done(argv: list[str], log: Path) -> str:
    status, output = run(argv, log)
    assert status == 0, output
    return output


class Made:
    """A prepared folder with a tokenizer of its own, a run on it, an export, and what follows."""

    def __init__(self, root: Path) -> None:
        self.root, log = root, root / "log"
        (root / "text.txt").write_text(sentences(400))
        self.data, self.run, self.export = root / "data", root / "run", root / "hf"
        done(self.prepare(self.data), log)
        self.whole = root / "whole"
        self.seconds = self._train(self.whole, log)
        shutil.copytree(self.whole, self.run)
        shutil.rmtree(self.run / "checkpoints" / f"step_{STEPS}")  # two more are there
        done(["export", str(self.run), "--out", str(self.export)], log)
        self.imported = root / "imported"
        done(["import", str(self.export), "--out", str(self.imported)], log)

    def prepare(self, out: Path) -> list[str]:
        argv = ["prepare", str(self.root / "text.txt"), "--out", str(out), "--workers", "1"]
        return [*argv, "--train-tokenizer", "300", "--val-fraction", "0.2"]

    def _train(self, out: Path, log: Path) -> float:
        """The seconds from where the folder of a run is made to the end of the process."""
        process = Spherelm(command(out, self.data), log)
        process.wait_until((out / "config.toml").exists)
        began = time.monotonic()
        assert process.wait() == 0, process.output()
        return time.monotonic() - began


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    pytest.importorskip("tokenizers")
    return Made(tmp_path_factory.mktemp("made"))


def weights(out: Path) -> dict[str, bytes]:
    """The tensors of the newest checkpoint."""
    newest = max((out / "checkpoints").glob("step_*[0-9]"), key=lambda p: int(p.name[5:]))
    return {p.name: tensors(p) for p in newest.glob("*.safetensors")}


def tensors(file: Path) -> bytes:
    """A safetensors file less its header, whose notes come in a random order."""
    content = file.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def test_a_killed_run_goes_on_to_the_same_bytes(made: Made, tmp_path: Path) -> None:
    expected, metrics = weights(made.whole), (made.whole / "metrics.jsonl").read_bytes()

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        out, log = tmp_path / f"{number}", tmp_path / f"{number}.log"
        argv = [*command(out, made.data), "--resume", "auto"]
        for _ in range(1 + number % 2):  # the run, or the run and what goes on with it
            longest = made.seconds
            while True:
                process = Spherelm(argv, log)
                process.wait_until((out / "config.toml").exists)
                time.sleep(draw.uniform(0, longest))
                process.kill(signal.SIGKILL)
                if process.wait() == -signal.SIGKILL:
                    break
                longest /= 2  # it was faster than we
                shutil.rmtree(out)
        status, output = run(argv, log)
        if status or "Traceback" in output:
            return output
        if (out / "metrics.jsonl").read_bytes() != metrics:
            return "other metrics"
        if weights(out) != expected:
            return "other weights"
        if leftovers := [str(p) for p in out.rglob(".*") if p.name != OWNER]:
            return f"left behind: {leftovers}"
        shutil.rmtree(out)
        return None

    hold("kill -9 of train, then --resume auto: the same bytes", trial, sample=4, full=1000)


def test_no_damage_goes_unnoticed(made: Made, tmp_path: Path) -> None:
    """Half of the trials flip a random bit or byte, half aim."""

    def trial(number: int) -> str | None:
        draw = random.Random(number)
        here = tmp_path / f"{number}"
        here.mkdir()
        kind = (_hurt_run, _hurt_data, _hurt_export)[number % 3]
        wrong = kind(made, here, draw, aimed=bool(number // 3 % 2))
        if wrong is None:
            shutil.rmtree(here)
        return wrong

    hold("a damaged file is named, or does not matter", trial, sample=24, full=1000)


def _hurt_run(made: Made, here: Path, draw: random.Random, aimed: bool) -> str | None:
    out = Path(shutil.copytree(made.run, here / "run"))
    victim, how = hurt(out, draw, aimed)
    about = f"{victim.relative_to(out)} ({how})"
    if "tokenizer" in victim.parts or draw.random() < 0.3:
        argv = ["export", str(out), "--out", str(here / "hf")]
        return _judge(argv, here, victim, about, _different(made.export, here / "hf"))
    argv = ["train", "--out", str(out), "--resume", "auto"]
    return _judge(argv, here, victim, about, lambda said: _other_run(made, out, said))


def _hurt_data(made: Made, here: Path, draw: random.Random, aimed: bool) -> str | None:
    data = Path(shutil.copytree(made.data, here / "data"))
    victim, how = hurt(data, draw, aimed)
    about = f"{victim.relative_to(data)} ({how})"
    if victim.name == "prepare.json" or draw.random() < 0.3:
        nothing = _different(data, Path(shutil.copytree(data, here / "before")))
        return _judge(made.prepare(data), here, victim, about, nothing)
    out = here / "run"
    argv = command(out, data)
    return _judge(argv, here, victim, about, lambda said: _same_numbers(made.whole, out))


def _hurt_export(made: Made, here: Path, draw: random.Random, aimed: bool) -> str | None:
    export = Path(shutil.copytree(made.export, here / "hf"))
    victim, how = hurt(export, draw, aimed)
    about = f"{victim.relative_to(export)} ({how})"
    if (victim.name, how) == (RECORD, "gone"):
        return None  # this is how a user says that the rest was changed on purpose
    argv = ["import", str(export), "--out", str(here / "run")]
    return _judge(argv, here, victim, about, _different(made.imported, here / "run"))


def _judge(
    argv: list[str], here: Path, victim: Path, about: str, difference: Callable[[str], str | None]
) -> str | None:
    """Refused in one line that names the file, or done without a difference."""
    status, output = run(argv, here / "log")
    where = f"{argv[0]} with {about}"
    if "Traceback" in output or status not in (0, 2):
        return f"{where}: status {status}: {output[-600:]}"
    if status == 2:
        # A folder that lacks the file that it is known by is refused as a whole.
        named = victim.stem in output or not victim.exists()
        return None if named and output.count("\n") == 1 else f"{where}: said {output!r}"
    wrong = difference(output)
    return None if wrong is None else f"{where}: {wrong}; said {output!r}"


def _other_run(made: Made, out: Path, said: str) -> str | None:
    """A run that went on: to the same bytes, less the lines of metrics that it says are lost."""
    try:
        if RunDir(out).read_config() != RunDir(made.whole).read_config():
            return "another configuration"
    except UserError as error:
        return f"an unreadable configuration: {error}"
    if weights(out) != weights(made.whole):
        return "other weights"
    lines, expected = ((r / "metrics.jsonl").read_bytes().splitlines() for r in (out, made.whole))
    if lines == expected:
        return None
    lost = f"{out / 'metrics.jsonl'}:" in said and "cannot be written again" in said
    missing = set(expected) - set(lines)
    said_so = [line for line in lines if b'"lost": true' in line]
    sound = set(lines) - set(said_so) < set(expected) and len(said_so) == len(missing)
    return None if lost and sound else "other metrics"


def _same_numbers(expected: Path, out: Path) -> str | None:
    if (out / "metrics.jsonl").read_bytes() != (expected / "metrics.jsonl").read_bytes():
        return "other metrics"
    if weights(out) != weights(expected):
        return "other weights"
    for file in (expected / "tokenizer").iterdir():
        if file.read_bytes() != (out / "tokenizer" / file.name).read_bytes():
            return f"another {file.name}"
    return None


def _different(expected: Path, found: Path) -> Callable[[str], str | None]:
    """Compares two folders, less what says when they were made."""

    def compare(said: str) -> str | None:
        for file in sorted(p for p in expected.rglob("*") if p.is_file()):
            other = found / file.relative_to(expected)
            if file.name in ("env.json", "manifest.json", *NOT_READ):
                continue
            content = tensors if file.suffix == ".safetensors" else Path.read_bytes
            if not other.is_file() or content(file) != content(other):
                return f"another {other.relative_to(found)}"
        return None

    return compare
