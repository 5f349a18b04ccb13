"""Flags of the benchmarks, in a module of their own so that their help needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tyro

from spherelm.errors import UserError
from spherelm.model.config import Arch
from spherelm.ops.names import AttentionBackend
from spherelm.validate import check_fields, require_int

StepMode = Literal["kernels", "fp8", "kernels-eager", "compiled", "compiled-model", "reference"]
DecodeMode = Literal["fused", "compiled", "graph", "eager"]

SEQUENCE = 1024
"""Sequence length in tokens where operations are timed alone."""


@dataclass(frozen=True, kw_only=True)
class BenchFlags:
    """Flags of every benchmark."""

    json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        check_fields(self, "--")


@dataclass(frozen=True, kw_only=True)
class DeviceFlags(BenchFlags):
    """Flags of a benchmark of a device."""

    device: str = "auto"
    """cpu, cuda, or auto for the fastest there is."""
    repeats: int = 20
    """How many repetitions are timed, after some warm-up."""


@dataclass(frozen=True, kw_only=True)
class ArchFlags(DeviceFlags):
    """Flags of a benchmark of models."""

    archs: tuple[Arch, ...] = ("gpt", "ngpt")
    """Which models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.archs:
            raise UserError("--archs needs gpt, ngpt or both")


@dataclass(frozen=True)
class StepFlags(ArchFlags):
    """Time, throughput and memory of a training step, GPT beside nGPT."""

    sizes: tuple[str, ...] = ()
    """Presets without gpt- or ngpt-, such as 0.5b-1k. Unset: 0.5b-1k on CUDA, else nano."""
    modes: tuple[StepMode, ...] = ()
    """Ways to execute a step. Unset: kernels, compiled and reference on CUDA, else reference."""
    tokens: int | None = None
    """Tokens per step. Unset: 32768 on CUDA, else the preset's."""
    attention: AttentionBackend = "auto"
    """Which attention to use; auto takes the fastest that applies."""
    cuda_graphs: bool = True
    """Whether passes with our kernels are launched as CUDA graphs, as in training on one GPU."""


@dataclass(frozen=True)
class KernelsFlags(DeviceFlags):
    """Time of each fused operation: kernel beside plain PyTorch, eager and compiled."""

    tokens: int | None = None
    """Tokens of the batch, in sequences of 1024 or in a single shorter one. Unset: 32768 on CUDA,
    else 1024."""
    d_model: int | None = None
    """Width of the model, in heads of 64. Unset: 1024 on CUDA, else 128."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model is not None and self.d_model % 64:
            raise UserError(f"--d-model must be a multiple of 64, not {self.d_model}")
        if self.tokens is not None and self.tokens > SEQUENCE and self.tokens % SEQUENCE:
            raise UserError(
                f"--tokens must be a multiple of {SEQUENCE}, or below it, not {self.tokens}"
            )


@dataclass(frozen=True)
class DecodeFlags(ArchFlags):
    """Speed of generation against the bound set by memory speed, GPT beside nGPT."""

    size: str | None = None
    """A preset without gpt- or ngpt-. Unset: 0.5b-1k on CUDA, else nano."""
    modes: tuple[DecodeMode, ...] = ()
    """As a CUDA graph: our kernels (fused), torch.compile (compiled), plain PyTorch (graph); no
    graph: plain PyTorch (eager). Unset: the first three on CUDA, else eager."""
    batch: int = 1
    """Sequences at once."""
    new: int = 256
    """Tokens to add."""
    prompt: int = 128
    """Length in tokens of the prompt they are added to."""
    prompts: tuple[int, ...] = (1024, 8192)
    """Lengths of prompts for the time to the first token."""
    repeats: int = 5
    """Generations that are timed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("--new", self.new, at_least=2)  # the first token is timed apart from the others


@dataclass(frozen=True)
class DataFlags(BenchFlags):
    """Speed of the loader on one core, and of `prepare` beside the bare tokenizer library."""

    text: str | None = None
    """Text file to tokenize. Unset: the built-in corpus."""
    tokenizer: str | None = None
    """Tokenizer of the `tokenizers` library. Unset: a BPE trained on the built-in corpus."""
    seconds: float = 2.0
    """Time of each round of the loader."""
    rounds: int = 3
    """Rounds of tokenizing; the best one counts."""
    workers: int | None = None
    """Processes of `prepare` and threads of the library. Unset: all cores."""


@dataclass(frozen=True, kw_only=True)
class RoundingFlags(BenchFlags):
    """Shares of numbers that rounding to eight bits turns into zero or the largest value."""

    models: tyro.conf.Positional[tuple[str, ...]]
    """Runs or checkpoints."""
    data: str | None = None
    """Tokens to compute with. Unset: the run's own validation data."""
    sequences: int = 8
    """Sequences in the batch."""
    device: str = "auto"
    """cpu, cuda, or auto for the fastest there is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UserError("name a run, or a checkpoint of one")
