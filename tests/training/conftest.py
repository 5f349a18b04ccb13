"""A corpus and a run small enough to train in a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from spherelm.config import OptimConfig, RunConfig, TrainConfig
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.model.config import ModelConfig
from spherelm.presets import BYTES_VOCAB
from tests.corpus import prepare_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def dataset(corpus: Path) -> TokenDataset:
    return open_dataset(corpus)


@pytest.fixture(params=["gpt", "ngpt"])
def tiny_run(request: pytest.FixtureRequest) -> RunConfig:
    return tiny(request.param)


def tiny(arch: str) -> RunConfig:
    """Twelve steps of a model of some ten thousand parameters."""
    return RunConfig(
        model=ModelConfig(
            arch=arch,  # type: ignore[arg-type]
            vocab_size=BYTES_VOCAB,
            d_model=16,
            n_layers=2,
            n_heads=2,
            context=32,
        ),
        optim=OptimConfig(lr=1e-2),
        train=TrainConfig(
            steps=12,
            batch_size=4,
            eval_every=4,
            eval_sequences=8,
            checkpoint_every=4,
            device="cpu",
            tensorboard=False,
        ),
    )


def flags(out: Path, corpus: Path, **fields: object) -> list[str]:
    """The command line for a tiny run, with fields as `train__steps=3`."""
    values = {
        "model__d_model": 16,
        "model__n_layers": 2,
        "model__n_heads": 2,
        "model__context": 32,
        "train__steps": 12,
        "train__batch_size": 4,
        "train__eval_every": 4,
        "train__eval_sequences": 8,
        "train__checkpoint_every": 4,
        "train__device": "cpu",
        **fields,
    }
    argv = ["train", "--preset", "ngpt-debug", "--out", str(out), "--data", str(corpus)]
    argv += ["--train.no-tensorboard"]
    for name, value in values.items():
        argv += [f"--{name.replace('__', '.').replace('_', '-')}", str(value)]
    return argv
