"""The path of every token of a text: where each half-block moves it, and what it then predicts.

Angles are in degrees. Shapes: T tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spherelm.inspect.distribution import wide
from spherelm.inspect.walk import HalfBlock, Walk, read_out
from spherelm.model.transformer import Transformer
from spherelm.ops.reference import residual_slerp

TOP = 5
"""Most likely tokens that are kept of each prediction."""
READ_AT_ONCE = 2**25
"""Logits that are computed at once: 128 MiB in float32."""


@dataclass(frozen=True)
class Move:
    """What one half-block did, one number per token."""

    angle: tuple[float, ...]
    """How far the hidden state turned."""
    suggested: tuple[float, ...]
    """The angle to the block's output, where a full step would end."""
    at_mean_alpha: tuple[float, ...] | None
    """`suggested` times the mean of α: a step with one rate for all coordinates; None in GPT."""
    from_slerp: tuple[float, ...] | None
    """The angle between where the step ended and where SLERP with the same α would have."""
    off_geodesic: tuple[float, ...] | None
    """How far it ended from the great circle through the state and the block's output: 0 if α is a
    single number, since LERP then follows the same great circle."""


@dataclass(frozen=True)
class Reading:
    """What the network would predict at one depth, one number per token."""

    alignment: tuple[float, ...]
    """The cosine with the target's row of E_output."""
    entropy: tuple[float, ...]
    """Of the prediction, in nats."""
    target_probability: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]
    """The most likely tokens with their probabilities."""


@dataclass(frozen=True)
class Path:
    """The path of a text through a network."""

    depths: tuple[str, ...]
    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    """The token that follows each."""
    moves: tuple[Move, ...]
    """One for each half-block."""
    readings: tuple[Reading, ...]
    """One before the first half-block and one after each."""


@torch.no_grad()
def look_at_path(
    model: Transformer,
    way: Walk,
    targets: Tensor,
    report: Callable[[int], None] = lambda depth: None,
) -> Path:
    """The path of a text; `targets`, (T,), are the next tokens. `report` is given each depth."""
    targets = targets.to(way.tokens.device)
    direction = model.output_embedding(model.dtype)[targets]  # (T, D)
    readings: list[Reading] = []
    # Several depths at once, as each call prepares E_output, scaled by s_z, for its product.
    at_once = max(1, READ_AT_ONCE // (len(targets) * len(model.E_input)))
    for first in range(0, len(way.states), at_once):
        states = way.states[first : first + at_once]
        for h, logits in zip(
            states, read_out(model, torch.cat(states)).split(len(targets)), strict=True
        ):
            readings.append(_reading(logits, h, direction, targets))
        report(len(readings) - 1)
    return Path(
        depths=tuple(way.depths),
        tokens=tuple(way.tokens.tolist()),
        targets=tuple(targets.tolist()),
        moves=tuple(_move(step) for step in way.steps),
        readings=tuple(readings),
    )


def angle_between(a: Tensor, b: Tensor) -> Tensor:
    """Angles in degrees, exact even when small, unlike arccos: (T, D), (T, D) -> (T,)"""
    a, b = (torch.nn.functional.normalize(wide(x), dim=-1) for x in (a, b))
    chord, other = (torch.linalg.vector_norm(x, dim=-1) for x in (a - b, a + b))
    return torch.rad2deg(2 * torch.atan2(chord, other))


def angle_from_circle(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The angle between x and the great circle through a and b: (T, D) each -> (T,)"""
    x, a, b = (torch.nn.functional.normalize(wide(v), dim=-1) for v in (x, a, b))
    b = torch.nn.functional.normalize(b - a * (a * b).sum(-1, keepdim=True), dim=-1)
    inside = a * (x * a).sum(-1, keepdim=True) + b * (x * b).sum(-1, keepdim=True)
    lengths = [torch.linalg.vector_norm(v, dim=-1) for v in (x - inside, inside)]
    return torch.rad2deg(torch.atan2(*lengths))


def _move(step: HalfBlock) -> Move:
    angle = angle_between(step.h, step.after)
    suggested = angle_between(step.h, step.output)
    if step.alpha is None:
        return Move(_numbers(angle), _numbers(suggested), None, None, None)
    slerp = residual_slerp(wide(step.h), wide(step.output), wide(step.alpha))
    return Move(
        _numbers(angle),
        _numbers(suggested),
        _numbers(suggested * float(step.alpha.mean())),
        _numbers(angle_between(step.after, slerp)),
        _numbers(angle_from_circle(step.after, step.h, step.output)),
    )


def _reading(logits: Tensor, h: Tensor, direction: Tensor, targets: Tensor) -> Reading:
    log_p = logits.log_softmax(-1)  # (T, V)
    p = log_p.exp()
    entropy = -(p * log_p).nan_to_num().sum(-1)
    likely = p.topk(min(TOP, p.shape[-1]), dim=-1)
    cosine = torch.nn.functional.cosine_similarity(wide(h), wide(direction), dim=-1)
    return Reading(
        alignment=_numbers(cosine),
        entropy=_numbers(entropy),
        target_probability=_numbers(p.gather(-1, targets[:, None])[:, 0]),
        top=tuple(
            tuple(zip(ids, values, strict=True))
            for ids, values in zip(likely.indices.tolist(), likely.values.tolist(), strict=True)
        ),
    )


def _numbers(x: Tensor) -> tuple[float, ...]:
    return tuple(x.tolist())
