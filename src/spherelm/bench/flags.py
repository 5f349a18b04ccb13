"""Flags of the benchmarks; apart, so that their help needs no torch."""

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
"""Tokens of a sequence whose operations are timed alone."""


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
    """How many runs are timed, after some that are not."""


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
    """Presets without their gpt- or ngpt-, such as 0.5b-1k. Unset: 0.5b-1k on CUDA, else nano."""
    modes: tuple[StepMode, ...] = ()
    """Ways to execute them. Unset: kernels, compiled and reference on CUDA, else reference."""
    tokens: int | None = None
    """Tokens a step. Unset: 32768 on CUDA, else the preset's."""
    attention: AttentionBackend = "auto"
    """Which attention to use; auto takes the fastest that applies."""
    cuda_graphs: bool = True
    """Whether passes with our kernels are launched as CUDA graphs, as in training on one GPU."""


@dataclass(frozen=True)
class KernelsFlags(DeviceFlags):
    """Time of each fused operation: kernel beside plain PyTorch, eager and compiled."""

    tokens: int | None = None
    """Tokens of the batch, in sequences of 1024, or in a shorter one. Unset: 32768 on CUDA, else
    1024."""
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
    """Speed of generation against the bound that the memory sets, GPT beside nGPT."""

    size: str | None = None
    """A preset without its gpt- or ngpt-. Unset: 0.5b-1k on CUDA, else nano."""
    modes: tuple[DecodeMode, ...] = ()
    """As a CUDA graph: our kernels (fused), torch.compile (compiled), plain PyTorch (graph); eager:
    plain PyTorch as it is. Unset: the first three on CUDA, else eager."""
    batch: int = 1
    """Sequences at once."""
    new: int = 256
    """Tokens to add."""
    prompt: int = 128
    """Tokens of the prompt they are added to."""
    prompts: tuple[int, ...] = (1024, 8192)
    """Lengths of prompts for the time to the first token."""
    repeats: int = 5
    """Generations that are timed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_int("--new", self.new, at_least=2)  # the first token and the others are told apart


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
    """Rounds of tokenizing, of which the best counts."""
    workers: int | None = None
    """Processes of `prepare` and threads of the library. Unset: all cores."""


@dataclass(frozen=True, kw_only=True)
class RoundingFlags(BenchFlags):
    """Shares of zeros and of largest numbers among the operands of eight-bit products."""

    models: tyro.conf.Positional[tuple[str, ...]]
    """Runs, or checkpoints of one."""
    data: str | None = None
    """Tokens to compute with. Unset: the run's own validation data."""
    sequences: int = 8
    """How many sequences, in one batch."""
    device: str = "auto"
    """cpu, cuda, or auto for the fastest there is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.models:
            raise UserError("name a run, or a checkpoint of one")
