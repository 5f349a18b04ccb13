"""`spherelm generate`: text from a trained model, shown as it comes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from spherelm.cli.parse import parse
from spherelm.errors import UserError

if TYPE_CHECKING:
    import torch

    from spherelm.data.tokenizer import Tokenizer
    from spherelm.generate.engine import Engine

DTypeName = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class GenerateFlags:
    """Continue one or more prompts."""

    run: tyro.conf.Positional[str]
    """A run directory (its newest checkpoint), a checkpoint, or an exported folder."""
    prompt: tuple[str, ...] = ()
    """Text to continue; several are continued together. Unset: a new document."""
    prompts: str | None = None
    """A file with a prompt on each line, instead of --prompt."""
    max_new_tokens: int = 128
    """Tokens to add at most."""
    temperature: float = 1.0
    """Logits are divided by this; 0 always takes the most likely token."""
    top_k: int | None = None
    """Choose among the k most likely tokens only."""
    top_p: float | None = None
    """Choose among the most likely tokens whose probabilities sum to at least this."""
    min_p: float | None = None
    """Choose among tokens at least this times as likely as the most likely one."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that have occurred become less likely."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; they are not shown."""
    seed: int = 0
    """Seed of the choice."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is."""
    dtype: DTypeName = "auto"
    """Precision of products and cache; auto: bf16 on CUDA, fp32 elsewhere."""
    compile: bool = False
    """Compile the decode step: a wait at the start, faster tokens (CUDA)."""
    tokenizer: str | None = None
    """A tokenizer, where the run has none of its own."""
    json: bool = False
    """Print one JSON object at the end instead of text as it comes."""


def main(argv: list[str]) -> int:
    flags = parse(GenerateFlags, argv, "generate")
    prompts = _prompts(flags)

    from spherelm.generate.sampling import Sampling

    sampling = Sampling(
        flags.temperature, flags.top_k, flags.top_p, flags.min_p, flags.repetition_penalty
    )
    engine, tokenizer = _open(flags)
    context = engine.model.config.context
    longest = max(len(tokenizer.encode(p)) for p in prompts) + flags.max_new_tokens
    if longest > context:
        print(f"note: {longest} tokens go beyond the context of {context}", file=sys.stderr)

    from spherelm.generate.text import stream_text

    began = time.perf_counter()
    pieces = stream_text(
        engine,
        tokenizer,
        prompts,
        max_new_tokens=flags.max_new_tokens,
        sampling=sampling,
        seed=flags.seed,
        stop=flags.stop,
    )
    if len(prompts) == 1 and not flags.json:
        _show(prompts[0], pieces)
        return 0
    texts = [""] * len(prompts)
    for i, piece in pieces:
        texts[i] += piece
    seconds = time.perf_counter() - began
    if flags.json:
        pairs = zip(prompts, texts, strict=True)
        outputs = [{"prompt": prompt, "text": text} for prompt, text in pairs]
        print(json.dumps({"run": flags.run, "outputs": outputs, "seconds": round(seconds, 3)}))
    else:
        print("\n\n".join(p + t for p, t in zip(prompts, texts, strict=True)))
    return 0


def _show(prompt: str, pieces: Iterator[tuple[int, str]]) -> None:
    print(prompt, end="", flush=True)
    for _, piece in pieces:
        print(piece, end="", flush=True)
    print()


def _prompts(flags: GenerateFlags) -> tuple[str, ...]:
    if flags.prompts is None:
        return flags.prompt or ("",)
    if flags.prompt:
        raise UserError("--prompt and --prompts exclude each other; give one of them")
    try:
        lines = Path(flags.prompts).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read prompts from {flags.prompts}: {error}") from None
    if not lines:
        raise UserError(f"{flags.prompts} is empty; give it a prompt on each line")
    return tuple(lines)


def _open(flags: GenerateFlags) -> tuple[Engine, Tokenizer]:
    from spherelm.exchange.load import load_model
    from spherelm.generate.engine import Engine
    from spherelm.train.device import choose_device

    device = choose_device(flags.device)
    model, tokenizer, _ = load_model(flags.run, flags.tokenizer)
    dtype = inference_dtype(flags.dtype, device.type)
    return Engine(model.to(device), dtype, compile=flags.compile), tokenizer


def inference_dtype(name: DTypeName, device: str) -> torch.dtype:
    """The precision called `name`."""
    import torch

    if name == "auto":
        name = "bf16" if device == "cuda" else "fp32"
    return torch.bfloat16 if name == "bf16" else torch.float32
