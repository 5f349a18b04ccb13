# mypy: disable-error-code="misc"
"""Configuration of nGPT for Hugging Face transformers. This file is part of exported models.

It imports nothing from spherelm, so `trust_remote_code=True` works without spherelm installed.
"""

from __future__ import annotations

import math
from typing import Any

from transformers import PreTrainedConfig

SCALES = ("alpha_attn", "alpha_mlp", "s_qk", "s_u", "s_nu", "s_z")
"""The learned vectors of factors: α_A, α_M, s_qk, s_u, s_ν and s_z."""
MODES = ("vector", "scalar", "fixed")


class NGPTConfig(PreTrainedConfig):
    """nGPT: a Transformer whose matrices and hidden states are unit vectors.

    `scales` gives for each vector of factors `init`, its starting value, `scale`, the value it is
    stored as at the start, and `mode`: vector, scalar (one for all) or fixed (not learned). A
    factor is read as stored · init / scale. Whatever is left out has the paper's value.
    """

    model_type = "ngpt"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012
    base_model_tp_plan = {  # noqa: RUF012
        "layers.*.self_attn.q_proj": "colwise",
        "layers.*.self_attn.k_proj": "colwise",
        "layers.*.self_attn.v_proj": "colwise",
        "layers.*.self_attn.s_qk": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.s_u": "colwise",
        "layers.*.mlp.s_nu": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }
    base_model_pp_plan = {  # noqa: RUF012
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
    }

    vocab_size: int = 32000
    hidden_size: int = 1024
    intermediate_size: int = 4096
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: Any = None  # as many as there are heads of q
    head_dim: Any = None  # hidden_size / num_attention_heads
    max_position_embeddings: int = 1024
    rope_parameters: Any = None  # {"rope_type": "default", "rope_theta": 10000.0}
    update: str = "lerp"
    qk_norm: bool = True
    signed_alpha: bool = False
    scales: Any = None  # {name: {"init": ..., "scale": ..., "mode": ...}}
    folded: bool = False
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.update not in ("lerp", "slerp", "riemannian"):
            raise ValueError(f"update must be lerp, slerp or riemannian, not {self.update!r}")
        given = self.scales or {}
        _check_scales(given)
        self.scales = {
            name: {**self._paper_scale(name), **given.get(name, {})}
            for name in SCALES
            if not (self.folded and name in ("s_u", "s_nu", "s_z"))  # these are in the matrices
        }
        # A single factor cannot be split over devices, and need not be.
        kept = {name for name, scale in self.scales.items() if scale["mode"] == "vector"}
        self.base_model_tp_plan = {
            module: style
            for module, style in type(self).base_model_tp_plan.items()
            if (name := module.rpartition(".")[2]) not in SCALES or name in kept
        }
        super().__post_init__(**kwargs)
        rope = (self.rope_parameters or {}).get("rope_type", "default")
        if rope != "default":
            raise ValueError(f"nGPT's RoPE is of the type default, not {rope!r}")

    def _paper_scale(self, name: str) -> dict[str, Any]:
        return {
            "init": 0.05 if name.startswith("alpha") else 1.0,
            "scale": 1.0 if name in ("s_u", "s_nu") else 1 / math.sqrt(self.hidden_size),
            "mode": "vector",
        }


def _check_scales(given: dict[str, dict[str, Any]]) -> None:
    """Refuse names, keys and modes that would otherwise be silently ignored or misread."""
    for name, scale in given.items():
        if name not in SCALES:
            raise ValueError(f"scales must be of {', '.join(SCALES)}, not {name!r}")
        for key in scale:
            if key not in ("init", "scale", "mode"):
                raise ValueError(f"scales: {name} has init, scale and mode, not {key!r}")
        if (mode := scale.get("mode", "vector")) not in MODES:
            raise ValueError(f"scales: mode of {name} must be {' or '.join(MODES)}, not {mode!r}")
