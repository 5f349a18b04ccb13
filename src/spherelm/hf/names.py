"""The same tensors under two names: spherelm's and Hugging Face's.

nGPT becomes `NGPTForCausalLM` (`hf.remote_code`), GPT becomes transformers' own `LlamaForCausalLM`,
whose RoPE pairs coordinate i with i + K/2 and whose SwiGLU is the same as ours. Two things are
stored differently: a Hugging Face Linear is (outputs, inputs), so W_o and W_oMLP are transposed,
and a vector of factors becomes the weight of a Linear with one input.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from spherelm.errors import UserError
from spherelm.model.config import PAPER_STD, SCALE_NAMES, ModelConfig, ScaleConfig
from spherelm.model.sphere import row_norms
from spherelm.ops.reference import RMS_NORM_EPS, normalize

_OUTSIDE = {
    "E_input": "model.embed_tokens",
    "E_output": "lm_head",
    "final_norm.gain": "model.norm",
    "s_z.stored": "s_z",
}
_BLOCK = {
    "attention.W_q": "self_attn.q_proj",
    "attention.W_k": "self_attn.k_proj",
    "attention.W_v": "self_attn.v_proj",
    "attention.W_o": "self_attn.o_proj",
    "attention.s_qk.stored": "self_attn.s_qk",
    "mlp.W_u": "mlp.up_proj",
    "mlp.W_nu": "mlp.gate_proj",
    "mlp.W_o_mlp": "mlp.down_proj",
    "mlp.s_u.stored": "mlp.s_u",
    "mlp.s_nu.stored": "mlp.s_nu",
    "alpha_attn.stored": "alpha_attn",
    "alpha_mlp.stored": "alpha_mlp",
    "norm_attn.gain": "input_layernorm",
    "norm_mlp.gain": "post_attention_layernorm",
}
"""Names within a block; on Hugging Face's side all of them end with `.weight`."""


def _theirs(name: str) -> str:
    """The Hugging Face name of a tensor of ours."""
    if not name.startswith("blocks."):
        return f"{_OUTSIDE[name]}.weight"
    _, i, rest = name.split(".", 2)
    return f"model.layers.{i}.{_BLOCK[rest]}.weight"


def _other_form(name: str, x: Tensor) -> Tensor:
    """Convert the tensor called `name` between the two forms, in either direction."""
    if name.endswith((".W_o", ".W_o_mlp")):
        return x.T
    if name.endswith(".stored"):
        return x[:, None] if x.ndim == 1 else x[:, 0]  # (n,) to (n, 1) and back
    return x


def to_hf_tensors(native: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of `Transformer` under Hugging Face's names."""
    return {_theirs(name): _other_form(name, t).contiguous() for name, t in native.items()}


def from_hf_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """The state dict with the names, shapes and dtypes of `expected`, from Hugging Face tensors."""
    native: dict[str, Tensor] = {}
    for name, wanted in expected.items():
        found = _weights(tensors, _theirs(name), _other_form(name, wanted).shape, where)
        native[name] = _other_form(name, found).to(wanted.dtype).contiguous()
    unknown = tensors.keys() - set(map(_theirs, expected))
    # Older Llamas store RoPE's frequencies in each layer, but they follow from the configuration.
    if unknown := {name for name in unknown if not name.endswith(".rotary_emb.inv_freq")}:
        raise UserError(f"{where} has a tensor this model does not: {min(unknown)}")
    return native


def _weights(tensors: Mapping[str, Tensor], hf: str, shape: Sequence[int], where: str) -> Tensor:
    """The tensor with this Hugging Face name; it must hold weights and have this shape."""
    if hf not in tensors:
        raise UserError(f"{where} lacks the tensor {hf}")
    found = tensors[hf]
    if not found.is_floating_point():
        raise UserError(f"{where}: {hf} holds {found.dtype}, which cannot be weights")
    if found.shape != shape:
        raise UserError(
            f"{where}: {hf} has the shape {tuple(found.shape)}, which does not fit the "
            f"configuration beside it"
        )
    return found


def unfold_scales(
    tensors: Mapping[str, Tensor], config: ModelConfig, where: str
) -> dict[str, Tensor]:
    """Undo `model.fold.folded_state`: each factor is the length of its row.

    The result is the same function up to rounding, but not bit for bit: a negative factor comes
    back positive, with its row negated. `config` must be that of a folded export, in which all
    factors are vectors.
    """
    unfolded = dict(tensors)
    places = [("s_z.stored", "E_output", config.vocab_size)]
    for i in range(config.n_layers):
        mlp = f"blocks.{i}.mlp"
        for s, W in (("s_u", "W_u"), ("s_nu", "W_nu")):
            places.append((f"{mlp}.{s}.stored", f"{mlp}.{W}", config.mlp_width))
    for factors, matrix, n in places:
        name = factors.split(".")[-2]
        factors, matrix = _theirs(factors), _theirs(matrix)
        if factors in unfolded:
            raise UserError(f"{where} is said to be a folded export, but holds {factors}")
        rows = _weights(unfolded, matrix, (n, config.d_model), where)
        length = row_norms(rows)
        anywhere = torch.full_like(rows, config.d_model**-0.5)  # any unit vector if a factor is 0
        unfolded[matrix] = torch.where(length > 0, normalize(rows), anywhere)
        more = math.sqrt(config.d_model) if name == "s_nu" else 1.0
        scale = config.resolve_scale(name)
        unfolded[factors] = length / more / (scale.init / scale.scale)
    return unfolded


_SAME_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "context",
}
"""Fields of config.json that mean exactly the same as one of ours."""
_LLAMA_IS = {
    "hidden_act": "silu",
    "rms_norm_eps": RMS_NORM_EPS,
    "attention_bias": False,
    "mlp_bias": False,
}
"""Settings that a Llama must have to be our GPT."""
_VARIANTS = ("update", "qk_norm", "signed_alpha")


def to_hf_config(config: ModelConfig, dtype: str, folded: bool = False) -> dict[str, Any]:
    """config.json of the exported model, without what concerns the tokenizer."""
    common = {
        "dtype": dtype,
        **{theirs: getattr(config, ours) for theirs, ours in _SAME_FIELDS.items()},
        "intermediate_size": config.mlp_width,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.d_k,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": config.tie_embeddings and not folded,
    }
    if config.arch == "gpt":
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **common,
            "rope_theta": config.rope_base,  # where readers of transformers 4's Llamas look for it
            **_LLAMA_IS,
            "initializer_range": config.matrix_std,
        }
    return {
        "architectures": ["NGPTForCausalLM"],
        "model_type": "ngpt",
        "auto_map": {
            "AutoConfig": "configuration_spherelm.NGPTConfig",
            "AutoModel": "modeling_spherelm.NGPTModel",
            "AutoModelForCausalLM": "modeling_spherelm.NGPTForCausalLM",
        },
        **common,
        **{name: getattr(config, name) for name in _VARIANTS},
        "scales": {name: dataclasses.asdict(config.resolve_scale(name)) for name in SCALE_NAMES},
        "folded": folded,
    }


def from_hf_config(values: Mapping[str, Any], where: str) -> ModelConfig:
    """The config that a Hugging Face config.json describes, of ours or of a plain Llama."""
    kind = values.get("model_type")
    if kind not in ("llama", "ngpt"):
        raise UserError(f"{where} describes a {kind!r}; spherelm loads 'ngpt' and 'llama'")
    rope = _rope_parameters(values, where)
    if kind == "llama":
        for name, must_be in _LLAMA_IS.items():
            if values.get(name, must_be) != must_be:
                raise UserError(f"{where}: {name} must be {must_be}, not {values[name]}")
    try:
        fields: dict[str, Any] = {
            "arch": "gpt" if kind == "llama" else "ngpt",
            **{ours: values[theirs] for theirs, ours in _SAME_FIELDS.items()},
            "n_kv_heads": values.get("num_key_value_heads"),  # None: as many as there are heads
            "d_mlp": values["intermediate_size"],
            "rope_base": float(rope["rope_theta"]),
            "tie_embeddings": values.get("tie_word_embeddings", False),
        }
        if values.get("initializer_range", PAPER_STD) != PAPER_STD and kind == "llama":
            fields["init_std"] = values["initializer_range"]
        if kind == "ngpt":
            fields |= {name: values[name] for name in _VARIANTS}
            scales = dict(values["scales"])
            if values.get("folded"):  # folded factors are vectors and may be missing from the file
                for name in ("s_u", "s_nu", "s_z"):
                    scales[name] = {**scales.get(name, {}), "mode": "vector"}
            fields |= {name: ScaleConfig(**scales[name]) for name in SCALE_NAMES}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{where} lacks the field, or has a wrong value for it: {error}") from None
    config = ModelConfig(**fields)
    if values.get("head_dim") not in (None, config.d_k):
        raise UserError(
            f"{where}: head_dim must be hidden_size / num_attention_heads = {config.d_k}, "
            f"not {values['head_dim']}"
        )
    return config


def _rope_parameters(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """RoPE's settings in config.json: in `rope_parameters` or, as written by transformers 4, the
    base at the top level as `rope_theta` and any other kind of RoPE in `rope_scaling`."""
    found = {"rope_theta": values.get("rope_theta", 10_000.0)}  # transformers' default, too
    for field in ("rope_parameters", "rope_scaling"):
        said = values.get(field) or {}
        if not isinstance(said, Mapping):
            raise UserError(f"{where}: {field} must be an object, not {said!r}")
        kind = said.get("rope_type", said.get("type", "default"))
        if kind != "default":
            raise UserError(f"{where}: {field}.rope_type must be 'default', not {kind!r}")
        found |= said
    return found
