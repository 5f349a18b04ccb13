"""`spherelm generate`: text from a trained model, shown as it is generated."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from spherelm.cli import ask
from spherelm.cli.saved_model import ModelsFlags, parse_for_model
from spherelm.console import show
from spherelm.errors import UserError, or_say
from spherelm.generation.settings import Sampling
from spherelm.validate import FromZero, check_fields

if TYPE_CHECKING:
    from spherelm.data.tokenizer import Tokenizer
    from spherelm.generation.engine import Engine

ENCODING = "utf-8-sig"
"""Of prompts: UTF-8 without the byte order mark that some editors write, as in `prepare`."""


@dataclass(frozen=True, kw_only=True)
class GenerateFlags(Sampling, ModelsFlags):
    """Continue one or more prompts.

    Without a flag for prompts, the prompt is read from a pipe; on a terminal you are asked for one
    prompt after another.

        spherelm generate runs/mine --prompt "The sphere"
    """

    run: tyro.conf.Positional[str]
    """A run directory (its newest checkpoint), a checkpoint, or an exported folder."""
    prompt: tuple[str, ...] = ()
    """Text to continue; several are continued together. An empty one begins a new document."""
    prompts: str | None = None
    """A file with a prompt on each line, instead of --prompt."""
    prompt_file: str | None = None
    """A file whose whole text is one prompt, without the end of its last line."""
    max_new_tokens: FromZero = 128
    """Add at most this many tokens."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; they are not shown."""
    compile: bool = False
    """Compile the decode step: a wait at the start, faster tokens (CUDA)."""
    json: bool = False
    """Print one JSON object at the end instead of text as it is generated."""

    def __post_init__(self) -> None:
        check_fields(self, "--")


def main(argv: list[str]) -> int:
    flags = parse_for_model(
        GenerateFlags, argv, "generate", meant=lambda word: f"--prompt {shlex.quote(word)}"
    )
    prompts = _given_prompts(flags)

    from spherelm.generation.engine import Engine
    from spherelm.saved import load_model, to_device

    device, dtype = flags.execution()
    model, tokenizer, _ = load_model(flags.run, flags.tokenizer)
    engine = Engine(to_device(model, device, folded=dtype), dtype, compile=flags.compile)
    writer = _Writer(flags, engine, tokenizer)
    if prompts is None and not flags.json and ask.is_terminal():
        ask.ask(writer.answer)
        return 0
    return writer.write((_read_stdin(),) if prompts is None else prompts)


@dataclass
class _Writer:
    """Continues prompts with one model."""

    flags: GenerateFlags
    engine: Engine
    tokenizer: Tokenizer
    noted: bool = False
    """Whether the note that the text exceeds the context has been printed."""

    def write(self, prompts: tuple[str, ...]) -> int:
        """Continue all prompts together and print them in the form the flags ask for."""
        began = time.perf_counter()
        pieces = self._pieces(prompts, self.flags)
        if len(prompts) == 1 and not self.flags.json:
            _show(prompts[0], pieces)
        else:
            texts = [""] * len(prompts)
            for i, piece in pieces:
                texts[i] += piece
            outputs = [{"prompt": p, "text": t} for p, t in zip(prompts, texts, strict=True)]
            seconds = round(time.perf_counter() - began, 3)
            result = {"run": self.flags.run, "outputs": outputs, "seconds": seconds}
            whole = "\n\n".join(o["prompt"] + o["text"] for o in outputs)
            show(result, self.flags.json, lambda: print(whole))
        self._note_length(prompts)
        return 0

    def answer(self, prompt: str, number: int) -> None:
        """Continue a prompt typed on the terminal; its number changes the seed, so that the same
        prompt typed twice may continue differently."""
        seed = (self.flags.seed + number) % 2**64
        _show(prompt, self._pieces((prompt,), dataclasses.replace(self.flags, seed=seed)))
        self._note_length((prompt,))

    def _pieces(self, prompts: tuple[str, ...], sampling: Sampling) -> Iterator[tuple[int, str]]:
        from spherelm.generation.text import stream_text

        return stream_text(
            self.engine,
            self.tokenizer,
            self._ids(prompts),
            max_new_tokens=self.flags.max_new_tokens,
            sampling=sampling,
            stop=self.flags.stop,
        )

    def _ids(self, prompts: tuple[str, ...]) -> list[list[int]]:
        from spherelm.generation.text import encode_prompt

        return [encode_prompt(self.tokenizer, prompt) for prompt in prompts]

    def _note_length(self, prompts: tuple[str, ...]) -> None:
        longest = max(map(len, self._ids(prompts))) + self.flags.max_new_tokens
        context = self.engine.model.config.context
        if longest > context and not self.noted:
            self.noted = True
            print(
                f"note: the text may grow to {longest} tokens, beyond the context of {context} of "
                "training",
                file=sys.stderr,
            )


def _show(prompt: str, pieces: Iterator[tuple[int, str]]) -> None:
    first = next(pieces, (0, ""))  # raises for a bad prompt before anything is printed
    print(prompt, end="", flush=True)
    for _, piece in itertools.chain([first], pieces):
        print(piece, end="", flush=True)
    print()


def _given_prompts(flags: GenerateFlags) -> tuple[str, ...] | None:
    """The prompts given by flags; None if they are to be read from the terminal or a pipe."""
    ways = {
        "--prompt": flags.prompt,
        "--prompts": flags.prompts,
        "--prompt-file": flags.prompt_file,
    }
    used = [flag for flag, value in ways.items() if value]
    if len(used) > 1:
        raise UserError(f"{' and '.join(used)} cannot be given together; give one of them")
    if flags.prompt_file is not None:
        return (_without_last_newline(_read(flags.prompt_file, "a prompt")),)
    if flags.prompts is None:
        return flags.prompt or None
    lines = _read(flags.prompts, "prompts")
    if not lines:
        raise UserError(f"{flags.prompts} is empty; give it a prompt on each line")
    # Only \n ends a line, as in `prepare`: splitlines() would cut at a form feed and U+2028, too.
    return tuple(line.removesuffix("\r") for line in lines.removesuffix("\n").split("\n"))


def _read(file: str, what: str) -> str:
    try:
        with or_say(f"cannot read {what} from {file}"):
            return Path(file).read_bytes().decode(ENCODING)
    except UnicodeDecodeError as error:
        raise _not_text(file, error) from None


def _read_stdin() -> str:
    """All that is piped in; on a terminal nothing, which begins a new document."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    try:
        return _without_last_newline(sys.stdin.buffer.read().decode(ENCODING))
    except UnicodeDecodeError as error:
        raise _not_text("stdin", error) from None


def _not_text(name: str, error: UnicodeDecodeError) -> UserError:
    return UserError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}; convert it")


def _without_last_newline(text: str) -> str:
    """Without the final line end, which `echo` and editors add."""
    return text.removesuffix("\n").removesuffix("\r")
