"""The paper's equations once more, by hand: float64, one vector at a time, loops for all the rest.

Nothing here is shared with the package but the names of the weights, so that an error would have to
be made twice to go unseen. `weights` are the arrays of a model's state dict.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spherelm import ModelConfig

Vector = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float64]]

RMS_NORM_EPS = 1e-6
"""Not in the paper: what the baseline adds to the mean square."""


def norm(x: Vector) -> Vector:
    """Norm(x): the same direction, length 1."""
    return x / math.sqrt(sum(value * value for value in x))


def rms_norm(x: Vector, gain: Vector) -> Vector:
    """RMSNorm(x): length sqrt(d_model), then each dimension times its gain."""
    mean_square = sum(value * value for value in x) / len(x)
    return x / math.sqrt(mean_square + RMS_NORM_EPS) * gain


def silu(x: float) -> float:
    """SiLU(x) = x σ(x), equation silu."""
    return x / (1 + math.exp(-x))


def softmax(scores: Sequence[float]) -> list[float]:
    top = max(scores)
    exponentials = [math.exp(score - top) for score in scores]
    return [value / sum(exponentials) for value in exponentials]


def rope(x: Vector, position: int, base: float) -> Vector:
    """Turn (x_i, x_{i+K/2}), as a complex number, by the angle position · base^(−2i/K)."""
    half = len(x) // 2
    turned = np.empty_like(x)
    for i in range(half):
        angle = position * base ** (-2 * i / len(x))
        number = complex(x[i], x[i + half]) * cmath.exp(1j * angle)
        turned[i], turned[i + half] = number.real, number.imag
    return turned


def factors(weights: Weights, config: ModelConfig, where: str, name: str, n: int) -> Vector:
    """A learned vector of factors: stored · init / scale ('Effective learning rates in Adam').

    Point 3 to 6 of the summary: init is 0.05 for the α and 1 for the others, scale is 1 for s_u and
    s_ν and 1/sqrt(d_model) for the others.
    """
    given = getattr(config, name)
    init, scale = given.init, given.scale
    if init is None:
        init = 0.05 if name in ("alpha_attn", "alpha_mlp") else 1.0
    if scale is None:
        scale = 1.0 if name in ("s_u", "s_nu") else config.d_model**-0.5
    stored = weights[f"{where}{name}.stored"]
    return np.array([stored[i if len(stored) > 1 else 0] * init / scale for i in range(n)])


def matrix(weights: Weights, config: ModelConfig, name: str) -> list[Vector]:
    """The vectors that a matrix lists."""
    rows = list(weights[name])
    return [norm(row) for row in rows] if config.normalize_in_forward else rows


def project(rows: list[Vector], h: Vector) -> Vector:
    """h W: the dot product of h with each vector of the matrix."""
    return np.array([float(row @ h) for row in rows])


def combine(x: Vector, rows: list[Vector]) -> Vector:
    """x W for an output matrix: the sum of its vectors, each times its input."""
    total = np.zeros_like(rows[0])
    for value, row in zip(x, rows, strict=True):
        total = total + value * row
    return total


def attention(
    weights: Weights,
    config: ModelConfig,
    where: str,
    stream: list[Vector],
    documents: Sequence[int] | None,
) -> list[Vector]:
    """ATTN for every position: equations QKV, qkscaling1, qkscaling2, attQKV and multihead."""
    K = config.d_model // config.n_heads
    n_kv = config.n_kv_heads or config.n_heads
    W_q, W_k, W_v, W_o = (
        matrix(weights, config, f"{where}{name}") for name in ("W_q", "W_k", "W_v", "W_o")
    )
    ngpt = config.arch == "ngpt"
    s_qk = factors(weights, config, where, "s_qk", n_kv * K) if ngpt else np.ones(n_kv * K)
    softmax_scale = math.sqrt(K) if ngpt else 1 / math.sqrt(K)

    def prepare(x: Vector, position: int, kv_head: int) -> Vector:
        x = rope(x, position, config.rope_base)
        if ngpt and config.qk_norm:
            x = norm(x)
        return x * s_qk[kv_head * K : (kv_head + 1) * K]

    outputs = []
    for i, h_i in enumerate(stream):
        heads: list[Vector] = []
        for head in range(config.n_heads):
            kv_head = head // (config.n_heads // n_kv)
            of_head = slice(head * K, (head + 1) * K)
            of_kv = slice(kv_head * K, (kv_head + 1) * K)
            q = prepare(project(W_q[of_head], h_i), i, kv_head)
            visible = [j for j in range(i + 1) if documents is None or documents[j] == documents[i]]
            scores, values = [], []
            for j in visible:
                k = prepare(project(W_k[of_kv], stream[j]), j, kv_head)
                scores.append(float(q @ k) * softmax_scale)
                values.append(project(W_v[of_kv], stream[j]))
            mixed = np.zeros(K)
            for probability, value in zip(softmax(scores), values, strict=True):
                mixed = mixed + probability * value
            heads.append(mixed)
        outputs.append(combine(np.concatenate(heads), W_o))
    return outputs


def mlp(weights: Weights, config: ModelConfig, where: str, h: Vector) -> Vector:
    """MLP for one position: equations mlpUV, mlpscaling1, mlpscaling2, mlpGating and mlpO."""
    W_u, W_nu, W_o = (
        matrix(weights, config, f"{where}{name}") for name in ("W_u", "W_nu", "W_o_mlp")
    )
    u, nu = project(W_u, h), project(W_nu, h)
    if config.arch == "ngpt":
        u = u * factors(weights, config, where, "s_u", len(u))
        nu = nu * factors(weights, config, where, "s_nu", len(nu)) * math.sqrt(config.d_model)
    return combine(np.array([a * silu(b) for a, b in zip(u, nu, strict=True)]), W_o)


def lerp(h: Vector, b: Vector, alpha: Vector) -> Vector:
    """Equations ATTNnew2 and MLPnew2."""
    return norm(h + alpha * (b - h))


def slerp(h: Vector, b: Vector, alpha: Vector) -> Vector:
    """Equation slerp, an α for each coordinate, then Norm."""
    theta = math.acos(max(-1.0, min(1.0, float(h @ b))))
    first = np.array([math.sin((1 - a) * theta) / math.sin(theta) for a in alpha])
    second = np.array([math.sin(a * theta) / math.sin(theta) for a in alpha])
    return norm(first * h + second * b)


def riemannian(h: Vector, b: Vector, alpha: Vector) -> Vector:
    """Equations ATTNnew3 and MLPnew3, with B the diagonal matrix of α."""
    return norm(h - alpha * (h * float(h @ b) - b))


UPDATES = {"lerp": lerp, "slerp": slerp, "riemannian": riemannian}


def block(
    weights: Weights,
    config: ModelConfig,
    where: str,
    stream: list[Vector],
    documents: Sequence[int] | None,
) -> list[Vector]:
    """One layer for all positions: the paper's Table 1, left or right column."""
    inside_attention, inside_mlp = f"{where}attention.", f"{where}mlp."
    if config.arch == "gpt":
        gain_A, gain_M = weights[f"{where}norm_attn.gain"], weights[f"{where}norm_mlp.gain"]
        normed = [rms_norm(h, gain_A) for h in stream]
        moves = attention(weights, config, inside_attention, normed, documents)
        stream = [h + h_A for h, h_A in zip(stream, moves, strict=True)]
        return [h + mlp(weights, config, inside_mlp, rms_norm(h, gain_M)) for h in stream]

    alpha_A = factors(weights, config, where, "alpha_attn", config.d_model)
    alpha_M = factors(weights, config, where, "alpha_mlp", config.d_model)
    if not config.signed_alpha:
        alpha_A, alpha_M = np.abs(alpha_A), np.abs(alpha_M)
    update = UPDATES[config.update]
    targets = attention(weights, config, inside_attention, stream, documents)
    stream = [update(h, norm(h_A), alpha_A) for h, h_A in zip(stream, targets, strict=True)]
    return [update(h, norm(mlp(weights, config, inside_mlp, h)), alpha_M) for h in stream]


def logits(
    weights: Weights,
    config: ModelConfig,
    tokens: Sequence[int],
    documents: Sequence[int] | None = None,
) -> NDArray[np.float64]:
    """Equations logit and sscalingnew, for one sequence: (T, V)."""
    E_input = matrix(weights, config, "E_input")
    E_output = E_input if config.tie_embeddings else matrix(weights, config, "E_output")
    stream = [E_input[token] for token in tokens]
    for layer in range(config.n_layers):
        stream = block(weights, config, f"blocks.{layer}.", stream, documents)
    if config.arch == "gpt":
        stream = [rms_norm(h, weights["final_norm.gain"]) for h in stream]
        return np.array([project(E_output, h) for h in stream])
    s_z = factors(weights, config, "", "s_z", config.vocab_size)
    return np.array([project(E_output, h) * s_z for h in stream])


def losses(z: NDArray[np.float64], targets: Sequence[int]) -> list[float]:
    """−log P(target) of equation prob, for each position with a target (one below 0 has none)."""
    return [-math.log(softmax(list(row))[t]) for row, t in zip(z, targets, strict=True) if t >= 0]
