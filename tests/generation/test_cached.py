"""The inference twin computes what the model computes, at every position and for every variant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from spherelm import ModelConfig, Transformer
from spherelm.errors import UserError
from spherelm.generation.cached import decode, new_cache, prefill
from spherelm.model.attend import CAUSAL, Attend
from spherelm.model.attention import Attention
from spherelm.model.block import NGPTBlock, RMSNorm, Stream
from spherelm.model.fold import FoldedTransformer
from spherelm.model.mlp import MLP
from spherelm.model.part import Part, computing_with
from spherelm.ops.choose import Choice, choose
from tests.generation.parallel import Parallel
from tests.model.tiny import VARIANTS, perturbed, random_tokens, tiny_config

# Two orders of the same float64 sums: a few hundred roundings of 1e-16, amplified by the layers.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.parametrize("variant", VARIANTS)
def test_prefill_is_the_forward_pass_at_every_position(variant: str) -> None:
    model = perturbed(tiny_config(**VARIANTS[variant]))
    tokens = random_tokens(model.config)
    folded = FoldedTransformer(model)
    logits = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    torch.testing.assert_close(logits, model(tokens), **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_decode_from_an_empty_cache_is_the_forward_pass_at_every_position(variant: str) -> None:
    model = perturbed(tiny_config(**VARIANTS[variant]))
    tokens = random_tokens(model.config)
    expected = model(tokens)
    folded = FoldedTransformer(model)
    cache = new_cache(folded, *tokens.shape)
    for t in range(tokens.shape[1]):
        positions = torch.full((tokens.shape[0],), t)
        logits = decode(folded, tokens[:, t], positions, cache, span=t + 1)
        torch.testing.assert_close(logits, expected[:, t], **CLOSE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_matrices_change_nothing(variant: str) -> None:
    """What a compiled decode step computes with, on the weights of a model that has them packed."""
    model = perturbed(tiny_config(**VARIANTS[variant]))
    tokens = random_tokens(model.config)
    plain = FoldedTransformer(model)
    packed = FoldedTransformer(model, ops=Choice(kernels="reference", packed=True))
    results = []
    for folded in (plain, packed):
        cache = new_cache(folded, *tokens.shape)
        prefill(folded, tokens[:, :-1], cache)
        positions = torch.full((tokens.shape[0],), tokens.shape[1] - 1)
        results.append(decode(folded, tokens[:, -1], positions, cache, span=tokens.shape[1]))
    torch.testing.assert_close(*results, **CLOSE)


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_other_operations_share_the_weights(arch: str) -> None:
    model = perturbed(tiny_config(arch=arch)).float()
    folded = FoldedTransformer(model, ops=Choice(kernels="triton"))
    config, device = model.config, model.E_input.device
    choice = Choice(kernels="reference", packed=True)
    ops = choose(choice, config.update, config.d_model, device, torch.float32)
    twin = computing_with(folded, ops)
    assert all(part.ops is ops for part in twin.modules() if isinstance(part, Part))
    assert all(part.ops.kernels for part in folded.modules() if isinstance(part, Part))
    mine, theirs = (m.layers[0].attention.weights(torch.float32).W_qkv for m in (folded, twin))
    assert mine.data_ptr() == theirs.data_ptr()
    tokens = random_tokens(config)
    results = [prefill(m, tokens, new_cache(m, *tokens.shape)) for m in (folded, twin)]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", ["gpt, grouped heads", "grouped heads", "no qk norm"])
def test_sequences_of_different_lengths_share_a_batch(variant: str) -> None:
    """Padding on the right, and a position of its own for each sequence, change nothing."""
    model = perturbed(tiny_config(**VARIANTS[variant]))
    tokens = random_tokens(model.config, batch=3)
    expected = model(tokens)
    lengths = torch.tensor([1, 4, 2])
    prompts = tokens[:, :4].clone()
    for row, length in zip(prompts, lengths, strict=True):
        row[length:] = 12  # what stands there must not matter
    folded = FoldedTransformer(model)
    cache = new_cache(folded, 3, tokens.shape[1])
    rows = torch.arange(3)
    logits = prefill(folded, prompts, cache, last=lengths - 1)
    torch.testing.assert_close(logits, expected[rows, lengths - 1], **CLOSE)
    for n in range(3):
        positions = lengths + n
        logits = decode(folded, tokens[rows, positions], positions, cache, span=7)
        torch.testing.assert_close(logits, expected[rows, positions], **CLOSE)


def test_cached_keys_are_unit_vectors() -> None:
    model = perturbed(tiny_config())
    folded = FoldedTransformer(model)
    tokens = random_tokens(model.config)
    cache = new_cache(folded, *tokens.shape)
    prefill(folded, tokens, cache)
    length = torch.linalg.vector_norm(cache.keys, dim=-1)
    torch.testing.assert_close(length, torch.ones_like(length))


def test_folding_copies() -> None:
    """The folded model keeps its answer when training goes on."""
    model = perturbed(tiny_config())
    folded = FoldedTransformer(model)
    tokens = random_tokens(model.config)
    before = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    with torch.no_grad():
        for p in model.parameters():
            p.normal_()
    torch.testing.assert_close(
        prefill(folded, tokens, new_cache(folded, *tokens.shape)), before, rtol=0, atol=0
    )


def test_beyond_the_context_the_angles_go_on() -> None:
    model = perturbed(tiny_config())
    tokens = random_tokens(model.config, length=20)
    folded = FoldedTransformer(model)
    logits = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    model.extend_context(20)
    torch.testing.assert_close(logits, model(tokens), **CLOSE)


def test_float32_agrees_to_float32_tolerance() -> None:
    model = Transformer(tiny_config(d_model=64, d_mlp=256, vocab_size=97))
    tokens = random_tokens(model.config)
    folded = FoldedTransformer(model)
    logits = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    # Logits are at most 1 at the start (s_z = 1); 1e-5 is some hundred roundings of float32.
    torch.testing.assert_close(logits, model(tokens), rtol=0, atol=1e-5)


class _Gated(Attention):
    def forward(self, h: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        return super().forward(h, rope, attend) * torch.sigmoid(h)


class _Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(MLP(tiny_config()) for _ in range(2))

    def forward(self, h: Tensor) -> Tensor:
        return torch.stack([expert(h) for expert in self.experts]).sum(0)


class _Shifted(Transformer):
    def logits(self, h: Tensor) -> Tensor:
        return super().logits(h).roll(1, -1)


@pytest.mark.parametrize(
    ("name", "made", "change"),
    [
        ("attention", "_Gated has its own forward", lambda m: _Gated(m.config)),
        ("mlp", "_Experts has its own forward", lambda m: _Experts()),
    ],
)
def test_a_part_that_computes_in_its_own_way_is_not_left_out(
    name: str, made: str, change: Callable[[Transformer], nn.Module]
) -> None:
    """Text came from the part of ours that stood there before, without a word."""
    model = Transformer(tiny_config())
    setattr(model.blocks[1], name, change(model))
    model.reset_parameters()
    with pytest.raises(UserError, match=f"{made}, which a folded copy"):
        FoldedTransformer(model)


class _Halved(RMSNorm):
    def forward(self, h: Tensor | Stream) -> Tensor:
        return super().forward(h) / 2


@pytest.mark.parametrize("name", ["final_norm", "norm_attn", "norm_mlp"])
def test_a_norm_that_computes_in_its_own_way_is_not_left_out(name: str) -> None:
    model = Transformer(tiny_config(arch="gpt"))
    owner = model if name == "final_norm" else model.blocks[1]
    setattr(owner, name, _Halved(model.config))
    with pytest.raises(UserError, match="_Halved has its own forward, which a folded copy"):
        FoldedTransformer(model)


class _Weighed(NGPTBlock):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.ones(config.d_model))

    def forward(self, hidden: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        return super().forward(hidden, rope, attend) * self.weight


class _Quick(NGPTBlock):
    def eigen_learning_rates(self) -> tuple[Tensor, Tensor]:
        alpha_A, alpha_M = super().eigen_learning_rates()
        return 2 * alpha_A, 2 * alpha_M


def _patched(config: ModelConfig) -> NGPTBlock:
    block = NGPTBlock(config)
    block.forward = lambda hidden, *_: hidden  # type: ignore[method-assign]
    return block


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("_Weighed has its own weight", _Weighed),
        ("_Quick has its own eigen_learning_rates", _Quick),
        ("NGPTBlock has its own forward", _patched),
        ("Identity has its own forward", lambda c: nn.Identity()),
        ("NGPTBlock has its own update", lambda c: NGPTBlock(replace(c, update="slerp"))),
    ],
)
def test_what_a_block_has_of_its_own_is_not_left_out(
    said: str, made: Callable[[ModelConfig], NGPTBlock]
) -> None:
    """Rates of its own were taken twice, and a forward put in its place not at all."""
    model = Transformer(tiny_config())
    model.blocks[1] = made(model.config)
    model.reset_parameters()
    with pytest.raises(UserError, match=f"{said}, which a folded copy"):
        FoldedTransformer(model)


@pytest.mark.parametrize("part", ["blocks.1", "blocks.0.mlp", "rope", ""])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_are_not_left_out(part: str, kind: str) -> None:
    """One that steers would have no say in what is written, and one that records would see nothing;
    our own, which rounds matrices before a call, is none of these."""
    model = Transformer(tiny_config(d_model=16, d_mlp=64), Choice(fp8=True))
    FoldedTransformer(model)
    hook = getattr(model.get_submodule(part), kind)(lambda *_: None)
    with pytest.raises(UserError, match="has its own forward hooks, which a folded copy"):
        FoldedTransformer(model)
    hook.remove()
    FoldedTransformer(model)


class _Turned(Parallel):
    """Made in a way of its own, with what is no parameter."""

    def __init__(self, layer: int, config: ModelConfig) -> None:
        super().__init__(config)
        self.sign = -1 if layer % 2 else 1

    def forward(self, hidden: Tensor, rope: Tensor, attend: Attend = CAUSAL) -> Tensor:
        return self.sign * super().forward(hidden, rope, attend)


def _turned_later(config: ModelConfig) -> NGPTBlock:
    block = _Turned(0, config)
    block.sign = -1
    return block


def _checkpointed(config: ModelConfig) -> NGPTBlock:
    """As a run with activation checkpointing has its blocks, compiled or not."""
    block = NGPTBlock(config)
    forward = partial(checkpoint, block.forward, use_reentrant=False)
    block.forward = torch.compile(forward, backend="eager")  # type: ignore[method-assign]
    return block


@pytest.mark.parametrize("made", [Parallel, partial(_Turned, 1), _turned_later, _checkpointed])
def test_a_block_that_its_twin_computes_alike_is_folded(
    made: Callable[[ModelConfig], NGPTBlock],
) -> None:
    model = Transformer(tiny_config())
    model.blocks[1] = made(model.config)
    model.reset_parameters()
    model.double()
    tokens = random_tokens(model.config)
    folded = FoldedTransformer(model)
    logits = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    torch.testing.assert_close(logits, model(tokens), **CLOSE)


def test_a_model_that_computes_in_its_own_way_is_not_left_out() -> None:
    with pytest.raises(UserError, match="_Shifted has its own logits"):
        FoldedTransformer(_Shifted(tiny_config()))
    patched = Transformer(tiny_config())
    patched.layers[0].attention.forward = lambda h, *_: h  # type: ignore[method-assign]
    with pytest.raises(UserError, match="Attention has its own forward"):
        FoldedTransformer(patched)
    with pytest.raises(UserError, match="NoneType has its own hidden"):
        FoldedTransformer(None)  # type: ignore[arg-type]


def _compiled(part: nn.Module) -> nn.Module:
    return torch.compile(part, backend="eager")  # type: ignore[return-value]


def _compile_attention(model: Transformer) -> None:
    model.layers[1].attention = _compiled(model.layers[1].attention)  # type: ignore[assignment]


def _compile_mlp(model: Transformer) -> None:
    model.layers[1].mlp = _compiled(model.layers[1].mlp)  # type: ignore[assignment]


def _compile_block(model: Transformer) -> None:
    model.blocks[1] = _compiled(model.blocks[1])


def _compile_parts_of_parts(model: Transformer) -> None:
    _compile_attention(model)
    _compile_block(model)
    model.rope = _compiled(model.rope)  # type: ignore[assignment]
    if model.final_norm is not None:
        model.final_norm = _compiled(model.final_norm)  # type: ignore[assignment]


def _compile_in_place(model: Transformer) -> None:
    model.layers[1].mlp.compile(backend="eager")
    model.compile(backend="eager")


def _compile_forward(model: Transformer) -> None:
    for part in (model.layers[0], model.layers[0].attention):
        part.forward = torch.compile(part.forward, backend="eager")  # type: ignore[method-assign]


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
@pytest.mark.parametrize(
    "change",
    [
        _compile_attention,
        _compile_mlp,
        _compile_block,
        _compile_parts_of_parts,
        _compile_in_place,
        _compile_forward,
        _compiled,
    ],
)
def test_what_is_compiled_is_folded_as_what_it_is(
    arch: str, change: Callable[[Transformer], nn.Module | None]
) -> None:
    """The compiler's wrapper was said to compute in its own way, or could not be folded at all."""
    model = perturbed(tiny_config(arch=arch))
    tokens = random_tokens(model.config)
    expected = model(tokens)
    wrapped = change(model)
    folded = FoldedTransformer(model if wrapped is None else wrapped)  # type: ignore[arg-type]
    logits = prefill(folded, tokens, new_cache(folded, *tokens.shape))
    torch.testing.assert_close(logits, expected, **CLOSE)


def test_a_compiled_part_that_computes_in_its_own_way_is_not_left_out() -> None:
    model = Transformer(tiny_config())
    model.layers[1].attention = _compiled(_Gated(model.config))  # type: ignore[assignment]
    with pytest.raises(UserError, match="_Gated has its own forward"):
        FoldedTransformer(model)
    with pytest.raises(UserError, match="_Shifted has its own logits"):
        FoldedTransformer(_compiled(_Shifted(tiny_config())))  # type: ignore[arg-type]
