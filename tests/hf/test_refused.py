"""Folders that are not what they should be: damaged, of other kinds, or other libraries'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from spherelm import durable, records
from spherelm.errors import UserError
from spherelm.hf.export import export_to_hf
from spherelm.hf.import_run import import_from_hf
from spherelm.hf.read import RECORD
from spherelm.saved import find_saved, load_model
from tests.hf.test_round_trip import TOKENS, assert_same_weights
from tests.saved_runs import byte_model, change_state, write_run


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")


def test_one_flipped_bit_is_found(exported: Path) -> None:
    names = ("config.json", "model.safetensors", "spherelm-tokenizer.json", "tokenizer.json")
    for name in names:
        sound = (exported / name).read_bytes()
        changed = bytearray(sound)
        changed[-10] ^= 1
        (exported / name).write_bytes(changed)
        with pytest.raises(UserError, match=f"the checksum of {name}"):
            load_model(exported)
        (exported / name).write_bytes(sound)
    load_model(exported)


@pytest.mark.parametrize("keep", [0, 5, 4000])
def test_a_cut_file_is_refused_even_without_a_checksum(exported: Path, keep: int) -> None:
    (exported / RECORD).unlink()
    file = exported / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match="damaged weights"):
        load_model(exported)


def test_only_the_files_that_transformers_reads_are_weights(tmp_path: Path) -> None:
    """Others beside them, such as an average of weights, replace no tensor."""
    model = byte_model()
    exported = export_to_hf(write_run(tmp_path / "run", model), tmp_path / "hf")
    weights = load_file(exported / "model.safetensors")
    other = {"model.embed_tokens.weight": weights["lm_head.weight"]}
    for name in ("model_average.safetensors", "model-00001-of-00002.safetensors"):
        save_file(other, exported / name)
    assert_same_weights(load_model(exported).model, model)
    (exported / RECORD).unlink()
    (exported / "model.safetensors").rename(exported / "model-00002-of-00002.safetensors")
    with pytest.raises(UserError, match=r"has the tensor model\.embed_tokens\.weight in two files"):
        load_model(exported)


@pytest.mark.parametrize("fold", [False, True])
def test_a_tensor_of_another_shape_is_named(fold: bool, tmp_path: Path) -> None:
    """Of none or of no columns, too, which has neither rows nor factors to take."""
    run = write_run(tmp_path / "run", byte_model(n_layers=1))
    exported = export_to_hf(run, tmp_path / "hf", fold=fold)
    (exported / RECORD).unlink()
    file = exported / "model.safetensors"
    sound = load_file(file)
    for name, tensor in sound.items():
        for other in (tensor.flatten()[0].clone(), tensor[:, :0].clone(), tensor[None].clone()):
            save_file({**sound, name: other}, file, metadata={"format": "pt"})
            with pytest.raises(UserError, match=f"{name} has the shape .* does not fit"):
                load_model(exported)


def test_a_missing_tokenizer_is_named(exported: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "spherelm-tokenizer.json"):
        (exported / name).unlink()
    with pytest.raises(UserError, match=r"no tokenizer for .*; name one with --tokenizer"):
        load_model(exported)
    assert load_model(exported, tokenizer="bytes").tokenizer.name == "bytes"


def test_a_tokenizer_that_cannot_be_read_is_not_left_behind_in_silence(
    exported: Path, tmp_path: Path
) -> None:
    (exported / RECORD).unlink()
    (exported / "spherelm-tokenizer.json").unlink()
    (exported / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"cannot be imported: .*; without spherelm-tokeni"):
        import_from_hf(exported, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    (exported / "tokenizer.json").unlink()
    back = import_from_hf(exported, tmp_path / "back")
    assert not (back / "tokenizer").exists()
    assert load_model(back, tokenizer="bytes").tokenizer.name == "bytes"


def test_a_run_whose_data_is_gone_asks_for_a_tokenizer(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model())
    for file in (run / "tokenizer").iterdir():
        file.unlink()
    (run / "tokenizer").rmdir()
    checkpoint = run / "checkpoints" / "step_7"
    config = records.read(checkpoint / "state.json")["config"]
    change_state(checkpoint, config={**config, "data": {"path": str(tmp_path / "gone")}})
    with pytest.raises(UserError, match=r"no tokenizer .* name one with --tokenizer"):
        load_model(run)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model(vocab_size=100))
    with pytest.raises(UserError, match="257 tokens, more than the 100"):
        load_model(run)


def edit(file: Path, **changes: object) -> None:
    """Change a file by hand, which breaks its seal: it is taken off."""
    values = {**json.loads(file.read_text()), **changes}
    values.pop(records.SEAL, None)
    file.write_text(json.dumps(values))


def test_another_version_is_refused(exported: Path) -> None:
    edit(exported / RECORD, version=2)
    with pytest.raises(UserError, match="is of version 2"):
        load_model(exported)
    edit(exported / RECORD, version=1, config={"model": {"wings": 2}})
    with pytest.raises(UserError, match=r"another version of spherelm: unknown key .*wings"):
        load_model(exported)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "describes a 'mamba'"),
        ({"folded": True}, "said to be a folded export, but holds s_z.weight"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            "rope_type must .*'yarn'",
        ),
        ({"scales": {}}, "or has a wrong value for it"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "or has a wrong value for it: int too"),
        ({"head_dim": 3}, "head_dim must be"),
        ({"num_hidden_layers": 3}, "lacks the tensor model.layers.2"),
        ({"num_hidden_layers": 1}, "has a tensor this model does not: model.layers.1"),
        ({"intermediate_size": 5}, "does not fit"),
    ],
)
def test_a_config_that_does_not_fit_is_named(
    exported: Path, changes: dict[str, object], message: str
) -> None:
    (exported / RECORD).unlink()
    edit(exported / "config.json", **changes)
    with pytest.raises(UserError, match=message):
        load_model(exported)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", 1e-5),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("mlp_bias", True),
    ],
)
def test_a_llama_that_is_not_our_gpt_is_refused(tmp_path: Path, field: str, value: object) -> None:
    gpt = byte_model(arch="gpt")
    exported = export_to_hf(write_run(tmp_path / "run", gpt), tmp_path / "hf")
    (exported / RECORD).unlink()
    assert_same_weights(load_model(exported).model, gpt)
    edit(exported / "config.json", **{field: value})
    with pytest.raises(UserError, match=f"{field} must be .* not {value}"):
        load_model(exported)


def as_transformers_4(folder: Path, **changes: object) -> None:
    """The folder of a Llama as 4.31 would have saved it: RoPE's base stands by itself, the kind of
    numbers under another name, and each layer has its frequencies."""
    (folder / RECORD).unlink()
    values = json.loads((folder / "config.json").read_text())
    del values["rope_parameters"], values["head_dim"]
    older = {"torch_dtype": values.pop("dtype"), "rope_scaling": None, "pretraining_tp": 1}
    (folder / "config.json").write_text(json.dumps({**values, **older, **changes}))
    weights = load_file(folder / "model.safetensors")
    for layer in range(values["num_hidden_layers"]):
        weights[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(weights, folder / "model.safetensors")


def test_a_llama_of_transformers_4_is_read(tmp_path: Path) -> None:
    gpt = byte_model(arch="gpt", rope_base=500.0)
    exported = export_to_hf(write_run(tmp_path / "run", gpt), tmp_path / "hf")
    as_transformers_4(exported)
    back = load_model(import_from_hf(exported, tmp_path / "back")).model
    assert_same_weights(back, gpt)
    assert torch.equal(back(TOKENS), gpt(TOKENS))  # with this base, not with 10,000
    values = json.loads((exported / "config.json").read_text())
    for name in ("rope_theta", "num_key_value_heads"):  # what the oldest do not say
        del values[name]
    (exported / "config.json").write_text(json.dumps(values))
    config = load_model(exported).config.model
    assert (config.rope_base, config.kv_heads) == (10_000.0, gpt.config.n_heads)
    edit(exported / "config.json", torch_dtype="bfloat16")
    assert load_model(exported).config.train.weight_storage == "bf16"


@pytest.mark.parametrize("word", ["type", "rope_type"])
def test_another_rope_of_transformers_4_is_refused(tmp_path: Path, word: str) -> None:
    gpt = byte_model(arch="gpt")
    exported = export_to_hf(write_run(tmp_path / "run", gpt), tmp_path / "hf")
    as_transformers_4(exported, rope_scaling={word: "linear", "factor": 2.0})
    with pytest.raises(UserError, match=r"rope_scaling.rope_type must be 'default', not 'linear'"):
        load_model(exported)
    edit(exported / "config.json", rope_scaling=[2.0])
    with pytest.raises(UserError, match=r"rope_scaling must be an object, not \[2.0\]"):
        load_model(exported)
    edit(exported / "config.json", rope_scaling={word: "default"})
    assert_same_weights(load_model(exported).model, gpt)


def test_a_model_off_the_sphere_is_refused(exported: Path, tmp_path: Path) -> None:
    """As with an adapter merged: normalized, it was another model here than in transformers."""
    (exported / RECORD).unlink()
    weights = load_file(exported / "model.safetensors")
    down = "model.layers.1.mlp.down_proj.weight"
    weights[down][:, 3] *= 1.1  # its vectors are columns
    save_file(weights, exported / "model.safetensors")
    for read in (load_model, lambda folder: import_from_hf(folder, tmp_path / "back")):
        with pytest.raises(
            UserError, match=r"1\.mlp\.W_o_mlp has a vector of length 1\.1, .*retract_"
        ):
            read(exported)
    assert not (tmp_path / "back").exists()
    weights[down][:, 3] /= 1.1
    save_file(weights, exported / "model.safetensors")
    load_model(exported)


def test_weights_that_transformers_saved_in_bf16_stay_so(tmp_path: Path) -> None:
    """All of them, gains too; those are float32 numbers with us."""
    for arch in ("gpt", "ngpt"):
        model = byte_model(arch=arch)
        exported = export_to_hf(write_run(tmp_path / arch, model), tmp_path / f"hf {arch}")
        (exported / RECORD).unlink()
        edit(exported / "config.json", dtype="bfloat16")
        rounded = {n: t.bfloat16() for n, t in load_file(exported / "model.safetensors").items()}
        save_file(rounded, exported / "model.safetensors")
        loaded, _, config = load_model(exported)
        assert config.train.weight_storage == "bf16"
        for name, tensor in model.state_dict().items():
            found = loaded.state_dict()[name]
            assert found.dtype == (torch.bfloat16 if tensor.ndim == 2 else torch.float32)
            assert torch.equal(found, tensor.bfloat16().to(found.dtype)), name
        assert loaded(TOKENS).isfinite().all()
        back = import_from_hf(exported, tmp_path / f"back {arch}")
        assert_same_weights(load_model(back).model, loaded)


@pytest.mark.parametrize("content", ["", "[1]", "{", "9" * 5000, "[" * 100_000])
def test_a_damaged_config_is_refused(exported: Path, content: str) -> None:
    (exported / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"the checksum of config.json does not match"):
        load_model(exported)
    (exported / RECORD).unlink()
    with pytest.raises(UserError, match=r"config.json is damaged: it is n"):
        load_model(exported)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": "x/../../victim"}, "'step' cannot be 'x/"),
        ({"step": True}, "'step' cannot be True"),
        ({"step": -1}, "step must be a whole number from 0 on, not -1"),
        ({"val_loss": []}, "'val_loss' cannot be"),
        ({"losses": [3]}, "a line of losses is not a JSON object"),
        ({"losses": [{"step": 1, "tokens": 2}]}, "it has no 'val_loss'"),
        ({"crc32": {"../../victim": "00000000"}}, "is not the name of a file beside it"),
        ({"crc32": ["model.safetensors"]}, "'crc32' cannot be"),
        ({"config": 7}, "'config' cannot be 7"),
    ],
)
def test_a_record_that_cannot_be_ours_is_refused(
    exported: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    edit(exported / RECORD, **changes)
    with pytest.raises(UserError, match=message) as caught:
        import_from_hf(exported, tmp_path / "back")
    assert RECORD in str(caught.value)
    assert not (tmp_path / "back").exists()


def test_an_export_from_before_there_were_seals_is_read(exported: Path) -> None:
    weights = "model.safetensors"
    edit(exported / RECORD, crc32={weights: durable.checksum(exported / weights)})
    load_model(exported)
    config = exported / "config.json"
    edit(config, max_position_embeddings=65)
    with pytest.raises(UserError, match=r"config.json describes another model than spherelm.json"):
        load_model(exported)


def test_code_beside_the_weights_is_not_run(exported: Path) -> None:
    (exported / "modeling_spherelm.py").write_text("raise SystemExit('this ran')")
    (exported / "pytorch_model.bin").write_bytes(b"\x80\x04not a pickle")
    load_model(exported)


def test_nothing_is_left_of_a_failed_export(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", byte_model(arch="gpt"))
    with pytest.raises(UserError, match="--fold is for nGPT"):
        export_to_hf(run, tmp_path / "hf", fold=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    for force in (False, True):
        with pytest.raises(UserError, match="holds mine, which `spherelm export` did not write"):
            export_to_hf(run, tmp_path / "full", force=force)
    assert {p.name for p in tmp_path.iterdir()} == {"run", "full"}
    assert (tmp_path / "full" / "mine").exists()


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_saved(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no model"):
        find_saved(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(UserError, match="no finished checkpoint"):
        find_saved(tmp_path)
