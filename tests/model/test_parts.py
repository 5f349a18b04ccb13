"""Models of one's own, made with our parts: drawn, kept on the sphere, saved and read back."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spherelm import AdamW, ModelConfig, Transformer, attach_retraction
from spherelm.errors import UserError
from spherelm.model.attend import CAUSAL, FULL
from spherelm.model.attention import Attention
from spherelm.model.block import GPTBlock, NGPTBlock
from spherelm.model.init import initialize_
from spherelm.model.mlp import MLP
from spherelm.model.rope import RopeTable
from spherelm.model.scale import Scale
from spherelm.model.sphere import largest_norm_deviation, unit_matrices
from spherelm.ops.reference import normalize

CONFIG = ModelConfig(vocab_size=32, d_model=16, n_layers=2, n_heads=2, context=8)
GPT = ModelConfig(arch="gpt", vocab_size=32, d_model=16, n_layers=2, n_heads=2, context=8)


class Translator(nn.Module):
    """An encoder, a decoder that attends to it, experts in place of an MLP, and a free head."""

    def __init__(self) -> None:
        super().__init__()
        self.E_input = nn.Parameter(torch.empty(32, 16))
        self.unit_vectors = {"E_input": -1}
        self.rope = RopeTable(CONFIG.context, CONFIG.d_k, CONFIG.rope_base)
        self.encoder, self.decoder = NGPTBlock(CONFIG), NGPTBlock(CONFIG)
        self.attention = Attention(CONFIG)
        self.alpha = Scale(16, CONFIG.resolve_scale("alpha_attn"))
        self.experts = nn.ModuleList(MLP(CONFIG) for _ in range(2))
        self.head = nn.Linear(16, 32)
        initialize_(self, CONFIG)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(F.embedding(source, self.E_input), self.rope(source.shape[1]), FULL)
        h = self.decoder(F.embedding(target, self.E_input), self.rope(target.shape[1]), CAUSAL)
        h = self.attention.ops.update(h, self.attention.cross(h, memory), self.alpha().abs())
        out: Tensor = self.head(normalize(h + self.experts[0](h) + self.experts[1](h)))
        return out


def steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    """The losses of some steps on the same pairs."""
    source, target = torch.randint(32, (4, 6)), torch.randint(32, (4, 5))
    losses = []
    for _ in range(20):
        loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("ours", [True, False])
def test_a_model_of_parts_learns_on_the_sphere_and_its_own_matrices_are_free(ours: bool) -> None:
    model = Translator()
    assert len(unit_matrices(model)) == 1 + 2 * 7 + 4 + 2 * 3  # all but the head
    assert largest_norm_deviation(model) < 1e-6
    if ours:
        optimizer: torch.optim.Optimizer = AdamW(model, lr=1e-2)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        attach_retraction(optimizer, model)
    losses = steps(model, optimizer)
    assert losses[-1] < 0.7 * losses[0]
    assert largest_norm_deviation(model) < 1e-6
    assert (model.head.weight.norm(dim=-1) - 1).abs().max() > 0.01
    again = Translator()
    again.load_state_dict(model.state_dict())
    tokens = torch.randint(32, (2, 8))
    assert torch.equal(again(tokens, tokens), model(tokens, tokens))


@pytest.mark.parametrize(("block", "config"), [(NGPTBlock, CONFIG), (GPTBlock, GPT)])
def test_a_part_that_was_never_drawn_gives_no_numbers(
    block: type[nn.Module], config: ModelConfig
) -> None:
    """Large matrices were zeros, and a model of them trained its head alone without a word."""
    model = block(config)
    h = normalize(torch.randn(1, 4, 16))
    rope = RopeTable(8, 8, 1e4)(4)
    assert model(h, rope).isnan().all()
    initialize_(model, config)
    assert model(h, rope).isfinite().all()


def test_parts_of_a_gpt_are_free() -> None:
    model = nn.ModuleList(GPTBlock(GPT) for _ in range(2))
    initialize_(model, GPT)
    assert unit_matrices(model) == []
    assert model[0].attention.W_q.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize(("block", "config"), [(NGPTBlock, GPT), (GPTBlock, CONFIG)])
def test_a_block_of_the_other_architecture_is_refused(block: type, config: ModelConfig) -> None:
    """It would be half of each: its attention and its MLP go by the configuration."""
    with pytest.raises(UserError, match=rf"{block.__name__} is made from a ModelConfig of arch"):
        block(config)


class Gated(Attention):
    """Attention of ours with one matrix more, drawn as rows on the sphere."""

    def __init__(self, marks: dict[str, int] | None) -> None:
        super().__init__(CONFIG)
        self.W_gate = nn.Parameter(torch.empty(2, 16))
        if marks is not None:
            self.unit_vectors = marks
        initialize_(self, CONFIG)


class GatedByItsClass(Gated):
    unit_vectors = {"W_gate": -1}  # noqa: RUF012


@pytest.mark.parametrize(
    ("kind", "marks"), [(Gated, {"W_gate": -1}), (GatedByItsClass, None), (GatedByItsClass, {})]
)
def test_marks_add_up(kind: type[Gated], marks: dict[str, int] | None) -> None:
    """One on a class was not seen, and one on a part took the place of the part's own."""
    model = kind(marks)
    assert {m.name for m in unit_matrices(model)} == {"W_q", "W_k", "W_v", "W_o", "W_gate"}
    assert largest_norm_deviation(model) < 1e-6


def test_one_matrix_more_is_free_unless_it_is_marked() -> None:
    model = Gated(None)
    assert {m.name for m in unit_matrices(model)} == {"W_q", "W_k", "W_v", "W_o"}
    assert (model.W_gate.norm(dim=-1) - 1).abs().max() > 1e-3


def test_columns_that_are_marked_stay_as_they_are_where_a_model_is_loaded() -> None:
    """Their rows were normalized, so that what was saved did not come back."""
    model = Transformer(CONFIG)
    model.extra = nn.Linear(3, 16, bias=False)
    model.unit_vectors = {"extra.weight": 0}
    initialize_(model, CONFIG)
    before = model.extra.weight.detach().clone()
    model.load_state_dict(model.state_dict())
    assert torch.equal(model.extra.weight, before)
    model.load_state_dict({**model.state_dict(), "extra.weight": 3 * before})
    assert largest_norm_deviation(model) < 1e-6
    torch.testing.assert_close(model.extra.weight.detach(), before)


@pytest.mark.parametrize(
    "marks", [["W_gate"], {"W_gate": 2}, {"W_gate": None}, {"W_gate": [-1]}, "W_gate"]
)
def test_a_mark_that_gives_no_dimension_is_refused(marks: Any) -> None:
    with pytest.raises(UserError, match="unit_vectors of Gated must give the dimension"):
        Gated(marks)


@pytest.mark.parametrize("name", ["W_gat", "s_qk.stored"])
def test_a_mark_of_what_is_no_matrix_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name} is no longer a matrix, or never was one"):
        Gated({name: -1})


@pytest.mark.parametrize(
    ("part", "config"),
    [(NGPTBlock, CONFIG), (GPTBlock, GPT), (Attention, CONFIG), (Attention, GPT)],
)
@pytest.mark.parametrize(
    ("positions", "d_k"),
    [
        (8, 8),  # two sequences of four tokens would be one of eight
        (1, 8),  # every token would be the first
        (4, 4),  # four heads of four in place of two of eight
    ],
)
def test_a_table_of_other_sequences_or_heads_is_refused(
    part: type[nn.Module], config: ModelConfig, positions: int, d_k: int
) -> None:
    model = part(config)
    initialize_(model, config)
    h = normalize(torch.randn(2, 4, 16))
    table = RopeTable(8, d_k, 1e4)(positions)
    with pytest.raises(UserError, match="sequences of 4 tokens with heads of 8 need a RoPE table"):
        model(h, table)
    if isinstance(model, Attention):
        for tables in ({"rope": table}, {"source_rope": table}):
            with pytest.raises(UserError, match="need a RoPE table of that size"):
                model.cross(h, h, **tables)


@pytest.mark.parametrize(("block", "config"), [(NGPTBlock, CONFIG), (GPTBlock, GPT)])
def test_sequences_may_lie_in_any_number_of_dimensions(
    block: type[nn.Module], config: ModelConfig
) -> None:
    """Frames of videos, or one sequence alone: what stands before the tokens is a batch."""
    model, rope = block(config), RopeTable(8, 8, 1e4)(4)
    initialize_(model, config)
    h = normalize(torch.randn(2, 3, 4, 16))
    expected = model(h.flatten(0, 1), rope, FULL)
    assert torch.equal(model(h, rope, FULL).flatten(0, 1), expected)
    torch.testing.assert_close(model(h[0, 0], rope, FULL), expected[0])
