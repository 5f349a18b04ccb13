"""Exported models that are quantized, frozen below an adapter, or left on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from spherelm.hf.export import export_to_hf
from spherelm.model.config import SCALE_NAMES
from tests.hf.models import as_hf, on_sphere, tokens
from tests.saved_runs import byte_model, write_run

transformers = pytest.importorskip("transformers")


def test_quantizers_of_transformers_spare_the_factors() -> None:
    """To them a vector of factors, a Linear from one number, would be a matrix like any other."""
    from transformers.quantizers.base import HfQuantizer
    from transformers.quantizers.quantizers_utils import should_convert_module

    hf = as_hf(on_sphere())
    spared = HfQuantizer.get_modules_to_not_convert(hf, None, hf._keep_in_fp32_modules)
    linears = [name for name, m in hf.named_modules() if isinstance(m, torch.nn.Linear)]
    quantized = {n.split(".")[-1] for n in linears if should_convert_module(n, spared)}
    attention, mlp = {"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj", "up_proj", "down_proj"}
    assert quantized == attention | mlp
    assert {name.split(".")[-1] for name in linears} == quantized | {"lm_head", *SCALE_NAMES}
    # torchao's asks about parameters; its own and torch's functions ask for the class.
    factors = [name for name in linears if name.split(".")[-1] in SCALE_NAMES]
    assert not any(should_convert_module(f"{name}.weight", spared) for name in factors)
    left_alone = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
    assert all(isinstance(hf.get_submodule(name), left_alone) for name in factors)


def test_layers_on_disk_compute_the_same(tmp_path: Path) -> None:
    """As `device_map="auto"` leaves what has no room: their weights are on no device meanwhile."""
    import spherelm.hf.register  # noqa: F401

    pytest.importorskip("accelerate")
    folder = export_to_hf(write_run(tmp_path / "run", byte_model()), tmp_path / "hf")
    load, x = transformers.AutoModelForCausalLM.from_pretrained, tokens()
    placed = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu"}
    placed |= {"model.layers": "disk", "lm_head": "cpu", "s_z": "disk"}
    hf = load(folder, device_map=placed, offload_folder=tmp_path / "disk")
    assert hf.s_z.weight.is_meta
    assert hf.model.layers[0].self_attn.s_qk.weight.is_meta
    assert torch.equal(hf(x).logits, load(folder)(x).logits)


def test_retraction_leaves_what_is_quantized_or_frozen() -> None:
    """Below an adapter. bitsandbytes packs numbers into bytes, and all of them became 1."""
    import spherelm.hf.register as hub
    from spherelm import retract_

    model = as_hf(on_sphere())
    attention, packed = model.model.layers[0].self_attn, torch.arange(256).view(8, 32).byte()
    attention.q_proj.weight = torch.nn.Parameter(packed.clone(), requires_grad=False)
    attention.k_proj.weight.requires_grad = False
    with torch.no_grad():
        frozen = attention.k_proj.weight.mul_(3).clone()
        attention.v_proj.weight.mul_(3)
    hub.RetractionCallback().on_optimizer_step(None, None, None, model=model)
    assert torch.equal(attention.k_proj.weight, frozen)
    lengths = torch.linalg.vector_norm(attention.v_proj.weight, dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    for retract in (retract_, hub.NGPTForCausalLM.retract_):
        attention.k_proj.weight.data.mul_(3)
        retract(model)
        torch.testing.assert_close(attention.k_proj.weight.data, frozen / 3)  # asked for: all
    assert torch.equal(attention.q_proj.weight, packed)
