"""What a model costs: parameters by kind and FLOPs per token, from its config alone."""

from __future__ import annotations

from dataclasses import dataclass

from spherelm.model.config import ModelConfig, ResolvedScale


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by kind; a kind that the model does not have is 0."""

    embeddings: int
    attention: int
    mlp: int
    factors: int
    """Learned vectors: gains of RMSNorm in GPT, alphas and scales in nGPT."""

    @property
    def total(self) -> int:
        return self.embeddings + self.attention + self.mlp + self.factors


def count_parameters(config: ModelConfig) -> ParameterCount:
    """Count the parameters without building the model."""
    c = config
    d, d_kv, layers = c.d_model, c.kv_heads * c.d_k, c.n_layers
    if c.arch == "gpt":
        factors = (2 * layers + 1) * d  # two gains in each block, and the final norm's
        factors += layers * d_kv if c.gpt_qk_norm else 0
    else:
        in_a_block = {"alpha_attn": d, "alpha_mlp": d, "s_qk": d_kv}
        in_a_block |= {"s_u": c.mlp_width, "s_nu": c.mlp_width}
        factors = layers * sum(_learned(c.resolve_scale(k), n) for k, n in in_a_block.items())
        factors += _learned(c.resolve_scale("s_z"), c.vocab_size)
    return ParameterCount(
        embeddings=(1 if c.tie_embeddings else 2) * c.vocab_size * d,
        attention=layers * 2 * (d + d_kv) * d,
        mlp=layers * 3 * c.mlp_width * d,
        factors=factors,
    )


def _learned(scale: ResolvedScale, n: int) -> int:
    """The number of parameters of a `Scale` of `n` factors."""
    return {"vector": n, "scalar": 1, "fixed": 0}[scale.mode]


def flops_per_token(config: ModelConfig, context: int | None = None) -> float:
    """FLOPs of forward and backward for one token of a sequence, matrix products only.

    6 per weight that multiplies (all matrices except E_input, which is looked up), and
    6 · T · d_model · L for attention: q·k and the sum over v each take 2 · T/2 · d_model forward,
    since attention is causal, and twice that backward.
    """
    count = count_parameters(config)
    output_embedding = config.vocab_size * config.d_model
    length = config.context if context is None else context
    attention = 6 * length * config.d_model * config.n_layers
    return 6 * (count.attention + count.mlp + output_embedding) + attention
