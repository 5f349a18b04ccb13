"""A new run that begins with the weights of a saved model: `train --init-from`."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import spherelm
from spherelm.cli import main
from spherelm.config_io import override
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig, prepare
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.model.sphere import largest_norm_deviation
from spherelm.model.transformer import Transformer
from spherelm.runs.metrics import read_metrics
from spherelm.runs.run_dir import RunDir
from spherelm.saved import find_saved, load_model
from spherelm.training import loop
from spherelm.training.origin import Origin
from tests.corpus import prepare_corpus, sentences
from tests.distributed.launch import run_together
from tests.training.conftest import tiny
from tests.training.same_run import assert_same_run, stopped


@pytest.fixture(scope="module", params=["gpt", "ngpt"])
def source(request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: object) -> Path:
    """A trained run."""
    out: Path = tmp_path_factory.mktemp("source") / request.param  # type: ignore[attr-defined]
    loop.train(tiny(request.param), open_dataset(corpus), out)
    return out


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other texts in the same tokens."""
    return prepare_corpus(tmp_path_factory.mktemp("other"), seed=5)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_model(path).model.state_dict()


def first_loss(run: Path) -> float:
    return float(read_metrics(run / "metrics.jsonl")[0]["loss"])


RANDOM = math.log(257)
"""The loss of a model that has learned nothing of its 257 tokens."""
COMMON = ["--device", "cpu"]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        *itertools.product(("gpt", "ngpt"), ("run", "checkpoint", "export")),
        ("ngpt", "folded"),  # there is nothing to fold in a GPT
    ],
    indirect=["source"],
)
def test_it_begins_where_the_model_was(
    source: Path, other: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first loss is the model's own on that batch, whatever kind of folder it comes from."""
    named = source
    if kind == "checkpoint":
        named = source / "checkpoints" / "step_8"
    elif kind != "run":
        named = export_to_hf(source, tmp_path / "hf", fold=kind == "folded")
    out = tmp_path / "new"
    argv = ["train", "--init-from", str(named), "--data", str(other), "--out", str(out)]
    assert main([*argv, "--steps", "3", "--lr", "0.002", *COMMON]) == 0
    config = RunDir(out).read_config()
    before = find_saved(named).config
    assert config.model == before.model
    assert (config.train.steps, config.optim.lr) == (3, 0.002)
    assert config.train.batch_size == before.train.batch_size
    dataset = open_dataset(other)
    model = load_model(named).model
    loader = loop.build_state(config, dataset, loop.Processes(config.parallel, "cpu")).loader
    batch = next(loader)
    loader.close()
    with torch.no_grad():
        expected = float(model.loss(batch.tokens, batch.targets))
    # The same numbers in the same order, but for rows that a folded export has put off the sphere.
    assert first_loss(out) == pytest.approx(expected, rel=1e-5 if kind == "folded" else 1e-6)
    assert expected < RANDOM - 0.1
    assert "beginning with the weights of" in capsys.readouterr().err
    folder = json.loads(RunDir(out).env.read_text())["init_from"]["folder"]
    assert Path(folder) == find_saved(named).folder.resolve()


def test_a_longer_context(source: Path, other: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    argv = ["train", "--init-from", str(source), "--data", str(other), "--out", str(out)]
    assert main([*argv, "--steps", "1", "--model.context", "48", *COMMON]) == 0
    model = load_model(out).model
    assert model.config.context == 48
    assert model.rope.length == 48
    assert first_loss(out) < RANDOM - 0.1


@pytest.mark.parametrize("source", ["ngpt"], indirect=True)
def test_weights_from_elsewhere_are_put_back_on_the_sphere(source: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    hf = export_to_hf(source, tmp_path / "hf")
    (hf / "spherelm.json").unlink()  # so that it may be changed
    tensors = load_file(hf / "model.safetensors")

    def save_with_lengths(length: float) -> None:
        longer = {k: length * t if t.shape[-1] > 1 else t for k, t in tensors.items()}
        save_file(longer, hf / "model.safetensors")

    model = Transformer(find_saved(source).config.model)
    save_with_lengths(1.003)  # as after rounding to bf16
    Origin.of(find_saved(hf)).give_weights_(model)
    assert largest_norm_deviation(model) < 1e-6
    same = weights(source)
    assert all(torch.allclose(t, same[n], atol=1e-6) for n, t in model.state_dict().items())
    save_with_lengths(3.0)  # normalized, they would be another model
    with pytest.raises(UserError, match="is off the sphere: E_input has a vector of length 3,"):
        Origin.of(find_saved(hf)).give_weights_(model)


def test_weights_on_the_sphere_keep_every_bit(source: Path) -> None:
    model = Transformer(find_saved(source).config.model)
    Origin.of(find_saved(source)).give_weights_(model)
    same = weights(source)
    assert all(torch.equal(t, same[n]) for n, t in model.state_dict().items())


@pytest.mark.parametrize("before", ["fp32", "bf16"])
@pytest.mark.parametrize("now", ["fp32", "bf16"])
def test_weights_may_be_stored_otherwise(
    dataset: TokenDataset, tmp_path: Path, before: str, now: str
) -> None:
    old = override(tiny("ngpt"), {"train.weight_storage": before, "train.steps": 2})
    loop.train(old, dataset, tmp_path / "old")
    new = override(old, {"train.weight_storage": now, "train.eval_every": 1})
    loop.train(new, dataset, tmp_path / "new", init_from=find_saved(tmp_path / "old"))
    matrix = weights(tmp_path / "new")["E_input"]
    assert matrix.dtype == (torch.bfloat16 if now == "bf16" else torch.float32)
    first = read_metrics(tmp_path / "new" / "metrics.jsonl")[0]
    # As far as a row of that precision can be from unit length.
    assert first["largest_norm_deviation"] < (2**-7 if now == "bf16" else 1e-6)


@pytest.mark.parametrize("saved", [True, False])
def test_resumed_equals_uninterrupted(
    source: Path, dataset: TokenDataset, tmp_path: Path, saved: bool
) -> None:
    """Also where the run was stopped before its first checkpoint: it begins with the same model."""
    run = override(find_saved(source).config, {"optim.lr": 0.004, "train.keep_last": 5})
    whole = tmp_path / "whole"
    loop.train(run, dataset, whole, init_from=find_saved(source / "checkpoints" / "step_8"))
    resumed = stopped(whole, (8, 12) if saved else (4, 8, 12))
    loop.train(run, dataset, resumed, resume="auto")
    assert_same_run(whole, resumed)


def test_a_run_without_a_checkpoint_needs_the_same_model_again(
    dataset: TokenDataset, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    loop.train(tiny("ngpt"), dataset, old)
    loop.train(tiny("ngpt"), dataset, new, init_from=find_saved(old))
    shutil.rmtree(new / "checkpoints")
    shutil.rmtree(old / "checkpoints" / "step_12")
    with pytest.raises(UserError, match="no longer the model that this run begins with"):
        loop.train(tiny("ngpt"), dataset, new, resume="auto")


def test_the_same_command_goes_on(
    source: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a cluster, where one command begins a run and goes on with it."""
    argv = ["train", "--init-from", str(source), "--data", str(other), "--out", str(tmp_path / "n")]
    argv += ["--preset", "debug", "--resume", "auto", "--train.checkpoint-every", "2", *COMMON]
    argv += ["--train.no-tensorboard"]
    assert main([*argv, "--steps", "4"]) == 0
    assert main([*argv, "--steps", "6"]) == 0
    assert "resuming from" in capsys.readouterr().err
    assert [m["step"] for m in read_metrics(tmp_path / "n" / "metrics.jsonl")] == [*range(1, 7)]
    argv[2] = str(other)
    assert main([*argv, "--steps", "6"]) == 2
    assert f"began with {source.resolve()}" in capsys.readouterr().err


REFUSED = {
    ("--model.d-model", "32"): "model.d_model = 32: its weights have 16; leave it out",
    ("--model.n-layers", "3"): "model.n_layers = 3",
    ("--model.n-heads", "4"): "model.n_heads = 4",
    ("--model.vocab-size", "300"): "model.vocab_size = 300: its weights have 257",
    ("--model.tie-embeddings",): "model.tie_embeddings = True",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_another_shape_is_refused_by_its_field(
    source: Path,
    other: Path,
    tmp_path: Path,
    flags: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["train", "--init-from", str(source), "--data", str(other)]
    assert main([*argv, "--out", str(tmp_path / "new"), *flags, *COMMON]) == 2
    assert REFUSED[flags] in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_other_tokens_are_refused_with_the_command_that_helps(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(sentences(400))
    data = tmp_path / "bpe"
    text = (str(tmp_path / "text.txt"),)
    prepare(PrepareConfig(text, data, train_tokenizer=257, val_fraction=0.2, workers=1))
    argv = ["train", "--init-from", str(source), "--data", str(data), *COMMON]
    assert main([*argv, "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert f"`spherelm prepare ... --tokenizer {source / 'tokenizer'}`" in said
    shutil.rmtree(data)
    helped = ["prepare", *text, "--out", str(data), "--tokenizer", str(source / "tokenizer")]
    assert main([*helped, "--val-fraction", "0.2"]) == 0
    assert main([*argv, "--out", str(tmp_path / "new"), "--steps", "1"]) == 0


def test_the_model_itself_is_not_replaced(
    source: Path, other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "--init-from", str(source), "--data", str(other), "--out", str(source)]
    assert main([*argv, "--force", *COMMON]) == 2
    assert "is an input, too" in capsys.readouterr().err


def test_a_preset_gives_all_but_the_shape(
    source: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the plan says what the run would begin with."""
    argv = ["train", "--init-from", str(source), "--data", str(other), "--out", str(tmp_path / "n")]
    argv += ["--dry-run", "--json", *COMMON]
    assert main([*argv, "--preset", "debug"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["init_from"] == str(source / "checkpoints" / "step_12")
    assert plan["config"]["model"]["d_model"] == 16
    assert plan["config"]["model"]["arch"] == source.name
    assert plan["config"]["train"]["batch_size"] == 8
    wrong = {"gpt": "ngpt-debug", "ngpt": "gpt-debug"}[source.name]
    assert main([*argv, "--preset", wrong]) == 2
    assert f"starts with {source.name}-" in capsys.readouterr().err


def test_from_python(source: Path, other: Path, tmp_path: Path) -> None:
    run = override(find_saved(source).config, {"train.steps": 2})
    by_config = spherelm.train(run, other, tmp_path / "a", init_from=source)
    assert by_config.finished
    assert first_loss(tmp_path / "a") < RANDOM - 0.1
    toml = tmp_path / "two.toml"
    toml.write_text('[train]\nsteps = 2\ndevice = "cpu"\ntensorboard = false\n')
    spherelm.train(toml, other, tmp_path / "b", init_from=source)
    assert first_loss(tmp_path / "b") == first_loss(tmp_path / "a")
    wider = override(run, {"model.d_mlp": 32})
    with pytest.raises(UserError, match=r"model\.d_mlp = 32: its weights have 64"):
        spherelm.train(wider, other, tmp_path / "c", init_from=source)
    with pytest.raises(UserError, match="config is None"):
        spherelm.train(None, other, tmp_path / "c")


@pytest.mark.parametrize("source", ["ngpt"], indirect=True)
def test_two_processes_begin_with_the_same_weights(
    source: Path, other: Path, tmp_path: Path
) -> None:
    argv = ["train", "--init-from", str(source), "--data", str(other), "--steps", "2", *COMMON]
    assert main([*argv, "--out", str(tmp_path / "alone")]) == 0
    done = run_together(2, "-m", "spherelm", *argv, "--out", str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr
    alone, two = (read_metrics(tmp_path / n / "metrics.jsonl") for n in ("alone", "two"))
    # Sums over two processes are added in another order.
    for a, b in zip(alone, two, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5)
