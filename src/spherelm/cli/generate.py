"""`spherelm generate`: text from a trained model, shown as it comes."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spherelm.cli.saved_model import ModelFlags, parse_for_model
from spherelm.console import show
from spherelm.errors import UserError
from spherelm.generation.settings import Sampling
from spherelm.validate import FromZero


@dataclass(frozen=True, kw_only=True)
class GenerateFlags(Sampling, ModelFlags):
    """Continue one or more prompts."""

    prompt: tuple[str, ...] = ()
    """Text to continue; several are continued together. Unset: a new document."""
    prompts: str | None = None
    """A file with a prompt on each line, instead of --prompt."""
    max_new_tokens: FromZero = 128
    """Tokens to add at most."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; they are not shown."""
    compile: bool = False
    """Compile the decode step: a wait at the start, faster tokens (CUDA)."""
    json: bool = False
    """Print one JSON object at the end instead of text as it comes."""


def main(argv: list[str]) -> int:
    flags = parse_for_model(GenerateFlags, argv, "generate")
    prompts = _prompts(flags)

    from spherelm.generation.engine import Engine
    from spherelm.generation.text import encode_prompt, stream_text
    from spherelm.saved import load_model, to_device

    device, dtype = flags.execution()
    model, tokenizer, _ = load_model(flags.run, flags.tokenizer)
    engine = Engine(to_device(model, device, folded=dtype), dtype, compile=flags.compile)
    ids = [encode_prompt(tokenizer, prompt) for prompt in prompts]
    began = time.perf_counter()
    new = flags.max_new_tokens
    pieces = stream_text(
        engine, tokenizer, ids, max_new_tokens=new, sampling=flags, stop=flags.stop
    )
    if len(prompts) == 1 and not flags.json:
        _show(prompts[0], pieces)
    else:
        texts = [""] * len(prompts)
        for i, piece in pieces:
            texts[i] += piece
        outputs = [{"prompt": p, "text": t} for p, t in zip(prompts, texts, strict=True)]
        seconds = round(time.perf_counter() - began, 3)
        result = {"run": flags.run, "outputs": outputs, "seconds": seconds}
        whole = "\n\n".join(o["prompt"] + o["text"] for o in outputs)
        show(result, flags.json, lambda: print(whole))
    longest, context = max(map(len, ids)) + new, engine.model.config.context
    if longest > context:
        print(f"note: up to {longest} tokens, beyond the context of {context}", file=sys.stderr)
    return 0


def _show(prompt: str, pieces: Iterator[tuple[int, str]]) -> None:
    first = next(pieces, (0, ""))  # what cannot be continued is refused before it is shown
    print(prompt, end="", flush=True)
    for _, piece in itertools.chain([first], pieces):
        print(piece, end="", flush=True)
    print()


def _prompts(flags: GenerateFlags) -> tuple[str, ...]:
    if flags.prompts is None:
        return flags.prompt or ("",)
    if flags.prompt:
        raise UserError("--prompt and --prompts cannot be given together; give one of them")
    try:
        lines = Path(flags.prompts).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read prompts from {flags.prompts}: {error}") from None
    if not lines:
        raise UserError(f"{flags.prompts} is empty; give it a prompt on each line")
    return tuple(lines)
