"""Native → Hugging Face → native: the same bits, whatever the variant."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from spherelm import ScaleConfig, Transformer
from spherelm.cli import main
from spherelm.config import RunConfig
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.hf.import_run import import_from_hf
from spherelm.hf.read import RECORD
from spherelm.model.config import SCALE_NAMES
from spherelm.model.sphere import largest_norm_deviation
from spherelm.saved import find_saved, load_model
from tests.model.tiny import VARIANTS
from tests.saved_runs import byte_model, write_run

TOKENS = torch.tensor([list(b"def main("), list(b"import os")])


def assert_same_weights(a: torch.nn.Module, b: torch.nn.Module) -> None:
    left, right = a.state_dict(), b.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype
        assert torch.equal(tensor, right[name]), name


@pytest.mark.parametrize(
    "variant",
    ["gpt", "gpt, tied", "no qk norm", "grouped heads", "tied", "scales: scalar", "scales: fixed"],
)
def test_a_model_comes_back_bit_for_bit(variant: str, tmp_path: Path) -> None:
    model = byte_model(**VARIANTS[variant])
    run = write_run(tmp_path / "run", model)
    exported = export_to_hf(run, tmp_path / "hf")
    back = import_from_hf(exported, tmp_path / "back")
    for path in (run, next((run / "checkpoints").iterdir()), exported, back):
        loaded = load_model(path)
        assert loaded.config == RunConfig(model=model.config)
        assert loaded.tokenizer.name == "bytes"
        assert_same_weights(loaded.model, model)
        assert torch.equal(loaded.model(TOKENS), model(TOKENS))
    assert (find_saved(back).step, find_saved(back).val_loss) == (7, 2.5)
    for file in ("config.json", "generation_config.json"):
        said = json.loads((exported / file).read_text())
        assert said["eos_token_id"] == said["pad_token_id"] == 256


@pytest.mark.parametrize("variant", ["tied", "scales: scalar", "scales: fixed", "no qk norm"])
def test_a_folded_model_computes_and_generates_the_same(
    variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = byte_model(**VARIANTS[variant])
    assert model.s_z is not None
    with torch.no_grad():
        model.s_z.stored[0] = -2.0 * model.s_z.stored[0]  # a factor may turn its row over
    folded = export_to_hf(write_run(tmp_path / "run", model), tmp_path / "hf", fold=True)
    back = load_model(folded).model
    # The rounding of a length in float32, for logits of the order of 1.
    torch.testing.assert_close(back(TOKENS), model(TOKENS), rtol=0, atol=1e-5)
    saved = tmp_path / "saved-by-transformers"
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folded, trust_remote_code=True)
    theirs.save_pretrained(saved)
    torch.testing.assert_close(
        load_model(saved, "bytes").model(TOKENS), model(TOKENS), rtol=0, atol=1e-5
    )
    texts = []
    for source in (tmp_path / "run", folded):
        arguments = ["--prompt", "def", "--temperature", "0", "--max-new-tokens", "8"]
        assert main(["generate", str(source), *arguments, "--device", "cpu"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    with pytest.raises(
        UserError, match="cannot be restored bit for bit: import one that was exported without"
    ):
        import_from_hf(folded, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_factor_of_zero_is_folded_and_comes_back(tmp_path: Path) -> None:
    """Nobody knows its row any more; it is a unit vector all the same."""
    model = byte_model()
    assert model.s_z is not None
    with torch.no_grad():
        model.s_z.stored[3] = 0.0
    folded = export_to_hf(write_run(tmp_path / "run", model), tmp_path / "hf", fold=True)
    back = load_model(folded).model
    assert back.s_z is not None
    assert back.s_z.stored[3] == 0
    assert largest_norm_deviation(back) < 1e-6  # the rounding of a sum of 32 squares in float32
    torch.testing.assert_close(back(TOKENS), model(TOKENS), rtol=0, atol=1e-5)


def test_without_our_record_the_hugging_face_config_is_enough(tmp_path: Path) -> None:
    """As a folder is that transformers saved."""
    for variant in ("scales: scalar", "gpt, grouped heads", "gpt, tied", "tied", "signed alpha"):
        model = byte_model(**VARIANTS[variant], rope_base=500.0)
        exported = export_to_hf(write_run(tmp_path / variant, model), tmp_path / f"hf {variant}")
        (exported / RECORD).unlink()
        loaded, _, config = load_model(exported)
        assert_same_weights(loaded, model)
        assert torch.equal(loaded(TOKENS), model(TOKENS))
        named = {"n_kv_heads": model.config.kv_heads}  # what is left to defaults is spelt out
        named |= {s: ScaleConfig(**asdict(model.config.resolve_scale(s))) for s in scales(model)}
        assert config == RunConfig(model=replace(model.config, **named))
        assert json.loads((exported / "config.json").read_text())["max_position_embeddings"] == 64
        settings = json.loads((exported / "tokenizer_config.json").read_text())
        assert settings["model_max_length"] == 64


def scales(model: Transformer) -> tuple[str, ...]:
    return SCALE_NAMES if model.config.arch == "ngpt" else ()


def test_the_newest_checkpoint_of_a_run_is_taken(tmp_path: Path) -> None:
    old, new = byte_model(), byte_model(arch="ngpt")
    with torch.no_grad():
        new.E_input.copy_(new.E_input.flip(0))
    run = write_run(tmp_path / "run", old, step=9)
    later = write_run(tmp_path / "other", new, step=10)
    (later / "checkpoints" / "step_10").rename(run / "checkpoints" / "step_10")
    assert_same_weights(load_model(run).model, new)


def test_the_card_has_losses_and_configuration(tmp_path: Path) -> None:
    card = (export_to_hf(write_run(tmp_path / "r", byte_model()), tmp_path / "hf")).joinpath(
        "README.md"
    )
    text = card.read_text()
    assert "| 7 | 700 | 2.5000 | 3.6000 |" in text
    assert 'arch = "ngpt"' in text
    assert "trust_remote_code=True" in text


def test_the_card_has_its_losses_where_the_last_line_was_cut_short(tmp_path: Path) -> None:
    """As a kill in the midst of writing metrics.jsonl leaves it."""
    run = write_run(tmp_path / "r", byte_model())
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "tokens": 800, "lo')
    text = (export_to_hf(run, tmp_path / "hf") / "README.md").read_text()
    assert "| 7 | 700 | 2.5000 | 3.6000 |" in text


def test_losses_and_steps_survive_a_second_export(tmp_path: Path) -> None:
    first = export_to_hf(write_run(tmp_path / "r", byte_model()), tmp_path / "a")
    second = export_to_hf(first, tmp_path / "b")
    assert "| 7 | 700 | 2.5000 |" in (second / "README.md").read_text()
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
