"""The same tensors under two names: spherelm's and Hugging Face's.

nGPT becomes `NGPTForCausalLM` (`hf.remote_code`), GPT becomes transformers' own `LlamaForCausalLM`:
its RoPE pairs coordinate i with i + K/2 and its SwiGLU is ours. Two things differ in form: a
Hugging Face Linear is stored as (outputs, inputs), which turns W_o and W_oMLP over, and a vector of
factors is there the column of a Linear from one number.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from spherelm.errors import UserError
from spherelm.model.config import PAPER_STD, SCALE_NAMES, ModelConfig, ScaleConfig
from spherelm.ops.reference import NORM_EPS, RMS_NORM_EPS, at_least_float32

Form = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _turned(x: Tensor) -> Tensor:
    return x.T.contiguous()


def _column(x: Tensor) -> Tensor:
    """(n,) to (n, 1) and back."""
    return x[:, None] if x.ndim == 1 else x[:, 0]


_OUTSIDE: dict[str, tuple[str, Form]] = {
    "E_input": ("model.embed_tokens.weight", _same),
    "E_output": ("lm_head.weight", _same),
    "final_norm.gain": ("model.norm.weight", _same),
    "s_z.stored": ("s_z.weight", _column),
}
_BLOCK: dict[str, tuple[str, Form]] = {
    "attention.W_q": ("self_attn.q_proj.weight", _same),
    "attention.W_k": ("self_attn.k_proj.weight", _same),
    "attention.W_v": ("self_attn.v_proj.weight", _same),
    "attention.W_o": ("self_attn.o_proj.weight", _turned),
    "attention.s_qk.stored": ("self_attn.s_qk.weight", _column),
    "mlp.W_u": ("mlp.up_proj.weight", _same),
    "mlp.W_nu": ("mlp.gate_proj.weight", _same),
    "mlp.W_o_mlp": ("mlp.down_proj.weight", _turned),
    "mlp.s_u.stored": ("mlp.s_u.weight", _column),
    "mlp.s_nu.stored": ("mlp.s_nu.weight", _column),
    "alpha_attn.stored": ("alpha_attn.weight", _column),
    "alpha_mlp.stored": ("alpha_mlp.weight", _column),
    "norm_attn.gain": ("input_layernorm.weight", _same),
    "norm_mlp.gain": ("post_attention_layernorm.weight", _same),
}


def _translations(native: Mapping[str, Any]) -> Iterator[tuple[str, str, Form]]:
    """Native name, Hugging Face name and change of form of each tensor of a state dict."""
    for name in native:
        if name.startswith("blocks."):
            _, i, rest = name.split(".", 2)
            hf, form = _BLOCK[rest]
            yield name, f"model.layers.{i}.{hf}", form
        else:
            hf, form = _OUTSIDE[name]
            yield name, hf, form


def to_hf_tensors(native: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of `Transformer` under Hugging Face's names."""
    return {hf: form(native[name]).contiguous() for name, hf, form in _translations(native)}


def from_hf_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """The state dict that `expected` describes, dtypes too, from tensors under other names."""
    native: dict[str, Tensor] = {}
    unknown = set(tensors)
    for name, hf, form in _translations(expected):
        if hf not in tensors:
            raise UserError(f"{where} lacks the tensor {hf}")
        if not tensors[hf].is_floating_point():
            raise UserError(f"{where}: {hf} holds {tensors[hf].dtype}, which weights cannot be")
        native[name] = form(tensors[hf]).to(expected[name].dtype).contiguous()
        if native[name].shape != expected[name].shape:
            raise UserError(
                f"{where}: {hf} has the shape {tuple(tensors[hf].shape)}, which does not fit "
                f"the configuration beside it"
            )
        unknown.discard(hf)
    if unknown:
        raise UserError(f"{where} has a tensor this model does not: {min(unknown)}")
    return native


def fold_scales(tensors: dict[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Hugging Face tensors of an nGPT with s_u, s_ν·sqrt(D) and s_z multiplied into the matrices.

    s_qk stays, for it acts after the norm. Tied embeddings part: E_output alone carries s_z. What
    is stored in bfloat16 stays so, and is rounded once more.
    """
    folded = dict(tensors)
    head = folded.get("lm_head.weight", folded["model.embed_tokens.weight"])
    s_z = _factors(folded.pop("s_z.weight"), config, "s_z")
    folded["lm_head.weight"] = (head * s_z).to(head.dtype)
    for i in range(config.n_layers):
        mlp = f"model.layers.{i}.mlp"
        for matrix, scale, more in (
            ("up_proj", "s_u", 1.0),
            ("gate_proj", "s_nu", math.sqrt(config.d_model)),
        ):
            factors = _factors(folded.pop(f"{mlp}.{scale}.weight"), config, scale) * more
            weight = folded[f"{mlp}.{matrix}.weight"]
            folded[f"{mlp}.{matrix}.weight"] = (weight * factors).to(weight.dtype)
    return folded


def unfold_scales(
    tensors: Mapping[str, Tensor], config: ModelConfig, where: str
) -> dict[str, Tensor]:
    """What `fold_scales` has folded, apart again: a factor is the length of its row.

    The same function to rounding, not the same bits: a negative factor comes back positive beside a
    turned row. `config` is that of a folded export, whose factors are all vectors.
    """
    unfolded = dict(tensors)
    places = [("lm_head.weight", "s_z.weight", "s_z", 1.0)]
    for i in range(config.n_layers):
        mlp = f"model.layers.{i}.mlp"
        places.append((f"{mlp}.up_proj.weight", f"{mlp}.s_u.weight", "s_u", 1.0))
        more = math.sqrt(config.d_model)
        places.append((f"{mlp}.gate_proj.weight", f"{mlp}.s_nu.weight", "s_nu", more))
    for matrix, factors, name, more in places:
        if factors in unfolded:
            raise UserError(f"{where} is said to be a folded export, but holds {factors}")
        if matrix not in unfolded:
            continue  # named where tensors are compared with the model's
        rows = at_least_float32(unfolded[matrix])
        length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        anywhere = torch.full_like(rows, rows.shape[-1] ** -0.5)  # where the factor is 0
        unit = torch.where(length > 0, rows / length.clamp_min(NORM_EPS), anywhere)
        unfolded[matrix] = unit.to(unfolded[matrix].dtype)
        unfolded[factors] = length / more / _factors(torch.ones(()), config, name)
    return unfolded


def _factors(stored: Tensor, config: ModelConfig, name: str) -> Tensor:
    """(n, 1), or (1, 1) where there is one for all."""
    scale = config.resolve_scale(name)
    return stored * (scale.init / scale.scale)


def to_hf_config(config: ModelConfig, dtype: str, folded: bool = False) -> dict[str, Any]:
    """config.json of the exported model, without what concerns the tokenizer."""
    common = {
        "dtype": dtype,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_k,
        "max_position_embeddings": config.context,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": config.tie_embeddings and not folded,
    }
    if config.arch == "gpt":
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **common,
            "hidden_act": "silu",
            "rms_norm_eps": RMS_NORM_EPS,
            "attention_bias": False,
            "mlp_bias": False,
            "initializer_range": config.matrix_std,
        }
    scales = {name: dataclasses.asdict(config.resolve_scale(name)) for name in SCALE_NAMES}
    return {
        "architectures": ["NGPTForCausalLM"],
        "model_type": "ngpt",
        "auto_map": {
            "AutoConfig": "configuration_spherelm.NGPTConfig",
            "AutoModel": "modeling_spherelm.NGPTModel",
            "AutoModelForCausalLM": "modeling_spherelm.NGPTForCausalLM",
        },
        **common,
        "update": config.update,
        "qk_norm": config.qk_norm,
        "signed_alpha": config.signed_alpha,
        "scales": scales,
        "folded": folded,
    }


_LLAMA_MUST_BE = {
    "hidden_act": "silu",
    "rms_norm_eps": RMS_NORM_EPS,
    "attention_bias": False,
    "mlp_bias": False,
}


def from_hf_config(values: Mapping[str, Any], where: str) -> ModelConfig:
    """The config that a Hugging Face config.json describes, of ours or of a plain Llama."""
    kind = values.get("model_type")
    if kind not in ("llama", "ngpt"):
        raise UserError(f"{where} describes a {kind!r}; spherelm loads 'ngpt' and 'llama'")
    rope = values.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise UserError(f"{where}: rope_parameters must be an object, not {rope!r}")
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{where} wants RoPE of type {rope['rope_type']!r}; spherelm has 'default'")
    if kind == "llama":
        for name, must_be in _LLAMA_MUST_BE.items():
            if values.get(name, must_be) != must_be:
                raise UserError(f"{where}: {name} must be {must_be}, not {values[name]}")
    try:
        fields: dict[str, Any] = {
            "arch": "gpt" if kind == "llama" else "ngpt",
            "vocab_size": values["vocab_size"],
            "d_model": values["hidden_size"],
            "n_layers": values["num_hidden_layers"],
            "n_heads": values["num_attention_heads"],
            "n_kv_heads": values["num_key_value_heads"],
            "d_mlp": values["intermediate_size"],
            "context": values["max_position_embeddings"],
            "rope_base": float(rope["rope_theta"]),
            "tie_embeddings": values.get("tie_word_embeddings", False),
        }
        if values.get("initializer_range", PAPER_STD) != PAPER_STD and kind == "llama":
            fields["init_std"] = values["initializer_range"]
        if kind == "ngpt":
            fields |= {name: values[name] for name in ("update", "qk_norm", "signed_alpha")}
            fields |= {name: ScaleConfig(**values["scales"][name]) for name in SCALE_NAMES}
            if values.get("folded"):  # a factor of each row, whatever it was before
                for name in ("s_u", "s_nu", "s_z"):
                    fields[name] = dataclasses.replace(fields[name], mode="vector")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where} lacks the field, or has a wrong value for it: {error}") from None
    config = ModelConfig(**fields)
    if values.get("head_dim") not in (None, config.d_k):
        raise UserError(
            f"{where}: head_dim must be hidden_size / num_attention_heads = {config.d_k}, "
            f"not {values['head_dim']}"
        )
    return config
