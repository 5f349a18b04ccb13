"""A model folded for inference: products that are the same for every token, computed once.

    s_u, s_ν·sqrt(D)   into W_u, W_ν           rows scaled
    s_z                into E_output            rows scaled
    s_qk on q and k    s_qk² onto q             (q·s)ᵀ(k·s) = (q·s²)ᵀk, after RoPE and Norm
    |α|                taken once

The blocks are those of training (`spherelm.model.block`), with fixed weights. W_o and W_oMLP are
transposed in memory, one contiguous row per output, which is fastest to multiply with one token. A
GPT has nothing to fold and keeps its gains.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spherelm.errors import UserError
from spherelm.model.attention import Attention, AttentionWeights
from spherelm.model.block import Block, GPTBlock, NGPTBlock, RMSNorm
from spherelm.model.config import ModelConfig
from spherelm.model.mlp import MLP, MLPWeights
from spherelm.model.part import AUTO, M, Ops, Part
from spherelm.model.scale import Scale
from spherelm.model.scaling import round_matrices
from spherelm.model.sphere import as_read
from spherelm.model.transformer import Transformer
from spherelm.ops.interface import Operations
from spherelm.ops.reference import at_least_float32


@torch.no_grad()
def folded_state(model: Transformer) -> dict[str, Tensor]:
    """The state dict of an nGPT with s_u, s_ν·sqrt(D) and s_z multiplied into the matrices.

    s_qk stays, since it acts after the norm. Tied embeddings are untied: only E_output carries s_z.
    Matrices stored in bfloat16 stay in bfloat16, rounded once more.
    """
    scaled = {"E_output": model.scaled_output_embedding(torch.float32)}
    for name, module in model.named_modules():
        if isinstance(module, MLP):
            scaled[f"{name}.W_u"], scaled[f"{name}.W_nu"], _ = module.matrices(torch.float32)
    kept = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith(("s_u.stored", "s_nu.stored", "s_z.stored"))
    }
    return kept | {name: tensor.to(model.E_input.dtype) for name, tensor in scaled.items()}


class FoldedTransformer(Transformer):
    """A copy of a model for inference: the same logits, with fewer operations."""

    E_input: Tensor  # type: ignore[assignment]
    E_output: Tensor | None  # type: ignore[assignment]

    def __init__(
        self, model: Transformer, dtype: torch.dtype | None = None, ops: Ops = AUTO
    ) -> None:
        """`dtype` is that of products and hidden states, by default the model's."""
        model = _as_written(model)
        _check_ours(model, Transformer, "hidden", "embed", "run_blocks", "logits")
        _check_no_hooks(model)
        Part.__init__(self, model.config, ops)
        self._dtype = model.dtype if dtype is None else dtype
        with torch.no_grad():
            E_input = as_read(model.E_input, torch.float32, self.config.normalize_in_forward)
            E_input = E_input.to(self._dtype, copy=True)
            shared = model.s_z is None and model.E_output is None
            E_output = None if shared else model.scaled_output_embedding(torch.float32)
            self.register_buffer("E_input", E_input)
            self.register_buffer(
                "E_output", None if E_output is None else E_output.to(self._dtype, copy=True)
            )
            self.choose_ops()
            self.blocks = nn.ModuleList(
                _fold_block(block, self.config, self._dtype, self.ops) for block in model.layers
            )
            self.final_norm = (
                None if model.final_norm is None else _fold_norm(model.final_norm, self.ops)
            )
        self.s_z = None
        self.rope = copy.deepcopy(_as_written(model.rope))

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.E_input)

    def output_embedding(self, dtype: torch.dtype) -> Tensor:
        return self.E_input if self.E_output is None else self.E_output

    def reset_parameters(self) -> None:
        raise TypeError("a folded model has no parameters to initialize")


def _as_written(part: M) -> M:
    """A part without torch.compile's wrapper."""
    while (inside := getattr(part, "_modules", {}).get("_orig_mod")) is not None:
        part = cast("M", inside)
    return part


def _function(method: Any) -> Any:
    """The function behind a method that may be compiled, checkpointed, or both."""
    while True:
        if isinstance(method, partial) and method.func is checkpoint:
            method = method.args[0]
        elif hasattr(method, "_torchdynamo_orig_callable"):
            method = method._torchdynamo_orig_callable
            inside = getattr(method, "__wrapped__", None)
            method = inside if isinstance(inside, partial) else method
        else:
            return getattr(method, "__func__", None)


def _check_ours(part: nn.Module, ours: type[nn.Module], *methods: str) -> None:
    """Refuse a part that overrides one of `methods`: its folded copy would ignore the override."""
    for name in methods:
        if _function(getattr(part, name, None)) is not getattr(ours, name):
            raise _left_out(part, name)


def _check_no_hooks(model: nn.Module) -> None:
    """Refuse hooks on a forward pass: the twin's would run without them."""
    for part in model.modules():
        hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
        if any(hook is not round_matrices for hook in hooks):
            raise _left_out(part, "forward hooks")


def _left_out(part: nn.Module, own: str) -> UserError:
    return UserError(
        f"{type(part).__name__} has its own {own}, which a folded copy for inference "
        f"would leave out: take logits from model(tokens) itself"
    )


_FOLDED = ("attention", "mlp", "alpha_attn", "alpha_mlp", "norm_attn", "norm_mlp")
"""The parts of a block that are folded; any others would be shared with the original."""


def _fold_block(block: Block, config: ModelConfig, dtype: torch.dtype, ops: Operations) -> Block:
    block = _as_written(block)
    if not isinstance(block, Block):
        raise _left_out(block, "forward")
    attention, mlp = _as_written(block.attention), _as_written(block.mlp)
    _check_ours(attention, Attention, "forward", "weights")
    _check_ours(mlp, MLP, "forward", "weights")
    _check_ours(block, type(block), "forward")  # a subclass may override it: the copy does so too
    if block.config.update != config.update:
        raise _left_out(block, "update")
    for name, _ in (*block.named_parameters(), *block.named_buffers()):
        if name.partition(".")[0] not in _FOLDED:
            raise _left_out(block, name)
    # Copied, not constructed: a subclass may need more than a config, or have attributes set later.
    twin = copy.copy(block)
    twin._modules, twin.ops, twin._asked_for = dict(block._modules), ops, ops
    twin._forward_pre_hooks, twin._forward_hooks = OrderedDict(), OrderedDict()
    vars(twin).pop("forward", None)  # a compiled or checkpointed forward, bound to the original
    twin.attention = _FoldedAttention(attention, dtype, ops)
    twin.mlp = _FoldedMLP(mlp, dtype, ops)
    if isinstance(block, NGPTBlock):
        assert isinstance(twin, NGPTBlock)
        _check_ours(block, NGPTBlock, "eigen_learning_rates")
        alpha_A, alpha_M = block.eigen_learning_rates()
        twin.alpha_attn, twin.alpha_mlp = _Held(alpha_A), _Held(alpha_M)
        twin.signed_alpha = True  # |α| is already taken
    else:
        assert isinstance(twin, GPTBlock)
        twin.norm_attn = _fold_norm(block.norm_attn, ops)
        twin.norm_mlp = _fold_norm(block.norm_mlp, ops)
    return twin


def _fold_norm(norm: RMSNorm, ops: Operations) -> RMSNorm:
    norm = _as_written(norm)
    _check_ours(norm, RMSNorm, "forward")
    twin = RMSNorm(norm.config, ops)
    twin.gain = nn.Parameter(norm.gain.detach().clone(), requires_grad=False)
    return twin


class _Held(Scale):
    """Fixed factors."""

    def __init__(self, factors: Tensor) -> None:
        nn.Module.__init__(self)
        self.register_buffer("stored", factors.detach().clone())

    def forward(self) -> Tensor:
        return self.stored


class _FoldedAttention(Attention):
    factors_on_q = True

    def __init__(self, attention: Attention, dtype: torch.dtype, ops: Operations) -> None:
        Part.__init__(self, attention.config, ops)
        *W_qkv, W_o = attention.matrices(torch.float32)
        s_qk = None if attention.s_qk is None else at_least_float32(attention.s_qk())
        self._weights = AttentionWeights(
            ops.operand(*(W.to(dtype, copy=True) for W in W_qkv)),
            ops.operand(_transposed(W_o, dtype)),
            None if s_qk is None else s_qk.clone(),
            self.config.kv_heads,
        )

    def weights(self, dtype: torch.dtype) -> AttentionWeights:
        return self._weights


class _FoldedMLP(MLP):
    def __init__(self, mlp: MLP, dtype: torch.dtype, ops: Operations) -> None:
        Part.__init__(self, mlp.config, ops)
        *W_u_nu, W_o_mlp = mlp.matrices(torch.float32)
        self._weights = MLPWeights(
            ops.operand(*(W.to(dtype, copy=True) for W in W_u_nu)),
            ops.operand(_transposed(W_o_mlp, dtype)),
        )

    def weights(self, dtype: torch.dtype) -> MLPWeights:
        return self._weights


def _transposed(W: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy of W, (n, D), whose columns are contiguous."""
    return W.t().to(dtype, copy=True, memory_format=torch.contiguous_format).t()
