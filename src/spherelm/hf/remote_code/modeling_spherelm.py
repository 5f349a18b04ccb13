# mypy: disable-error-code="misc, untyped-decorator"
"""nGPT for Hugging Face transformers. This file is part of exported models.

It imports nothing from spherelm, so `trust_remote_code=True` works without spherelm installed, and
follows the conventions that serving engines rely on: plain Linear layers, the attention interface
with `scaling`, `Cache`, `logits_to_keep`, a tensor-parallel plan. What nGPT shares with Llama (the
stack of layers, its masks and caches) is inherited from transformers.

    h ← Norm(h + α_A (Norm(ATTN(h)) − h))
    h ← Norm(h + α_M (Norm(MLP(h)) − h))          logits = (lm_head h) · s_z

All rows of all matrices are unit vectors along the hidden dimension. After each step of an
optimizer call `model.retract_()`.

Shapes: B batch, T time, D hidden, H heads, G heads of k and v, K head dimension, F intermediate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.generation import GenerationMixin
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaModel,
    LlamaPreTrainedModel,
    apply_rotary_pos_emb,
    eager_attention_forward,
)
from transformers.utils import can_return_tuple
from transformers.utils.generic import maybe_autocast

from .configuration_spherelm import SCALES, NGPTConfig

try:
    from transformers.modeling_utils import slice_logits_to_keep
except ImportError:  # the newest transformers for Python 3.10 does not have it

    def slice_logits_to_keep(hidden: Tensor, logits_to_keep: int | Tensor) -> Tensor:
        """The last `logits_to_keep` positions (0 for all), or those given by a tensor."""
        whole_number = isinstance(logits_to_keep, int)
        return hidden[:, slice(-logits_to_keep, None) if whole_number else logits_to_keep]


NORM_EPS = 1e-12


def normalize(x: Tensor, dim: int = -1) -> Tensor:
    """x / ‖x‖, computed in float32 or wider."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.normalize(wide, dim=dim, eps=NORM_EPS).to(x.dtype)


def mark(module: Any, **dims: int) -> None:
    """Record which Linears of a module hold unit vectors, and along which dimension of the weight.

    That is 0 (columns) if the outputs are of hidden size, else -1. The mark is kept by name on the
    owning module, so it survives when a Linear or its tensor is replaced; `spherelm.retract_` and
    `attach_retraction` look for it. A folded model has none.
    """
    for name, dim in dims.items():
        getattr(module, name).vector_dim = dim
    if not module.config.folded:
        module.unit_vectors = {f"{name}.weight": dim for name, dim in dims.items()}


FactorLinear = getattr(nn.modules.linear, "NonDynamicallyQuantizableLinear", nn.Linear)
"""The Linear that torch and torchao leave alone when they quantize a model's Linears."""


def add_factors(module: Any, **sizes: int) -> None:
    """Give a module vectors of factors of these sizes, except those that a folded model lacks.

    A factor is read as stored · init / scale: the stored vector is the weight of a Linear with one
    input, applied to the number init / scale. So a tensor-parallel plan can shard the factors of
    each head or MLP unit as it does the matrix beside them, with the word colwise. Factors that are
    not learned are a buffer, because `from_pretrained` makes every parameter trainable.
    """
    for name, n in sizes.items():
        if scale := module.config.scales.get(name):
            linear = FactorLinear(1, n if scale["mode"] == "vector" else 1, bias=False)
            linear.starts_at = scale["scale"]
            if scale["mode"] == "fixed":
                fixed = linear.weight.detach()
                del linear.weight
                linear.register_buffer("weight", fixed)
            setattr(module, name, linear)


def factors(module: Any, name: str, x: Tensor) -> Tensor:
    """The factors of x, on its device, in the precision they are stored in: (n,), or (1,).

    The weight is not asked for a device: one that is offloaded has none until its Linear runs.
    """
    linear, scale = getattr(module, name), module.config.scales[name]
    ratio = scale["init"] / scale["scale"]
    with maybe_autocast(x.device.type, enabled=False):
        found = linear(torch.full((1,), ratio, dtype=linear.weight.dtype, device=x.device))
    return found.to(x.device)  # `device_map` may put it elsewhere than the matrix before it


def residual(h: Tensor, y: Tensor, alpha: Tensor, update: str) -> Tensor:
    """The step from h towards Norm(y) on the sphere, by the rule `update`."""
    wide = torch.promote_types(h.dtype, torch.float32)
    a, b, alpha = h.to(wide), normalize(y.to(wide)), alpha.to(wide)
    if update == "lerp":
        moved = torch.lerp(a, b, alpha)
    elif update == "riemannian":
        moved = a - alpha * (a * (a * b).sum(-1, keepdim=True) - b)
    else:  # slerp: ratios of sines as ratios of sinc, the angle from half-chords
        half_sin = torch.linalg.vector_norm(a - b, dim=-1, keepdim=True)
        half_cos = torch.linalg.vector_norm(a + b, dim=-1, keepdim=True)
        turns = 2 * torch.atan2(half_sin, half_cos) / math.pi
        sin_ratio = torch.sinc(turns).clamp_min(1e-4)
        moved = (1 - alpha) * torch.sinc((1 - alpha) * turns) / sin_ratio * a
        moved = moved + alpha * torch.sinc(alpha * turns) / sin_ratio * b
        lost = torch.linalg.vector_norm(moved, dim=-1, keepdim=True) < NORM_EPS
        moved = torch.where(lost, a, moved)
    return normalize(moved).to(h.dtype)


class RotaryTable(nn.Module):
    """cos and sin of each position, computed in float64; returned in float32 or the model's wider
    dtype."""

    def __init__(self, config: NGPTConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, hidden_states: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """position_ids: (B, T) -> (B, T, K) each, with both halves of K equal"""
        d_k, base = self.config.head_dim, self.config.rope_parameters["rope_theta"]
        wide = torch.float32 if position_ids.device.type == "mps" else torch.float64
        exponents = torch.arange(0, d_k, 2, dtype=wide, device=position_ids.device) / d_k
        angles = position_ids[..., None].to(wide) * base ** -exponents.repeat(2)
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        return angles.cos().to(dtype), angles.sin().to(dtype)


class NGPTAttention(nn.Module):
    """softmax(q kᵀ sqrt(d_k)) v W_o with q = Norm(RoPE(h W_q)) · s_qk, and k likewise."""

    def __init__(self, config: NGPTConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = math.sqrt(config.head_dim)
        self.is_causal = True
        d_q = config.num_attention_heads * config.head_dim
        d_kv = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, d_q, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, d_kv, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, d_kv, bias=False)
        self.o_proj = nn.Linear(d_q, config.hidden_size, bias=False)
        add_factors(self, s_qk=d_kv)
        mark(self, q_proj=-1, k_proj=-1, v_proj=-1, o_proj=0)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """hidden_states: (B, T, D) -> (B, T, D), and the attention weights if asked for"""
        heads = (*hidden_states.shape[:-1], -1, self.head_dim)
        q = self.q_proj(hidden_states).view(heads)  # (B, T, H, K)
        k = self.k_proj(hidden_states).view(heads)  # (B, T, G, K)
        v = self.v_proj(hidden_states).view(heads)
        q, k = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k))
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings, unsqueeze_dim=2)
        q, k = q.to(v.dtype), k.to(v.dtype)
        if self.config.qk_norm:
            q, k = normalize(q), normalize(k)
        s_q = s_k = factors(self, "s_qk", hidden_states)
        if self.config.scales["s_qk"]["mode"] == "vector":
            s_k = s_k.view(-1, self.head_dim)  # (G, K)
            s_q = s_k.repeat_interleave(self.num_key_value_groups, dim=0)  # (H, K)
        q, k = (q * s_q).to(v.dtype).transpose(1, 2), (k * s_k).to(v.dtype).transpose(1, 2)
        v = v.transpose(1, 2)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        output, weights = attend(self, q, k, v, attention_mask, scaling=self.scaling, **kwargs)
        output = output.reshape(*hidden_states.shape[:-1], -1).contiguous()
        return self.o_proj(output), weights


class NGPTMLP(nn.Module):
    """(u · SiLU(ν)) W_oMLP with u = h W_u · s_u and ν = h W_ν · s_ν sqrt(D)."""

    def __init__(self, config: NGPTConfig) -> None:
        super().__init__()
        self.config = config
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        add_factors(self, s_u=config.intermediate_size, s_nu=config.intermediate_size)
        mark(self, up_proj=-1, gate_proj=-1, down_proj=0)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        u, nu = self.up_proj(hidden_states), self.gate_proj(hidden_states)
        dtype = u.dtype
        if not self.config.folded:
            u = u * factors(self, "s_u", u)
            nu = nu * (factors(self, "s_nu", nu) * math.sqrt(self.config.hidden_size))
        return self.down_proj((u * F.silu(nu)).to(dtype))


class NGPTDecoderLayer(GradientCheckpointingLayer):
    """Attention and MLP, each followed by its step on the sphere."""

    def __init__(self, config: NGPTConfig, layer_idx: int) -> None:
        super().__init__()
        self.config = config
        self.self_attn = NGPTAttention(config, layer_idx)
        self.mlp = NGPTMLP(config)
        add_factors(self, alpha_attn=config.hidden_size, alpha_mlp=config.hidden_size)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        alpha_A = factors(self, "alpha_attn", hidden_states)
        alpha_M = factors(self, "alpha_mlp", hidden_states)
        if not self.config.signed_alpha:
            alpha_A, alpha_M = alpha_A.abs(), alpha_M.abs()
        h_A, _ = self.self_attn(hidden_states, **kwargs)
        h = residual(hidden_states, h_A, alpha_A, self.config.update)
        h_M = self.mlp(h)
        return residual(h, h_M, alpha_M, self.config.update)


class NGPTPreTrainedModel(LlamaPreTrainedModel):
    """The base of the models with and without a head; it supports what Llama does."""

    config_class = NGPTConfig
    _no_split_modules = ["NGPTDecoderLayer"]  # noqa: RUF012
    _keep_in_fp32_modules_strict = list(SCALES)  # noqa: RUF012
    # Quantizers skip these; torchao's looks for the name of the parameter.
    _keep_in_fp32_modules = [*SCALES, *(f"{name}.weight" for name in SCALES)]  # noqa: RUF012
    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": NGPTDecoderLayer,
        "attentions": NGPTAttention,
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start matrices at directions uniform on the sphere, factors at their stored value."""
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            return
        if hasattr(module, "starts_at"):
            init.constant_(module.weight, module.starts_at)
        else:
            drawn = torch.randn_like(module.weight)
            init.copy_(module.weight, normalize(drawn, getattr(module, "vector_dim", -1)))

    def matrices(self) -> Iterator[tuple[Tensor, int]]:
        """Every matrix of unit vectors, and the dimension along which they are unit.

        Matrices that a quantizer has replaced by whole numbers are left out.
        """
        for module in self.modules():
            for name, dim in getattr(module, "unit_vectors", {}).items():
                if (matrix := module.get_parameter(name)).is_floating_point():
                    yield matrix, dim

    @torch.no_grad()
    def retract_(self) -> None:
        """Put all matrices back on the sphere, in place: call it after each optimizer step."""
        if self.config.folded:
            raise ValueError("a folded export is for inference; train the export without --fold")
        for matrix, dim in self.matrices():
            matrix.copy_(normalize(matrix, dim))

    @torch.no_grad()
    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As for any transformers model, but the rows of new tokens are put on the sphere.

        transformers makes a new row of lm_head about the mean of the others, so it is shorter than
        they are. Its length, times the mean of s_z, becomes the token's entry of s_z, so that a new
        token's logits are about the mean of all and take little probability from other tokens.
        """
        old = self.get_input_embeddings().weight.shape[0]
        embeddings: nn.Embedding = super().resize_token_embeddings(*args, **kwargs)
        head = self.get_output_embeddings()
        if head is not None and self.config.scales.get("s_z", {}).get("mode") == "vector":
            lengths = head.weight[old:].float().norm(dim=-1, keepdim=True)  # (new, 1)
            s_z = self.s_z.weight
            s_z.data = torch.cat((s_z[: len(head.weight)], s_z.mean() * lengths.to(s_z)))
            self.s_z.out_features = len(s_z)
        unit = [embeddings] if head is None or self.config.folded else [embeddings, head]
        for rows in {id(each.weight): each.weight[old:] for each in unit}.values():
            rows.copy_(normalize(rows))
        return embeddings


class NGPTModel(NGPTPreTrainedModel, LlamaModel):
    """Llama's stack with layers of nGPT: token ids to hidden states on the sphere."""

    def __init__(self, config: NGPTConfig) -> None:
        PreTrainedModel.__init__(self, config)  # not LlamaModel's, which would build Llama's layers
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            NGPTDecoderLayer(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = nn.Identity()
        self.rotary_emb = RotaryTable(config)
        self.gradient_checkpointing = False
        mark(self, embed_tokens=-1)
        self.post_init()


class NGPTForCausalLM(NGPTPreTrainedModel, GenerationMixin):
    """nGPT with logits (lm_head h) · s_z."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012
    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012
    _pp_plan = {"lm_head": (["hidden_states"], ["logits"])}  # noqa: RUF012

    def __init__(self, config: NGPTConfig) -> None:
        super().__init__(config)
        self.model = NGPTModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        add_factors(self, s_z=config.vocab_size)
        mark(self, lm_head=-1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """input_ids: (B, T) -> logits (B, T, V), only for the last `logits_to_keep` positions if
        that is not 0"""
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        logits = self.lm_head(slice_logits_to_keep(outputs.last_hidden_state, logits_to_keep))
        if not self.config.folded:
            logits = logits * factors(self, "s_z", logits)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs
            )
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = ["NGPTForCausalLM", "NGPTModel", "NGPTPreTrainedModel"]
