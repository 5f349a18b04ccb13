"""`spherelm bench decode`: tokens per second and time to the first token, GPT beside nGPT.

    spherelm bench decode --size 0.5b-1k

A token of one sequence needs every weight once, except the input embedding, so memory speed sets a
bound: bytes of weights divided by the speed of a copy, which is measured in the same run.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass

import torch
from torch.utils._pytree import tree_leaves

from spherelm import presets
from spherelm.bench.flags import DecodeFlags as Flags
from spherelm.bench.flags import DecodeMode as Mode
from spherelm.bench.report import Report, Table, environment, measuring
from spherelm.bench.timing import copy_speed
from spherelm.generation.engine import Engine
from spherelm.generation.settings import Sampling
from spherelm.model.config import Arch
from spherelm.model.transformer import Transformer
from spherelm.ops.device import choose_device


@dataclass(frozen=True)
class DecodeResult:
    """Speed of one model in one mode of execution."""

    size: str
    arch: Arch
    mode: Mode
    batch: int
    tokens_per_s: float
    """Steps per second times sequences."""
    step_ms: float
    weight_bytes: int
    """Bytes read in every step."""
    bound_step_ms: float
    """The time to read weight_bytes at the speed of a copy."""
    first_token_ms: dict[int, float]
    """By prompt length."""

    @property
    def share_of_bound(self) -> float:
        return self.bound_step_ms / self.step_ms


def run(flags: Flags) -> Report:
    """Measure every mode of both models."""
    device = choose_device(flags.device, "--device")
    on_cuda = device.type == "cuda"
    size = ("0.5b-1k" if on_cuda else "nano") if flags.size is None else flags.size
    modes = flags.modes or (("fused", "compiled", "graph") if on_cuda else ("eager",))
    speed = copy_speed(device)
    results = [
        measure(size, arch, mode, flags, device, speed) for mode in modes for arch in flags.archs
    ]
    firsts = [f"first of {length:,} ms" for length in flags.prompts]
    columns = ["", "tokens/s", "step ms", "bound ms", "share of bound", *firsts]
    rows = [
        [
            f"{r.arch} {r.mode}",
            f"{r.tokens_per_s:,.0f}",
            f"{r.step_ms:.3f}",
            f"{r.bound_step_ms:.3f}",
            f"{r.share_of_bound:.1%}",
            *(f"{r.first_token_ms[length]:.1f}" for length in flags.prompts),
        ]
        for r in results
    ]
    title = f"decode {size}, batch {flags.batch}, copy {speed / 1e12:.2f} TB/s"
    decoded = [{**asdict(r), "share_of_bound": r.share_of_bound} for r in results]
    numbers = {"copy_bytes_per_s": speed, "decode": decoded}
    return Report(environment(device), numbers, [Table(title, columns, rows)])


def measure(
    size: str, arch: Arch, mode: Mode, flags: Flags, device: torch.device, speed: float
) -> DecodeResult:
    """Build one model with fresh weights and time its generation."""
    config = presets.of_size(size, arch).model
    measuring(f"{arch} {mode}")
    torch.compiler.reset()
    with torch.device("meta"):
        model = Transformer(config)
    model.to_empty(device=device)
    model.reset_parameters()
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    engine = Engine(
        model,
        dtype,
        compile=mode == "compiled",
        fused=mode == "fused",
        cuda_graphs=mode != "eager",
    )
    del model
    one, many = (
        _seconds(engine, flags.batch, flags.prompt, n, flags.repeats) for n in (1, flags.new)
    )
    step = (many - one) / (flags.new - 1)
    weights = weight_bytes(engine)
    return DecodeResult(
        size=size,
        arch=arch,
        mode=mode,
        batch=flags.batch,
        tokens_per_s=flags.batch / step,
        step_ms=step * 1e3,
        weight_bytes=weights,
        bound_step_ms=weights / speed * 1e3,
        first_token_ms={
            length: 1e3 * _seconds(engine, 1, length, 1, flags.repeats) for length in flags.prompts
        },
    )


def weight_bytes(engine: Engine) -> int:
    """Bytes that a step reads: every tensor except the input embedding."""
    folded = engine.model
    read = [folded.output_embedding(folded.dtype), folded.final_norm and folded.final_norm.gain]
    for block in folded.layers:
        held = [block.attention.weights(folded.dtype), block.mlp.weights(folded.dtype)]
        read += tree_leaves([*held, *block.parameters(), *block.buffers()])
    return sum(t.nbytes for t in read if isinstance(t, torch.Tensor) and not t.is_meta)


def _seconds(engine: Engine, batch: int, prompt: int, new: int, repeats: int) -> float:
    """The median time of one generation, from prompts on the host to tokens on the host."""
    vocabulary = engine.model.config.vocab_size
    prompts = [[(7 * i + row) % vocabulary for i in range(prompt)] for row in range(batch)]

    def once() -> float:
        began = time.perf_counter()
        engine.generate(prompts, max_new_tokens=new, sampling=Sampling(temperature=0))
        return time.perf_counter() - began

    once()  # compiles and captures
    return statistics.median(once() for _ in range(repeats))
