"""What people get wrong with the public API, as data: each raises a `UserError` of one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spherelm
from spherelm.config import DataConfig, OptimConfig, ParallelConfig, TrainConfig
from spherelm.config_io import read_toml
from spherelm.data.open import open_dataset
from spherelm.data.prepare import PrepareConfig
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.hf.export import export_to_hf
from spherelm.hf.import_run import import_from_hf
from spherelm.saved import load_model
from tests.model.tiny import tiny_config

NO_NAMES: tuple[Any, ...] = (None, 3, 2.5, ["a"], b"a", object())
NO_NUMBERS: tuple[Any, ...] = (None, "3", [3], float("nan"), -1)
NO_CHOICES: tuple[Any, ...] = (None, 3, "loud", ["lerp"])
NO_SWITCHES: tuple[Any, ...] = (None, 1, "yes")


@dataclass(frozen=True)
class BadCall:
    """A call, and what is said of it."""

    id: str
    call: Callable[[], object]
    says: str


def calls() -> Iterator[BadCall]:
    """The whole table."""
    yield from _configs()
    yield from _models()
    for value in NO_NAMES:
        for function in (load_model, spherelm.load, load_tokenizer, spherelm.presets.get):
            yield _call(function, value, says="")
        yield _call(read_toml, value, spherelm.RunConfig(), says="a config is named by its file")
        yield _call(export_to_hf, value, "out", says="a model is named by its folder")
        yield _call(import_from_hf, value, "out", says="a model is named by its folder")
        if value is not None:  # random weights
            begin = functools.partial(spherelm.train, "ngpt-debug", "data", "new", init_from=value)
            yield BadCall(
                f"train init_from={value!r}"[:40], begin, "a model is named by its folder"
            )
        if value is not None:  # the built-in corpus
            yield _call(open_dataset, value, says="data is named by its folder")
        yield _call(PrepareConfig, value, Path("out"), says="must be tuples of names")
        yield _call(PrepareConfig, (value,), Path("out"), says="must be tuples of names")
        yield _call(PrepareConfig, ("text.txt",), value, says="out must be a Path")


def _configs() -> Iterator[BadCall]:
    makers: dict[Callable[..., Any], dict[str, tuple[Any, ...]]] = {
        spherelm.ModelConfig: {
            **dict.fromkeys(("vocab_size", "d_model", "n_layers", "n_heads"), NO_NUMBERS),
            **dict.fromkeys(("context", "rope_base"), NO_NUMBERS),
            **dict.fromkeys(("n_kv_heads", "d_mlp"), NO_NUMBERS[1:]),
            **dict.fromkeys(("arch", "update"), NO_CHOICES),
            **dict.fromkeys(("qk_norm", "signed_alpha", "tie_embeddings"), NO_SWITCHES),
            **dict.fromkeys(("alpha_attn", "s_qk", "s_z"), (None, 3, "x", {"init": 1})),
        },
        OptimConfig: dict.fromkeys(("lr", "weight_decay", "beta1", "eps", "grad_clip"), NO_NUMBERS),
        TrainConfig: {
            **dict.fromkeys(("steps", "batch_size", "seed", "keep_last"), NO_NUMBERS),
            **dict.fromkeys(("precision", "attention", "weight_storage"), NO_CHOICES),
            **dict.fromkeys(("compile", "tensorboard"), NO_SWITCHES),
            "device": (None, 3),
            "wandb_project": (3, ["p"]),
        },
        DataConfig: {"path": (3, "", ["a"]), "within_documents": NO_SWITCHES},
        ParallelConfig: dict.fromkeys(("tensor", "replicate"), NO_NUMBERS),
        spherelm.RunConfig: dict.fromkeys(
            ("model", "optim", "data", "train", "parallel"), (None, 3, {}, "ngpt")
        ),
    }
    for maker, fields in makers.items():
        for name, values in fields.items():
            for value in values:
                yield _call(maker, says=name, **{name: value})
    for fields_of_scale in ({"init": "x"}, {"scale": -1.0}, {"mode": None}, {"init": True}):
        scale = spherelm.ScaleConfig(**fields_of_scale)  # type: ignore[arg-type]
        yield _call(spherelm.ModelConfig, says="s_z.", s_z=scale)


def _models() -> Iterator[BadCall]:
    model = spherelm.Transformer(tiny_config())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.zeros(1, 4, dtype=torch.long)
    strange: tuple[Any, ...] = (None, 3, "x", {}, [])
    for value in strange:
        yield _call(spherelm.Transformer, value, says="is made from a ModelConfig")
        yield _call(spherelm.retract_, value, says="must be a torch.nn.Module")
        yield _call(spherelm.AdamW, value, lr=0.1, says="must be a torch.nn.Module")
        yield _call(spherelm.attach_retraction, optimizer, value, says="must be a torch.nn.Module")
        yield _call(model, value, says="tokens must be a torch.Tensor")
        yield _call(model.loss, ids, value, says="targets must be a torch.Tensor")
        yield _call(model.loss, value, ids, says="tokens must be a torch.Tensor")
        if value != 3:
            yield _call(model.extend_context, value, says="length must be a whole number")
    for value in (None, 3, [None], [3], ["x"]):
        yield _call(spherelm.attach_retraction, value, model, says="optimizer")
    yield _call(spherelm.attach_retraction, model, optimizer, says="not Transformer first")
    for function in (spherelm.load, spherelm.generate):
        yield _call(function, model, says="a model is named by its folder, not Transformer(")
    for value in (None, "ngpt-nano", model, model.config):
        yield _call(spherelm.recommend, value, says="give a spherelm.RunConfig, not")
    for other in (nn.Linear(2, 2), nn.Identity()):
        yield _call(spherelm.retract_, other, says="holds no matrices of spherelm's")
        yield _call(spherelm.AdamW, other, lr=0.1, says="holds no matrices of spherelm's")
        yield _call(spherelm.attach_retraction, optimizer, other, says="holds no matrices")
    for value in NO_NUMBERS:
        yield _call(spherelm.AdamW, model, lr=value, says="lr must be")
        yield _call(spherelm.AdamW, model, lr=0.1, eps=value, says="eps must be")
        yield _call(spherelm.AdamW, model, lr=0.1, betas=(0.9, value), says="betas must be")
        yield _call(spherelm.AdamW, model, lr=0.1, betas=value, says="betas must be")
        yield _call(spherelm.cosine_schedule, value, steps=5, peak=1.0, says="step must be")
        yield _call(spherelm.cosine_schedule, 0, steps=value, peak=1.0, says="steps must be")
        yield _call(spherelm.cosine_schedule, 0, steps=5, peak=value, says="peak must be")
    yield _call(model, torch.zeros(1, 4), says="must be ids of dtype torch.long")
    yield _call(model, torch.zeros(4, dtype=torch.long), says="must be a non-empty (batch, time)")
    yield _call(model, torch.zeros(0, 4, dtype=torch.long), says="must be a non-empty")
    yield _call(model, torch.full((1, 4), 99), says="tokens must be ids from 0 to")
    yield _call(model, torch.full((1, 4), -1), says="tokens must be ids from 0 to")
    yield _call(model.loss, ids, torch.full((1, 4), 99), says="targets must be ids from 0 to")
    yield _call(model.loss, ids, ids[:, :2], says="targets must have the shape of tokens")
    yield _call(model, torch.zeros(1, 999, dtype=torch.long), says="longer than the context")


def _call(function: Callable[..., Any], *arguments: Any, says: str, **named: Any) -> BadCall:
    name = getattr(function, "__name__", type(function).__name__)
    given = [_shown(a) for a in arguments] + [f"{k}={_shown(v)}" for k, v in named.items()]
    return BadCall(f"{name}({', '.join(given)})", lambda: function(*arguments, **named), says)


def _shown(value: object) -> str:
    plain = isinstance(value, (int, float, str, bytes, list, tuple, dict)) or value is None
    return repr(value)[:40] if plain else type(value).__name__
