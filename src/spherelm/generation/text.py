"""Text in, text out: prompts to tokens, tokens to text as they arrive, stop strings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError, shortened
from spherelm.generation.engine import Engine
from spherelm.generation.settings import PLAIN, Sampling

INCOMPLETE = "\ufffd"
"""Stands for a character of which only some bytes have arrived."""
MOST, KEPT = 64, 16
"""Most tokens decoded at a time, and how many of them stay as context for later ones. From some
thousand tokens on, decoding the whole text for each token would be slower than the model."""


class TextStream:
    """Turns one sequence's tokens into text, and finds where it stops.

    Text is held back while it may still change: an incomplete character, or what may be the
    beginning of a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        # New tokens are decoded after the prompt: some tokenizers treat a first word differently.
        self._ids = list(prompt)
        self._start = len(tokenizer.decode(self._ids))
        self._settled = ""
        self._shown = 0
        self.text = ""
        self.stopped = False

    def push(self, token: int | None) -> str:
        """Add a token, or None for the end; returns the text that has become certain."""
        if token is None:
            self.stopped = True
            return self.finish()
        self._ids.append(token)
        self.text = self._settled + self._tokenizer.decode(self._ids)[self._start :]
        if len(self._ids) > MOST and not self.text.endswith(INCOMPLETE):
            self._settled, self._ids = self.text, self._ids[-KEPT:]
            self._start = len(self._tokenizer.decode(self._ids))
        found = [at for at in (self.text.find(s) for s in self._stop) if at >= 0]
        if found:
            self.stopped = True
            self.text = self.text[: min(found)]
            return self._show(len(self.text))
        return self._show(len(self.text.rstrip(INCOMPLETE)) - self._held_back())

    def finish(self) -> str:
        """No token will follow; returns the text that was held back."""
        return self._show(len(self.text))

    def _held_back(self) -> int:
        """The length of the longest end of the text that is the beginning of a stop string."""
        text = self.text.rstrip(INCOMPLETE)
        return max(
            (n for s in self._stop for n in range(1, len(s)) if text.endswith(s[:n])), default=0
        )

    def _show(self, until: int) -> str:
        piece = self.text[self._shown : until]
        self._shown = max(self._shown, until)
        return piece


def encode_prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a prompt; an empty one begins a new document."""
    try:
        text.encode()
    except UnicodeEncodeError:  # Python turns an invalid byte that was typed into a lone surrogate
        raise UserError(f"the prompt {shortened(text)} is not UTF-8") from None
    return tokenizer.encode(text) or [tokenizer.end_of_document]


def stream_text(
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling = PLAIN,
    stop: Sequence[str] = (),
) -> Iterator[tuple[int, str]]:
    """Pieces of text as they become certain, each with the number of its prompt.

    A sequence ends before the first stop string, or where the document ends.
    """
    if isinstance(stop, str):  # each letter would be taken for a stop string
        raise UserError(f"stop is a list of strings, such as [{stop!r}], not {stop!r}")
    if any(not s for s in stop):
        raise UserError("a stop string is empty; give it at least one character")
    streams = [TextStream(tokenizer, prompt, stop) for prompt in prompts]
    end = {tokenizer.end_of_document}
    for tokens in engine.stream(
        prompts, max_new_tokens=max_new_tokens, sampling=sampling, stop_ids=end
    ):
        for i, (stream, token) in enumerate(zip(streams, tokens, strict=True)):
            if not stream.stopped and (piece := stream.push(token)):
                yield i, piece
        if all(stream.stopped for stream in streams):
            return
    for i, stream in enumerate(streams):
        if piece := stream.finish():
            yield i, piece


def generate_text(
    engine: Engine,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    sampling: Sampling = PLAIN,
    stop: Sequence[str] = (),
) -> list[str]:
    """The continuation of each prompt."""
    texts = [""] * len(prompts)
    for i, piece in stream_text(
        engine, tokenizer, prompts, max_new_tokens=max_new_tokens, sampling=sampling, stop=stop
    ):
        texts[i] += piece
    return texts
