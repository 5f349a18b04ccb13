"""`eval`, `generate` and `export` of a run that goes on training, and removes checkpoints."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.corpus import prepare_corpus
from tests.faults.trials import hold
from tests.processes import Spherelm, run


def test_readers_beside_a_running_training(tmp_path: Path) -> None:
    corpus = prepare_corpus(tmp_path, count=600)
    out = tmp_path / "run"
    fields = ["--preset", "debug", "--steps", "100000", "--train.batch-size", "1"]
    fields += ["--model.context", "16", "--train.eval-every", "0", "--train.keep-last", "1"]
    fields += ["--train.checkpoint-every", "3", "--train.no-tensorboard", "--data", str(corpus)]
    training = Spherelm(["train", "--out", str(out), *fields], tmp_path / "training.log")
    text = tmp_path / "some.txt"
    text.write_text("the sphere turns the surface.")

    def trial(number: int) -> str | None:
        place = tmp_path / f"export-{number}"
        readers = (
            ["eval", str(out), "--text", str(text), "--device", "cpu"],
            ["generate", str(out), "--prompt", "a", "--max-new-tokens", "2", "--device", "cpu"],
            ["export", str(out), "--out", str(place)],
        )
        argv = readers[number % 3]
        status, said = run(argv, tmp_path / f"{number}.log")
        shutil.rmtree(place, ignore_errors=True)
        if status or "Traceback" in said:
            return f"{argv[0]}: {status} {said[-500:]}"
        return None

    try:
        training.wait_until(lambda: any(out.glob("checkpoints/step_*")))
        hold("readers beside a running training", trial, sample=3, full=66, at_once=4)
        assert training.wait_until(lambda: True), training.output()
    finally:
        training.kill(signal.SIGTERM)
    assert training.wait() == 0, training.output()
