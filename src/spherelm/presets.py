"""Complete configurations by name: `{gpt,ngpt}-{debug,nano,small,7b-4k}` and the paper's
`{gpt,ngpt}-{0.5b,1b}-{1k,4k,8k}`.

The paper's presets have its optimizer settings: AdamW with cosine decay to 0, batches of 512
sequences, and for GPT weight decay 0.1 and 2000 steps of warmup. Its learning rates are
"problem-specific"; the 1e-3 here is the one it gives for its ablations.
"""

from __future__ import annotations

import dataclasses
import math

from spherelm.config import OptimConfig, RunConfig, TrainConfig
from spherelm.errors import UserError, nearest
from spherelm.model.config import Arch, ModelConfig, ScaleConfig

ARCHS: tuple[Arch, ...] = ("gpt", "ngpt")
BYTES_VOCAB = 257
"""256 bytes and the end of a document: the built-in tokenizer."""
NANO_INIT = 0.7
"""GPT's standard deviation at the start, times sqrt(d_model), by the sweep of `nano`."""


def warmup_for(preset: RunConfig, steps: int) -> int:
    """The warmup of a preset in a run of `steps` steps: the same share of it."""
    return min(round(preset.optim.warmup_steps * steps / preset.train.steps), steps - 1)


def _optim(arch: Arch, lr: float, warmup_steps: int) -> OptimConfig:
    """The paper's Table 'Optimization Parameters': decay and warmup are GPT's alone."""
    if arch == "ngpt":
        return OptimConfig(lr=lr)
    return OptimConfig(lr=lr, weight_decay=0.1, warmup_steps=warmup_steps)


def _for_short_run(model: ModelConfig) -> ModelConfig:
    """Starting values for some hundred steps of a narrow model, where the paper's do not suit.

    nGPT: s_z starts at 1 in the paper, which holds logits within ±1; alpha at 0.05, "in the order
    of 1/n_layers" of its 24 layers. GPT: a deviation of 0.02 is meant for d_model of 1024 and
    more. docs/results/compare.md has what they do to a short run.
    """
    if model.arch == "gpt":
        return dataclasses.replace(model, init_std=NANO_INIT / math.sqrt(model.d_model))
    alpha, s_z = ScaleConfig(init=0.4), ScaleConfig(init=16.0)
    return dataclasses.replace(model, alpha_attn=alpha, alpha_mlp=alpha, s_z=s_z)


def _debug(arch: Arch) -> RunConfig:
    return RunConfig(
        model=_for_short_run(
            ModelConfig(
                arch=arch,
                vocab_size=BYTES_VOCAB,
                d_model=64,
                n_layers=2,
                n_heads=4,
                context=64,
            )
        ),
        optim=_optim(arch, lr=4e-3 if arch == "gpt" else 1e-2, warmup_steps=2),
        train=TrainConfig(
            steps=50, batch_size=8, eval_every=10, eval_sequences=16, checkpoint_every=20
        ),
    )


def _nano(arch: Arch) -> RunConfig:
    """What `spherelm compare` trains; a sweep found four values of each model."""
    optim: dict[Arch, OptimConfig] = {
        "gpt": OptimConfig(lr=2e-3, warmup_steps=600, weight_decay=0.1, beta2=0.99),
        "ngpt": OptimConfig(lr=4e-3, warmup_steps=300, beta2=0.99),
    }
    return RunConfig(
        model=_for_short_run(
            ModelConfig(
                arch=arch,
                vocab_size=BYTES_VOCAB,
                d_model=128,
                n_layers=4,
                n_heads=4,
                context=256,
            )
        ),
        optim=optim[arch],
        train=TrainConfig(
            steps=1500, batch_size=2, eval_every=75, eval_sequences=64, checkpoint_every=500
        ),
    )


def _small(arch: Arch) -> RunConfig:
    return RunConfig(
        model=ModelConfig(
            arch=arch, vocab_size=32000, d_model=640, n_layers=12, n_heads=10, context=1024
        ),
        optim=_optim(arch, lr=1e-3, warmup_steps=1000),
        train=TrainConfig(
            steps=20000,
            batch_size=256,
            micro_batch_size=16,
            eval_every=250,
            eval_sequences=256,
            checkpoint_every=1000,
        ),
    )


def _paper(arch: Arch, size: str, context: int) -> RunConfig:
    width = {"0.5b": (1024, 24, 16), "1b": (1280, 36, 20)}[size]
    d_model, n_layers, n_heads = width
    # "the increasing sensitivity of the 1B nGPT model on 8k": the paper stores alpha at 0.1 there.
    alpha = ScaleConfig(scale=0.1 if (arch, size, context) == ("ngpt", "1b", 8192) else None)
    return RunConfig(
        model=ModelConfig(
            arch=arch,
            vocab_size=32000,
            d_model=d_model,
            n_layers=n_layers,
            n_heads=n_heads,
            context=context,
            alpha_attn=alpha,
            alpha_mlp=alpha,
        ),
        optim=_optim(arch, lr=1e-3, warmup_steps=2000),
        train=TrainConfig(
            steps=100_000,
            batch_size=512,
            micro_batch_size=max(1, 32768 // context),
            compile=True,
            eval_every=1000,
            eval_sequences=512,
            checkpoint_every=2000,
        ),
    )


def _7b(arch: Arch) -> RunConfig:
    """The shape of Llama's 7B, for clusters: beyond the paper's sizes."""
    return RunConfig(
        model=ModelConfig(
            arch=arch,
            vocab_size=32000,
            d_model=4096,
            n_layers=32,
            n_heads=32,
            d_mlp=11008,
            context=4096,
        ),
        optim=_optim(arch, lr=3e-4, warmup_steps=2000),
        train=TrainConfig(
            steps=100_000,
            batch_size=1024,
            micro_batch_size=2,
            activation_checkpointing=True,
            compile=True,
            background_checkpoints=True,
            eval_every=1000,
            eval_sequences=512,
            checkpoint_every=1000,
        ),
    )


_OWN_SIZES = {"debug": _debug, "nano": _nano, "small": _small, "7b-4k": _7b}
_PAPER_SIZES = ("0.5b", "1b")
_CONTEXTS = {"1k": 1024, "4k": 4096, "8k": 8192}


def names() -> list[str]:
    """The names of all presets."""
    sizes = [
        *_OWN_SIZES,
        *(f"{size}-{context}" for size in _PAPER_SIZES for context in _CONTEXTS),
    ]
    return [f"{arch}-{size}" for arch in ARCHS for size in sizes]


def get(name: str) -> RunConfig:
    """The preset called `name`; a name without `gpt-` or `ngpt-` means nGPT."""
    if not isinstance(name, str):
        raise UserError(f"a preset has a name, such as ngpt-nano, not {name!r}")
    full = name if name.partition("-")[0] in ARCHS else f"ngpt-{name}"
    if full not in names():
        raise UserError(f"unknown preset {name!r}; {nearest(full, names())}")
    arch: Arch = "gpt" if full.startswith("gpt-") else "ngpt"
    size = full.partition("-")[2]
    if size in _OWN_SIZES:
        return _OWN_SIZES[size](arch)
    width, _, context = size.partition("-")
    return _paper(arch, width, _CONTEXTS[context])
