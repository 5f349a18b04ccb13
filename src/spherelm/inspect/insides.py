"""All numbers about one model, for the page and `inspect.json`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.inspect.attribution import Attribution, attribute
from spherelm.inspect.bounds import OperandBounds, look_at_bounds
from spherelm.inspect.conditions import (
    Conditions,
    FullMatrix,
    look_at_conditions,
    look_at_layer,
)
from spherelm.inspect.directions import Directions, look_at_directions
from spherelm.inspect.embeddings import Embeddings, look_at_embeddings
from spherelm.inspect.factors import Factor, look_at_factors
from spherelm.inspect.path import Path, look_at_path
from spherelm.inspect.walk import walk
from spherelm.model.config import Arch
from spherelm.model.flops import count_parameters
from spherelm.model.transformer import Transformer

PAPERS_LAYER = 3
"""The first of the two layers whose matrices the paper shows."""
Report = Callable[[str], None]


@dataclass(frozen=True)
class Insides:
    """All numbers about one model."""

    run: str
    label: str
    arch: Arch
    update: str
    """The update rule of the hidden state; meaningless for GPT."""
    parameters: int
    d_model: int
    n_layers: int
    tokenizer: str
    layer: int
    """The layer whose matrices are shown in full, counted from 1."""
    loss: float
    """On the text, in nats per token."""
    embeddings: list[Embeddings]
    conditions: list[Conditions]
    matrices: list[FullMatrix]
    factors: list[Factor]
    path: Path
    attribution: Attribution | None
    """None if the update rule's steps cannot be decomposed."""
    bounds: list[OperandBounds]
    directions: list[Directions]
    texts: dict[int, str]
    """The texts of the ids in `path` and `directions`."""

    def as_json(self) -> dict[str, Any]:
        """Everything except the individual rows of directions."""
        found = dataclasses.asdict(dataclasses.replace(self, directions=[]))
        return {**found, "directions": [each.summary() for each in self.directions]}

    def directions_as_json(self) -> dict[str, Any]:
        """Every row of W_u and W_oMLP with its nearest tokens, and the texts of their ids."""
        ids = sorted({i for each in self.directions for i in each.tokens.unique().tolist()})
        return {
            "run": self.run,
            "label": self.label,
            "texts": {i: self.texts[i] for i in ids},
            "directions": [each.rows() for each in self.directions],
        }


def enough(tokens: int) -> int:
    """Characters (or tokens of another tokenizer) to read for `tokens` tokens and one more."""
    # A token is at least a byte, and rarely more than 16.
    return 16 * (tokens + 1)


def look_inside(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    *,
    run: str,
    label: str,
    tokens: int = 96,
    layer: int | None = None,
    report: Report = lambda done: None,
    bf16: bool = False,
) -> Insides:
    """All numbers about a model, with the paths of the first `tokens` tokens of `text`; for `bf16`
    see `directions`."""
    config = model.config
    layer = min(PAPERS_LAYER, config.n_layers) if layer is None else layer
    if not 1 <= layer <= config.n_layers:
        raise UserError(f"--layer must be from 1 to {config.n_layers}, the layers of {run}")
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise UserError(
                f"{run}: {name} holds numbers that are not finite; choose an earlier checkpoint"
            )
    tokens = min(tokens, config.context)
    ids = torch.tensor(tokenizer.encode(text[: enough(tokens)])[: tokens + 1])
    if len(ids) < 2:
        raise UserError("the text has fewer than two tokens; give a longer one with --text")
    L = config.n_layers
    report(f"reading {len(ids) - 1} tokens")
    way = walk(model, ids[:-1])
    depths = len(way.states)
    path = look_at_path(model, way, ids[1:], lambda d: report(f"paths: depth {d + 1}/{depths}"))
    attribution = attribute(model, way, ids[1:])
    bounds = look_at_bounds(model, way)
    report("embeddings")
    embeddings = [look_at_embeddings("E_input", model.E_input)]
    if model.E_output is not None:
        embeddings.append(look_at_embeddings("E_output", model.E_output))
    conditions = look_at_conditions(model, lambda n: report(f"condition numbers: layer {n}/{L}"))
    matrices = look_at_layer(model, layer - 1)
    directions = look_at_directions(
        model, layer, lambda done, all: report(f"directions: matrix {done}/{all}"), bf16
    )
    named = {*path.tokens, *path.targets}
    named |= {i for reading in path.readings for top in reading.top for i, _ in top}
    named.update(i for each in directions for i in each.tokens.unique().tolist())
    return Insides(
        run=run,
        label=label,
        arch=config.arch,
        update=config.update,
        parameters=count_parameters(config).total,
        d_model=config.d_model,
        n_layers=config.n_layers,
        tokenizer=tokenizer.name,
        layer=layer,
        loss=_loss(path),
        embeddings=embeddings,
        conditions=conditions,
        matrices=matrices,
        factors=look_at_factors(model),
        path=path,
        attribution=attribution,
        bounds=bounds,
        directions=directions,
        texts=texts_of(tokenizer, named),
    )


def texts_of(tokenizer: Tokenizer, ids: Iterable[int]) -> dict[int, str]:
    """How to show each id: its text with white space made visible, or its number."""
    return {i: _text_of(tokenizer, i) for i in sorted(ids)}


def _text_of(tokenizer: Tokenizer, token: int) -> str:
    if token == tokenizer.end_of_document:
        return "⟨end⟩"
    if token >= tokenizer.vocab_size:  # the model's vocabulary is padded to a round size
        return f"⟨{token}⟩"
    text = tokenizer.decode([token])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:  # only some bytes of a character
        return f"⟨{token}⟩"
    shown = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
    return "".join(shown.get(c, c if c.isprintable() else f"⟨{ord(c):#x}⟩") for c in text)


def _loss(path: Path) -> float:
    last = path.readings[-1].target_probability
    return -sum(math.log(max(p, 1e-45)) for p in last) / len(last)
