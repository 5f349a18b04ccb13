"""The exported classes compute what spherelm computes, and behave as transformers expects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.hf.export import export_to_hf
from spherelm.hf.names import to_hf_config, to_hf_tensors
from spherelm.model.config import SCALE_NAMES
from spherelm.ops.reference import residual_slerp
from tests.hf.models import as_hf, on_sphere, tokens
from tests.model.tiny import VARIANTS
from tests.saved_runs import byte_model, write_run

transformers = pytest.importorskip("transformers")

CLOSE = {"rtol": 0, "atol": 1e-5}
"""Two float32 implementations of the same equations, for logits of the order of 1."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_the_same(variant: str) -> None:
    model, x = on_sphere(**VARIANTS[variant]), tokens()
    if model.config.arch == "gpt":  # its logits here reach 11: bring them to the order of 1
        model.final_norm.gain.data /= 10
    with torch.no_grad():
        torch.testing.assert_close(as_hf(model)(x).logits, model(x), **CLOSE)


@pytest.mark.parametrize("variant", ["lerp", "slerp", "riemannian", "no qk norm", "grouped heads"])
def test_logits_in_float64_are_the_same_to_its_rounding(variant: str) -> None:
    """Angles in float32 were off by 1e-9; what is left is 1e-15."""
    model, x = on_sphere(**VARIANTS[variant]).double(), tokens()
    with torch.no_grad():
        hf = as_hf(model).double()
        torch.testing.assert_close(hf(x).logits, model(x), rtol=0, atol=1e-12)


def test_a_llama_has_its_rope_base_also_where_older_readers_look_for_it() -> None:
    """They would take 10,000 without a word."""
    model, x = on_sphere(arch="gpt", rope_base=50.0), tokens()
    model.final_norm.gain.data /= 10
    config = to_hf_config(model.config, "float32")
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 50.0
    with torch.no_grad():
        new = as_hf(model)(x).logits
        old = as_hf(model, rope_parameters=None)(x).logits  # as without the newer field
    torch.testing.assert_close(new, model(x), **CLOSE)
    torch.testing.assert_close(old, model(x), **CLOSE)


def test_another_kind_of_rope_is_refused_and_not_left_out() -> None:
    from spherelm.hf.register import NGPTConfig

    assert NGPTConfig(rope_theta=50.0).rope_parameters["rope_theta"] == 50.0
    for words in ("rope_parameters", "rope_scaling"):
        with pytest.raises(ValueError, match="of the type default, not 'linear'"):
            NGPTConfig(**{words: {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}})


@pytest.mark.parametrize("variant", ["lerp", "tied", "scales: other values", "scales: scalar"])
def test_folded_scales_give_the_same_logits(variant: str) -> None:
    model, x = on_sphere(**VARIANTS[variant]), tokens()
    hf = as_hf(model, fold=True)
    assert not any(name.startswith(("s_z", "s_u")) for name, _ in hf.named_parameters())
    with torch.no_grad():
        torch.testing.assert_close(hf(x).logits, model(x), **CLOSE)


@pytest.mark.parametrize("variant", ["gpt", "grouped heads", "no qk norm"])
def test_greedy_generation_is_the_same(variant: str) -> None:
    model, x = on_sphere(**VARIANTS[variant]), tokens(1, 9)
    ours = Engine(model).generate(x.tolist(), max_new_tokens=30, sampling=Sampling(temperature=0))
    theirs = as_hf(model).generate(x, max_new_tokens=30, do_sample=False, pad_token_id=0)
    assert theirs[0, 9:].tolist() == ours[0]


def test_padding_on_the_left_changes_nothing() -> None:
    """As serving engines batch prompts of different lengths."""
    hf, x = as_hf(on_sphere()), tokens(1, 12)
    padded = torch.cat((torch.zeros(1, 5, dtype=torch.long), x), dim=1)
    mask = torch.cat((torch.zeros(1, 5, dtype=torch.long), torch.ones_like(x)), dim=1)
    settings = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0}
    alone = hf.generate(x, **settings)[0, 12:]
    assert hf.generate(padded, attention_mask=mask, **settings)[0, 17:].tolist() == alone.tolist()


def test_forward_on_padding_and_on_packed_rows_takes_positions() -> None:
    """docs/huggingface.md: with a vector s_qk, logits depend on absolute positions."""
    model, x = on_sphere(), tokens(1, 12)
    hf = as_hf(model)
    padded = torch.cat((torch.zeros(1, 5, dtype=torch.long), x), dim=1)
    mask = (torch.arange(17) >= 5).long()[None]
    counted = (mask.cumsum(-1) - 1).clamp_min(0)
    with torch.no_grad():
        alone = model(x)
        without = hf(padded, attention_mask=mask).logits[:, 5:]
        assert float((without - alone).abs().max()) > 1e-3
        given = hf(padded, attention_mask=mask, position_ids=counted).logits[:, 5:]
        torch.testing.assert_close(given, alone, **CLOSE)
        # Two documents in a row: positions that restart also keep attention inside each.
        other = tokens(1, 7)
        row = torch.cat((other, x), dim=1)
        restarting = torch.cat((torch.arange(7), torch.arange(12)))[None]
        both = hf(row, position_ids=restarting, use_cache=False).logits
        torch.testing.assert_close(both, torch.cat((model(other), alone), dim=1), **CLOSE)


def test_conventions() -> None:
    """Every attention implementation, logits_to_keep, recorded states, gradient checkpointing."""
    hf, x = as_hf(on_sphere(n_kv_heads=2)), tokens()
    with torch.no_grad():
        whole = hf(x).logits
        torch.testing.assert_close(hf(x, logits_to_keep=3).logits, whole[:, -3:])
        hf.set_attn_implementation("eager")
        outputs = hf(x, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(outputs.logits, whole, **CLOSE)
    assert len(outputs.hidden_states) == hf.config.num_hidden_layers + 1
    assert outputs.attentions[0].shape == (2, 4, 40, 40)
    lengths = torch.linalg.vector_norm(outputs.hidden_states[-1], dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))

    hf.train()
    hf(x, labels=x).loss.backward()
    plain = {name: p.grad.clone() for name, p in hf.named_parameters()}
    hf.zero_grad()
    hf.gradient_checkpointing_enable()
    hf(x, labels=x).loss.backward()
    for name, p in hf.named_parameters():
        torch.testing.assert_close(p.grad, plain[name])


def test_gradients_are_the_same() -> None:
    model, x = on_sphere(), tokens()
    hf = as_hf(model)
    model.loss(x[:, :-1], x[:, 1:]).backward()
    hf(x, labels=x).loss.backward()
    expected = to_hf_tensors({n: p.grad for n, p in model.named_parameters()})
    for name, p in hf.named_parameters():
        # Sums over 78 tokens in another order.
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-3, atol=1e-5)


def test_a_fresh_model_starts_on_the_sphere() -> None:
    import spherelm.hf.register as hub

    config = hub.NGPTConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = hub.NGPTForCausalLM(config)
    deviations = [
        (torch.linalg.vector_norm(m, dim=dim) - 1).abs().max() for m, dim in model.matrices()
    ]
    assert len(deviations) == 2 + 7 * 2
    assert max(deviations) < 1e-6  # a few roundings of float32
    assert torch.equal(model.s_z.weight, torch.full((50, 1), 32**-0.5))


def test_factors_that_are_not_learned_stay_so_in_a_folder(tmp_path: Path) -> None:
    """`from_pretrained` makes parameters that ask for gradients, whatever those it replaces did."""
    import spherelm.hf.register as hub

    fixed = {name: {"mode": "fixed", "init": 3.0} for name in ("s_z", "s_qk", "alpha_mlp")}
    config = hub.NGPTConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, scales=fixed
    )
    model = hub.NGPTForCausalLM(config)
    model.save_pretrained(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
        learned = {name.split(".")[-2] for name, p in loaded.named_parameters() if p.requires_grad}
        assert learned & set(SCALE_NAMES) == {"alpha_attn", "s_u", "s_nu"}
        assert torch.equal(loaded.s_z.weight, model.s_z.weight)  # float32 in any case
        if dtype == torch.float32:
            assert torch.equal(loaded(x := tokens() % 50).logits, model(x).logits)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ({"alpha": {"init": 0.1}}, "scales must be of alpha_attn, .*, not 'alpha'"),
        ({"s_z": {"int": 2.0}}, "s_z has init, scale and mode, not 'int'"),
        (
            {"s_z": {"mode": "Vector"}},
            "mode of s_z must be vector or scalar or fixed, not 'Vector'",
        ),
    ],
)
def test_a_misspelt_scale_is_refused(scales: dict[str, Any], message: str) -> None:
    """It was left out, or read as one factor for all, without a word."""
    from spherelm.hf.remote_code.configuration_spherelm import NGPTConfig

    with pytest.raises(ValueError, match=message):
        NGPTConfig(scales=scales)


def test_low_precision_keeps_the_factors_in_float32(tmp_path: Path) -> None:
    import spherelm.hf.register  # noqa: F401

    folder = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    dtypes = {name.split(".")[-2]: p.dtype for name, p in model.named_parameters()}
    assert dtypes["q_proj"] == torch.bfloat16
    assert {dtypes[s] for s in ("s_qk", "s_u", "s_nu", "s_z", "alpha_attn")} == {torch.float32}
    assert model(tokens()).logits.isfinite().all()


def test_the_callback_retracts() -> None:
    import spherelm.hf.register as hub

    model = as_hf(on_sphere())
    expected = [matrix.detach().clone() for matrix, _ in model.matrices()]
    with torch.no_grad():
        for matrix, _ in model.matrices():
            matrix.mul_(3.0)
    hub.RetractionCallback().on_optimizer_step(None, None, None, model=model)
    for (matrix, _), before in zip(model.matrices(), expected, strict=True):
        torch.testing.assert_close(matrix, before)
    with pytest.raises(ValueError, match="without --fold"):
        as_hf(on_sphere(), fold=True).retract_()


def test_our_retraction_finds_the_exported_model_and_any_wrapper_of_it() -> None:
    import spherelm.hf.register as hub
    from spherelm import AdamW, attach_retraction, retract_
    from spherelm.errors import UserError
    from spherelm.model.sphere import largest_norm_deviation

    model = as_hf(on_sphere(tie_embeddings=True))
    model.resize_token_embeddings(300)  # puts other tensors in place
    wrapped = torch.nn.Sequential(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    attach_retraction(optimizer, wrapped)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert largest_norm_deviation(wrapped) < 1e-6
    assert not torch.equal(model.s_z.weight, torch.ones_like(model.s_z.weight))
    with torch.no_grad():
        model.lm_head.weight.mul_(3)
    hub.RetractionCallback().on_optimizer_step(None, None, None, model=wrapped)
    assert largest_norm_deviation(model) < 1e-6
    with pytest.raises(UserError, match="use an optimizer of torch"):
        AdamW(model, lr=1e-3)
    with pytest.raises(UserError, match="an exported nGPT that is not folded"):
        retract_(as_hf(on_sphere(), fold=True))


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("variant", ["lerp", "tied", "scales: scalar"])
def test_tokens_can_be_added_and_taken_away(variant: str, fold: bool, mean: bool) -> None:
    """The logits of the others stay as they are; a new token has unit rows and its factor."""
    hf, x = as_hf(on_sphere(**VARIANTS[variant]), fold=fold), tokens()
    old = hf(x).logits
    assert hf.resize_token_embeddings(270, mean_resizing=mean) is hf.get_input_embeddings()
    logits = hf(torch.cat((x, torch.arange(250, 270).repeat(2, 1)), 1)).logits
    torch.testing.assert_close(logits[:, :40, :257], old, **CLOSE)
    assert logits.shape[-1] == hf.config.vocab_size == 270
    if not fold and variant != "scales: scalar":
        assert hf.s_z.out_features == len(hf.s_z.weight) == 270
    matrices = [hf.model.embed_tokens.weight] + ([] if fold else [hf.lm_head.weight])
    for rows in matrices:
        lengths = torch.linalg.vector_norm(rows.detach(), dim=-1)
        torch.testing.assert_close(lengths, torch.ones(270), rtol=0, atol=1e-6)
    if mean and variant != "scales: scalar":  # one factor for all leaves rows no length
        average = old.mean(-1)
        deviation = (logits[:, :40, 257:] - average[..., None]).abs().max()
        assert deviation < 0.2 * (old - average[..., None]).abs().max()
    hf.resize_token_embeddings(100)
    few = hf(x.clamp_max(99)).logits
    assert few.shape[-1] == 100
    hf.resize_token_embeddings(pad_to_multiple_of=64, mean_resizing=mean)
    padded = hf(x.clamp_max(99)).logits
    assert padded.shape[-1] == 128
    torch.testing.assert_close(padded[..., :100], few, **CLOSE)


def test_factors_stay_in_float32_under_autocast() -> None:
    """As in training: an α of 0.05 in bfloat16 would be off by up to one part in 256."""
    from spherelm.hf.remote_code.modeling_spherelm import factors

    hf = as_hf(on_sphere())
    for module, name in ((hf.model.layers[0], "alpha_attn"), (hf, "s_z")):
        with torch.autocast("cpu", torch.bfloat16):
            found = factors(module, name, torch.zeros(1))
        assert found.dtype == torch.float32
        assert torch.equal(found, factors(module, name, torch.zeros(1)))


def test_angles_are_right_far_out() -> None:
    """At 100,000 radians float32 has steps of 0.008; the table is that of angles in float64."""
    from spherelm.hf.remote_code.modeling_spherelm import RotaryTable

    hf = as_hf(on_sphere())
    positions, d_k = torch.tensor([[0, 1, 99_999]]), hf.config.head_dim
    cos, sin = RotaryTable(hf.config)(torch.zeros(1), positions)
    exponents = torch.arange(0, d_k, 2, dtype=torch.float64).repeat(2) / d_k
    angles = positions[..., None].double() * 10_000.0**-exponents
    torch.testing.assert_close(cos.double(), angles.cos(), rtol=0, atol=1e-7)
    torch.testing.assert_close(sin.double(), angles.sin(), rtol=0, atol=1e-7)


def test_slerp_between_opposite_points_stays_where_it_is() -> None:
    """No great circle is the shortest there; half-way, all of them cancel out."""
    from spherelm.hf.remote_code.modeling_spherelm import residual

    h = torch.eye(8)[None]  # (1, 8, 8): points that are opposite to the last bit
    alpha = torch.full((8,), 0.5)
    moved = residual(h, -h, alpha, "slerp")
    assert torch.equal(moved, h)
    assert torch.equal(moved, residual_slerp(h, -h, alpha))


def test_one_factor_for_all_is_not_split_over_devices() -> None:
    from spherelm.hf.remote_code.configuration_spherelm import NGPTConfig

    config = NGPTConfig(scales={"s_u": {"mode": "scalar"}, "s_qk": {"mode": "fixed"}})
    assert config.base_model_tp_plan.keys() == NGPTConfig.base_model_tp_plan.keys() - {
        "layers.*.mlp.s_u",
        "layers.*.self_attn.s_qk",
    }


def test_a_model_with_more_tokens_is_saved_and_loaded(tmp_path: Path) -> None:
    """By transformers and by us, and without its head too."""
    import spherelm.hf.register  # noqa: F401
    from spherelm.saved import load_model

    folder, x = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf"), tokens()
    hf = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    hf.resize_token_embeddings(260)
    logits = hf(x).logits
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "more")
    hf.save_pretrained(tmp_path / "more")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "more")
    assert torch.equal(again(x).logits, logits)
    ours = load_model(tmp_path / "more")
    torch.testing.assert_close(ours.model(x), logits, **CLOSE)
    headless = transformers.AutoModel.from_pretrained(folder)
    headless.resize_token_embeddings(260, mean_resizing=False)
    lengths = torch.linalg.vector_norm(headless.embed_tokens.weight, dim=-1)
    torch.testing.assert_close(lengths, torch.ones(260), rtol=0, atol=1e-6)


def test_training_under_the_trainer_stays_on_the_sphere(tmp_path: Path) -> None:
    """The example, on data of its own: norms are 1 after training, and the loss has fallen."""
    from examples.train_with_transformers import main

    pytest.importorskip("accelerate")
    folder = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    losses, model = main(str(folder), steps=12, out=str(tmp_path / "trained"))
    assert losses[-1] < losses[0]
    for matrix, dim in model.matrices():
        length = torch.linalg.vector_norm(matrix, dim=dim)
        torch.testing.assert_close(length, torch.ones_like(length), rtol=0, atol=1e-6)


FRESH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "spherelm":
            raise ImportError("spherelm is not installed here")
sys.meta_path.insert(0, Blocked())
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[1:]:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    prompt = tokenizer("def main(", return_tensors="pt")
    output = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    print(type(model).__name__, output[0].tolist())
"""


def test_a_fresh_process_without_spherelm_loads_both_architectures(tmp_path: Path) -> None:
    """Also what transformers saved where the classes were registered: they went along."""
    import spherelm.hf.register  # noqa: F401

    folders, expected = [], []
    for arch, name in (("ngpt", "NGPTForCausalLM"), ("gpt", "LlamaForCausalLM")):
        model = byte_model(arch=arch)
        run = write_run(tmp_path / arch, model)
        folders.append(str(export_to_hf(run, tmp_path / f"{arch}-hf")))
        prompt = list(b"def main(")
        (new,) = Engine(model).generate(
            [prompt], max_new_tokens=20, sampling=Sampling(temperature=0), stop_ids={256}
        )
        expected.append((name, prompt + new))
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):
        auto.from_pretrained(folders[0]).save_pretrained(tmp_path / "saved")
    folders.append(str(tmp_path / "saved"))
    expected.append(expected[0])
    result = subprocess.run(
        [sys.executable, "-c", FRESH, *folders],
        capture_output=True,
        text=True,
        env={"PATH": "", "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for line, (name, ids) in zip(result.stdout.splitlines(), expected, strict=True):
        assert line.startswith(name)
        assert line.endswith((str(ids), str([*ids, 256])))
