"""A machine that announces AMX and traps on it, simulated: its /proc/cpuinfo and its trial."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from spherelm import ModelConfig, Transformer, cpu_isa
from spherelm.cli import main
from spherelm.config import OptimConfig
from spherelm.cpu_isa import NEXT_BEST, TRIAL, avoid_broken_amx, before_products
from spherelm.ops.device import before_bf16_products
from spherelm.optim.build import build_optimizer

VARIABLE = "ONEDNN_MAX_CPU_ISA"
AMX = "avx512_bf16 amx_bf16 amx_tile amx_int8"
PLAIN = "avx512f avx512_bf16"

SOUND = (sys.executable, "-c", "print('sound')")
TRAPS = (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
FAILS = (sys.executable, "-c", "raise SystemExit(1)")  # such as: there is no torch


class Machine:
    """A CPU, a home, and how often the trial was made on it."""

    def __init__(self, folder: Path, flags: str = AMX, model: str = "Xeon") -> None:
        self.cpuinfo, self.memory = folder / "cpuinfo", folder / "cache" / "amx.json"
        self.tries = folder / "tries"
        self.say(flags, model)

    def say(self, flags: str, model: str = "Xeon") -> None:
        cpu = f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu {flags}\n\n"
        self.cpuinfo.write_text(cpu + cpu.replace(flags, "none"))

    def ask(self, trial: Sequence[str], **environ: str) -> dict[str, str]:
        """The environment after it was asked, with a trial that counts."""
        counted = ("sh", "-c", f'echo >> {self.tries}; exec "$@"', "sh", *trial)
        avoid_broken_amx(environ, cpuinfo=self.cpuinfo, memory=self.memory, trial=counted)
        return environ

    @property
    def tried(self) -> int:
        return len(self.tries.read_text()) if self.tries.exists() else 0


def test_a_trap_is_noticed_once_and_gone_around(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    for time in (1, 2, 3):
        assert machine.ask(TRAPS) == {VARIABLE: NEXT_BEST}
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "AMX" in said
        assert NEXT_BEST in said
        assert machine.tried == 1, f"remembered, time {time}"


def test_sound_amx_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path)
    assert machine.ask(SOUND) == machine.ask(SOUND) == {}
    assert machine.tried == 1
    assert capsys.readouterr().err == ""


def test_without_amx_nothing_is_tried_or_written(tmp_path: Path) -> None:
    machine = Machine(tmp_path, PLAIN)
    assert machine.ask(TRAPS) == {}
    machine.cpuinfo.unlink()  # another system than Linux
    assert machine.ask(TRAPS) == {}
    assert machine.tried == 0
    assert not machine.memory.parent.exists()


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_who_set_the_variable_has_decided(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    assert machine.ask(TRAPS, **{name: "AVX2"}) == {name: "AVX2"}
    assert machine.tried == 0
    assert capsys.readouterr().err == ""


def test_a_trial_that_tells_nothing_is_not_remembered(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.ask(FAILS) == {}
    assert machine.ask(("no-such-program",)) == {}
    assert machine.ask(TRAPS) == {VARIABLE: NEXT_BEST}
    assert machine.tried == 3


def test_another_cpu_or_torch_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    assert machine.ask(TRAPS) == {VARIABLE: NEXT_BEST}
    machine.say(AMX, model="another Xeon")
    assert machine.ask(SOUND) == {}
    machine.say(AMX + " amx_fp16")
    assert machine.ask(SOUND) == {}
    monkeypatch.setattr(cpu_isa, "version", lambda name: "99.0")
    assert machine.ask(SOUND) == {}
    assert machine.tried == 4
    monkeypatch.undo()
    machine.say(AMX)
    assert machine.ask(SOUND) == {VARIABLE: NEXT_BEST}, "all of them are remembered"


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"x": "yes"}'])
def test_a_damaged_memory_is_made_again(tmp_path: Path, damage: str) -> None:
    machine = Machine(tmp_path)
    machine.memory.parent.mkdir()
    machine.memory.write_text(damage)
    for _ in range(2):
        assert machine.ask(TRAPS) == {VARIABLE: NEXT_BEST}
    assert machine.tried == 1


def test_a_home_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "cache").write_text("a file")
    for _ in range(2):
        assert machine.ask(TRAPS) == {VARIABLE: NEXT_BEST}
    assert machine.tried == 2

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    environ: dict[str, str] = {}
    assert avoid_broken_amx(environ, cpuinfo=machine.cpuinfo, trial=TRAPS)


def test_the_real_trial_multiplies() -> None:
    """It ends well here, where the tests run, and would not with a product that is wrong."""
    exec(TRIAL, {})
    with pytest.raises(AssertionError):
        exec(TRIAL.replace("== 64", "== 65"), {})


def test_the_guide_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "precision.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    exec(program, {})
    assert "8." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("precision", "device", "asks"),
    [
        ("bf16", "cpu", True),
        ("bf16", "auto", True),
        ("bf16", "cpu:0", True),
        ("bf16", "cuda", False),
        ("bf16", "cuda:1", False),
        ("bf16", "mps", False),
        ("auto", "cpu", False),
        ("fp32", "auto", False),
    ],
)
def test_only_bf16_on_a_cpu_asks(
    precision: str, device: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(cpu_isa, "avoid_broken_amx", lambda: asked.append(True))
    before_products(precision, device)
    assert bool(asked) == asks


def test_muon_asks_whatever_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its iterations are products in bfloat16 also where the model's are in float32."""
    asked = []
    monkeypatch.setattr(cpu_isa, "avoid_broken_amx", lambda: asked.append(True))
    before_bf16_products.cache_clear()
    model = Transformer(ModelConfig(vocab_size=8, d_model=8, n_heads=2, n_layers=1, context=8))
    for algorithm, times in (("adamw", 0), ("gated_adamw", 0), ("muon", 1)):
        build_optimizer(model, OptimConfig(algorithm=algorithm), steps=1)  # type: ignore[arg-type]
        assert len(asked) == times, algorithm
    before_bf16_products.cache_clear()


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["train", "--out", "x", "--train.precision", "bf16"], ("bf16", "auto")),
        (["train", "--out", "x", "--device", "cpu"], ("auto", "cpu")),
        (["compare", "--out", "x", "--train.precision", "bf16"], ("bf16", "auto")),
        (["eval", "x", "--dtype", "bf16", "--device", "cpu"], ("bf16", "cpu")),
        (["eval", "length", "x", "--books", "b", "--dtype", "bf16"], ("bf16", "auto")),
        (["eval", "tasks", "x", "--dtype", "bf16"], ("bf16", "auto")),
        (["generate", "x", "--dtype", "bf16"], ("bf16", "auto")),
    ],
    ids=lambda value: " ".join(value),
)
def test_every_verb_that_takes_bf16_asks(
    argv: list[str], asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(Exception):
        pass

    def stop(*values: str) -> None:
        raise Asked(*values)

    monkeypatch.setattr(cpu_isa, "before_products", stop)
    with pytest.raises(Asked) as stopped:
        main(argv)
    assert stopped.value.args == asked


def test_a_whole_command_before_torch_is_loaded(tmp_path: Path) -> None:
    """`spherelm train` on a machine that traps: one line, the variable set while torch is not yet
    there, and a run that ends well. Without bf16 nothing is asked."""
    machine = Machine(tmp_path)
    code = f"""
import os, sys
from spherelm import cpu_isa
real, seen = cpu_isa.avoid_broken_amx, []
def simulated():
    seen.append("torch" in sys.modules)
    return real(cpuinfo={str(machine.cpuinfo)!r}, trial={TRAPS!r})
cpu_isa.avoid_broken_amx = simulated
from spherelm.cli import main
run = ["train", "--preset", "debug", "--steps", "1", "--optim.warmup-steps", "0", "--device", "cpu",
       "--train.batch-size", "2", "--train.eval-sequences", "2", "--train.no-tensorboard"]
assert main([*run, "--out", {str(tmp_path / "bf16")!r}, "--train.precision", "bf16"]) == 0
assert seen == [False, True], seen
assert main([*run, "--out", {str(tmp_path / "plain")!r}]) == 0
assert len(seen) == 2, "nobody asked for bf16"
print(os.environ["{VARIABLE}"])
"""
    environ = {k: v for k, v in os.environ.items() if k not in cpu_isa.VARIABLES}
    environ["XDG_CACHE_HOME"] = str(tmp_path / "home")
    ended = subprocess.run(
        (sys.executable, "-c", code), env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[-1] == NEXT_BEST
    assert ended.stderr.count("claims to have AMX") == 1
    assert (tmp_path / "home" / "spherelm" / "amx.json").is_file()


def test_tests_notice_once_for_all_their_workers(tmp_path: Path) -> None:
    """The conftest of these very tests, on a machine that traps, with two workers."""
    machine = Machine(tmp_path)
    conftest = (Path(__file__).parent / "conftest.py").read_text()
    simulated = f"avoid_broken_amx(cpuinfo={str(machine.cpuinfo)!r}, trial={TRAPS!r}, "
    assert conftest.count("avoid_broken_amx(say") == 1
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "conftest.py").write_text(conftest.replace("avoid_broken_amx(", simulated))
    (suite / "torch.py").write_text(  # all that the conftest wants of it, in no time
        "from types import SimpleNamespace\n"
        "cuda = SimpleNamespace(is_available=lambda: False)\n"
        "def manual_seed(n): ...\n"
    )
    (suite / "test_it.py").write_text(
        "import os, pytest\n\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        f"def test_it(n):\n    assert os.environ['{VARIABLE}'] == '{NEXT_BEST}'\n"
    )
    environ = {k: v for k, v in os.environ.items() if k not in cpu_isa.VARIABLES}
    environ["XDG_CACHE_HOME"] = str(tmp_path / "home")
    ended = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", "-n", "2", "--rootdir", str(suite), str(suite)),
        env=environ,
        cwd=suite,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stderr.count("claims to have AMX") == 1


def test_what_only_unix_has_is_not_needed_to_import() -> None:
    code = (
        "import signal, sys; del signal.SIGBUS; sys.modules['resource'] = None; "
        "import spherelm.cpu_isa, spherelm.free_memory; spherelm.free_memory.free_host_memory()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
