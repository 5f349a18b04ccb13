"""Complete configurations by name: `{gpt,ngpt}-{debug,nano,nano-muon,small,7b-4k}` and the paper's
`{gpt,ngpt}-{0.5b,1b}-{1k,4k,8k}`.

The paper's presets have its optimizer settings: AdamW with cosine decay to 0, batches of 512
sequences, and for GPT weight decay 0.1 and 2000 steps of warmup. Its learning rates are
"problem-specific"; the 1e-3 here is the one it gives for its ablations.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from spherelm.config import OptimConfig, RunConfig, TrainConfig
from spherelm.config_io import toml_values
from spherelm.errors import UserError, nearest
from spherelm.model.config import ARCHS, SCALE_NAMES, Arch, ModelConfig, ScaleConfig

BYTES_VOCAB = 257
"""256 bytes and the end of a document: the built-in tokenizer."""
NANO_INIT = 0.7
"""GPT's initial standard deviation, times sqrt(d_model), from the sweep of `nano`."""


def warmup_for(preset: RunConfig, steps: int) -> int:
    """The warmup of a preset in a run of `steps` steps: the same share of it."""
    return min(round(preset.optim.warmup_steps * steps / preset.train.steps), steps - 1)


CONTEXTS = {"1k": 1024, "4k": 4096, "8k": 8192}
_NANO = ModelConfig(vocab_size=BYTES_VOCAB, d_model=128, n_layers=4, n_heads=4, context=256)
MODELS: dict[str, ModelConfig] = {
    "debug": ModelConfig(vocab_size=BYTES_VOCAB, d_model=64, n_layers=2, n_heads=4, context=64),
    "nano": _NANO,
    "nano-muon": _NANO,
    "small": ModelConfig(d_model=640, n_layers=12, n_heads=10, context=1024),
    **{
        f"0.5b-{name}": ModelConfig(d_model=1024, n_layers=24, n_heads=16, context=context)
        for name, context in CONTEXTS.items()
    },
    **{
        f"1b-{name}": ModelConfig(d_model=1280, n_layers=36, n_heads=20, context=context)
        for name, context in CONTEXTS.items()
    },
    "7b-4k": ModelConfig(d_model=4096, n_layers=32, n_heads=32, d_mlp=11008, context=4096),
}
"""The shape of each size. `nano` has the paper's two models, `nano-muon` the strongest of each kind
that we know. The last is Llama's 7B, for clusters, and not one of the paper's."""
TUNED = ("nano", "nano-muon")
"""The sizes whose values were found by a sweep for each model (docs/results/compare.md)."""
_STARTS = {"debug": (NANO_INIT, 16.0), "nano": (NANO_INIT, 16.0), "nano-muon": (0.5, 8.0)}
"""The sizes with starting values for a short run of a narrow model: GPT's initial standard
deviation, times sqrt(d_model), and nGPT's s_z."""

WHOLE_MODEL = {"d_model", *SCALE_NAMES}
"""Fields by which a file that describes a whole model, like a run's config.toml, is recognized."""

PAPER_TRAINING = TrainConfig(
    steps=100_000,
    batch_size=512,
    compile=True,
    eval_every=1000,
    eval_sequences=512,
    checkpoint_every=2000,
)
_MINUTES = TrainConfig(
    steps=1500, batch_size=2, eval_every=75, eval_sequences=64, checkpoint_every=500
)
TRAINING: dict[str, TrainConfig] = {
    "debug": TrainConfig(
        steps=50, batch_size=8, eval_every=10, eval_sequences=16, checkpoint_every=20
    ),
    **dict.fromkeys(TUNED, _MINUTES),
    "small": TrainConfig(
        steps=20_000,
        batch_size=256,
        micro_batch_size=16,
        eval_every=250,
        eval_sequences=256,
        checkpoint_every=1000,
    ),
    "7b-4k": dataclasses.replace(
        PAPER_TRAINING,
        batch_size=1024,
        micro_batch_size=2,
        activation_checkpointing=True,
        background_checkpoints=True,
        checkpoint_every=1000,
    ),
}


_MUON = OptimConfig(algorithm="muon", schedule="linear", beta2=0.99)
_TUNED_OPTIM: dict[tuple[Arch, str], OptimConfig] = {
    ("gpt", "nano"): OptimConfig(lr=2e-3, warmup_steps=600, weight_decay=0.1, beta2=0.99),
    ("ngpt", "nano"): OptimConfig(lr=4e-3, warmup_steps=300, beta2=0.99),
    ("gpt", "nano-muon"): dataclasses.replace(
        _MUON, lr=4e-3, muon_momentum=0.8, warmup_steps=75, weight_decay=0.1
    ),
    ("ngpt", "nano-muon"): dataclasses.replace(_MUON, lr=4e-3, muon_lr=8e-3, muon_momentum=0.9),
}


def _optim(arch: Arch, size: str) -> OptimConfig:
    """The paper's Table 'Optimization Parameters': only GPT has weight decay and warmup.

    Except in the sizes whose values were found by a sweep for each model.
    """
    if size in TUNED:
        return _TUNED_OPTIM[arch, size]
    lr = {"debug": 4e-3 if arch == "gpt" else 1e-2, "7b-4k": 3e-4}.get(size, 1e-3)
    if arch == "ngpt":
        return OptimConfig(lr=lr)
    warmup_steps = {"debug": 2, "small": 1000}.get(size, 2000)
    return OptimConfig(lr=lr, weight_decay=0.1, warmup_steps=warmup_steps)


def _model(arch: Arch, size: str) -> ModelConfig:
    """The shape of a size as a GPT or an nGPT, with its initial values.

    The paper's do not suit a few hundred steps of a narrow model. nGPT: the paper's s_z starts at
    1, which keeps logits within ±1; its alpha at 0.05, "in the order of 1/n_layers" of its 24
    layers. GPT: a deviation of 0.02 is meant for d_model of 1024 and more.
    docs/results/compare.md shows what they do to a short run.

    With Muon, a GPT is best with QK-norm and tied embeddings, and nGPT without ties.
    """
    model = dataclasses.replace(MODELS[size], arch=arch)
    changes: dict[str, Any] = {}
    if size in _STARTS:
        init, s_z = _STARTS[size]
        if arch == "gpt":
            changes = {"init_std": init / math.sqrt(model.d_model)}
        else:
            changes = dict.fromkeys(("alpha_attn", "alpha_mlp"), ScaleConfig(init=0.4))
            changes |= {"s_z": ScaleConfig(init=s_z)}
    if (arch, size) == ("gpt", "nano-muon"):
        changes |= {"gpt_qk_norm": True, "tie_embeddings": True}
    elif (arch, size) == ("ngpt", "1b-8k"):
        # "the increasing sensitivity of the 1B nGPT model on 8k": the paper stores alpha at 0.1.
        changes = dict.fromkeys(("alpha_attn", "alpha_mlp"), ScaleConfig(scale=0.1))
    return dataclasses.replace(model, **changes)


def names() -> list[str]:
    """The names of all presets."""
    return [f"{arch}-{size}" for arch in ARCHS for size in MODELS]


def as_option(word: str) -> str | None:
    """The option that a bare word was meant as: --preset, if it names one."""
    return f"--preset {word}" if word in names() or word in MODELS else None


def of_size(size: str, arch: Arch) -> RunConfig:
    """The preset of a size, such as nano, for one architecture."""
    if size not in MODELS:
        first, _, rest = size.partition("-")
        bare = rest if first in ARCHS else size
        raise UserError(f"unknown preset {size!r}; {nearest(bare, MODELS)}")
    return get(f"{arch}-{size}")


def under(toml: str | Path | None, arch: str | None = None) -> RunConfig:
    """The configuration that a TOML file overrides if no preset is named: nano, as a GPT if the
    file says so.

    In a file that describes a whole model, like the config.toml of a run, unset initial values are
    the paper's, not those of nano.

    `arch` is the architecture given by a flag, which takes precedence.
    """
    model = {} if toml is None else toml_values(toml).get("model")
    if not isinstance(model, dict):
        model = {}
    preset = get("nano", "gpt" if (arch or model.get("arch")) == "gpt" else "ngpt")
    if model.keys() >= WHOLE_MODEL:
        return dataclasses.replace(preset, model=ModelConfig(arch=preset.model.arch))
    return preset


def get(name: str, arch: Arch = "ngpt") -> RunConfig:
    """The preset called `name`; without `gpt-` or `ngpt-`, that of `arch`."""
    if not isinstance(name, str):
        raise UserError(f"a preset has a name, such as ngpt-nano, not {name!r}")
    full = name if name.partition("-")[0] in ARCHS else f"{arch}-{name}"
    arch = "gpt" if full.startswith("gpt") else "ngpt"
    size = full.partition("-")[2]
    if size not in MODELS:
        raise UserError(f"unknown preset {name!r}; {nearest(size, MODELS, f'{arch}-')}")
    model, train = _model(arch, size), TRAINING.get(size, PAPER_TRAINING)
    if train is PAPER_TRAINING:
        train = dataclasses.replace(train, micro_batch_size=max(1, 32768 // model.context))
    return RunConfig(model=model, optim=_optim(arch, size), train=train)
