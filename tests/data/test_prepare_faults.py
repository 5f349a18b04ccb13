"""`prepare` that is killed, interrupted, or runs out of disk: real processes, real signals."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.data.tokenizer_library import train_tokenizer
from spherelm.errors import UserError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1.6 MB of made-up words in documents of all lengths, and a tokenizer."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(1, 9))) for _ in range(3000)]
    documents = []
    while sum(map(len, documents)) < 1.6e6:
        documents.append(" ".join(rng.choices(words, k=int(rng.paretovariate(1) * 30) % 40_000)))
    (folder / "text.txt").write_text("\n<|endoftext|>\n".join(documents))
    train_tokenizer(iter(documents[:200]), 500).save(folder / "tokenizer")
    return folder


def command(corpus: Path, out: Path, workers: int = 2) -> list[str]:
    return [
        *(sys.executable, "-m", "spherelm", "prepare", str(corpus / "text.txt")),
        *("--out", str(out), "--tokenizer", str(corpus / "tokenizer")),
        *("--shard-tokens", "1000", "--workers", str(workers), "--val-fraction", "0.1"),
    ]


def content(folder: Path) -> dict[str, str]:
    """Every file of a folder and what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path) -> dict[str, str]:
    subprocess.run(command(corpus, corpus / "whole", workers=1), check=True, capture_output=True)
    files = content(corpus / "whole")
    assert sum(name.startswith("train-") for name in files) > 3 * 4  # more than 4 shards of 3 files
    return files


def wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.001)


@pytest.mark.parametrize("shards", [0, 1, 3])
def test_killed_and_started_again_it_writes_the_same(
    corpus: Path, uninterrupted: dict[str, str], tmp_path: Path, shards: int
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(command(corpus, out), start_new_session=True)
    # Killed as soon as a file of that shard appears: in the middle of writing it.
    wait_for(out / (f"train-{shards:05d}.tokens" if shards else "prepare.json"), process)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    _wait_until_gone(process.pid)
    assert not (out / "dataset.json").exists()
    with pytest.raises(UserError, match="is not complete; run the same"):
        open_dataset(out)
    kept = {p: p.stat().st_mtime_ns for p in out.glob("train-*.json")}
    subprocess.run(command(corpus, out), check=True, capture_output=True)
    assert content(out) == uninterrupted
    assert len(kept) >= shards - 1
    assert all(p.stat().st_mtime_ns == t for p, t in kept.items())  # finished shards were kept


def _wait_until_gone(group: int) -> None:
    """The workers of a killed parent end by themselves."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("workers outlive their parent")


@pytest.mark.usefixtures("heeding_interrupts")
def test_interrupted_it_ends_in_one_line_and_goes_on(
    corpus: Path, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(corpus, out),
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_for(out / "train-00001.json", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.decode() == "spherelm: interrupted\n"
    subprocess.run(command(corpus, out, workers=1), check=True, capture_output=True)
    assert content(out) == uninterrupted


def _begun(corpus: Path, tmp_path: Path) -> PrepareConfig:
    """A folder with some finished shards and no more."""
    text = tmp_path / "text.txt"
    text.write_bytes((corpus / "text.txt").read_bytes())
    config = PrepareConfig(
        (str(text),),
        tmp_path / "out",
        tokenizer=str(corpus / "tokenizer"),
        shard_tokens=1000,
        workers=1,
    )
    prepare(config)
    (config.out / "dataset.json").unlink()
    for path in config.out.glob("train-0000[2-9].*"):
        path.unlink()
    return config


def test_going_on_with_other_text_is_refused(corpus: Path, tmp_path: Path) -> None:
    config = _begun(corpus, tmp_path)
    text = Path(config.inputs[0])
    content_ = bytearray(text.read_bytes())
    content_[1000] ^= 1
    text.write_bytes(content_)
    with pytest.raises(UserError, match="the input is not the one"):
        prepare(config)
    text.write_bytes(content_[: len(content_) // 10])
    with pytest.raises(UserError, match="the input is not the one"):
        prepare(config)


def test_going_on_from_a_damaged_shard_is_refused(corpus: Path, tmp_path: Path) -> None:
    config = _begun(corpus, tmp_path)
    path = config.out / "train-00001.tokens"
    tokens = np.fromfile(path, "<u2")
    tokens[77] ^= 1
    tokens.tofile(path)
    with pytest.raises(UserError, match=r"train-00001.tokens is damaged"):
        prepare(config)


def test_two_at_once_in_one_folder_are_refused(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(command(corpus, out), stdout=subprocess.DEVNULL)
    wait_for(out / "prepare.json", process)
    process.send_signal(signal.SIGSTOP)
    second = subprocess.run(command(corpus, out), capture_output=True, text=True)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 0
    assert second.returncode == 2
    assert f"is being written by `spherelm prepare`, process {process.pid} on" in second.stderr


def test_a_write_that_fails_is_told_in_one_line(
    corpus: Path, uninterrupted: dict[str, str], tmp_path: Path
) -> None:
    # A limit on the size of files stands for a disk that is full.
    out = tmp_path / "out"
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 64; exec "$@"', "-", *command(corpus, out)]
    run = subprocess.run(limited, capture_output=True, text=True)
    assert run.returncode == 2
    assert run.stderr == f"spherelm: cannot write to {out}: File too large\n"
    assert not list(out.glob(".*.writing"))
    subprocess.run(command(corpus, out), check=True, capture_output=True)
    assert content(out) == uninterrupted
