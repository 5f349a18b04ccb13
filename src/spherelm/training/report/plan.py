"""What a run will cost, before it starts: parameters, FLOPs, memory and expected time."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from spherelm.config import RunConfig
from spherelm.config_io import override, to_dict, to_toml
from spherelm.console import format_count, format_flops, format_seconds
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import WindowReader
from spherelm.free_memory import free_memory, gib
from spherelm.model.flops import count_parameters, flops_per_token
from spherelm.ops.device import choose_device, in_precision, uses_bf16
from spherelm.training.build import build_model, check_data, check_eight_bits
from spherelm.training.memory import check_fits, training_memory


def print_plan(
    run: RunConfig, dataset: TokenDataset, as_json: bool, init_from: Path | None = None
) -> None:
    """Print the configuration, its cost, and the model it begins with; writes nothing."""
    plan = make_plan(run, dataset, lambda line: print(line, file=sys.stderr, flush=True))
    if init_from is not None:
        plan["init_from"] = str(init_from)
    if as_json:
        print(json.dumps(plan))
        return
    print(to_toml(run))
    rows = {} if init_from is None else {"begins with": str(init_from)}
    rows |= {
        "parameters": format_count(plan["parameters"]),
        "FLOPs per token": format_flops(plan["flops_per_token"]),
        "tokens": f"{format_count(plan['tokens'])}, {plan['epochs']:.2f} epochs of the data",
        "FLOPs of the run": format_flops(plan["flops"]),
        "memory": _memory(plan["training_memory_bytes"], plan["free_memory_bytes"]),
        "expected time": f"{format_seconds(plan['expected_seconds'])} on {plan['device']}, "
        f"{format_count(plan['tokens_per_second'])} tokens/s",
    }
    for name, value in rows.items():
        print(f"{name:<17} {value}")


def make_plan(
    run: RunConfig, dataset: TokenDataset, say: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """The numbers of a plan; `say` gets a message if measuring takes a while."""
    device = choose_device(run.train.device)
    check_data(run, dataset)
    check_eight_bits(run, device)
    windows = WindowReader(dataset.train, run.model.context).n_windows
    speed = measure_speed(run, device, say)
    per_token = flops_per_token(run.model)
    return {
        "config": to_dict(run),
        "parameters": count_parameters(run.model).total,
        "flops_per_token": per_token,
        "tokens": run.tokens,
        "epochs": run.train.steps * run.train.batch_size / windows,
        "flops": per_token * run.tokens,
        "training_memory_bytes": training_memory(run).total,
        "free_memory_bytes": free_memory(device),
        "device": str(device),
        "tokens_per_second": speed,
        "expected_seconds": run.tokens / speed,
    }


def _memory(needed: int, free: int | None) -> str:
    """What one device needs; less may be free, since a cluster's run can be planned here."""
    here = f", but {gib(free)} are free here" if free is not None and free < needed else ""
    return f"{gib(needed)} on one device{here}"


PASSES = 3
"""The most passes; the fastest counts."""
PATIENCE = 5.0
"""The most seconds that a pass should take."""
ENOUGH = 1.0
"""Seconds after which no further pass is needed: times this long vary little."""
SHARE = 0.25
"""The least share of a large product's speed that a long training step reaches."""
FEWEST = 64
"""The fewest tokens of a sequence to measure."""


def measure_speed(
    run: RunConfig, device: torch.device, say: Callable[[str], None] = lambda line: None
) -> float:
    """Tokens per second of forward and backward, from a model of one layer and one of two.

    If that would take long, as with 7B parameters on a CPU, shorter sequences are measured instead,
    assuming the same FLOPs per second, and `say` gets a message.
    """
    part = _part(run, SHARE * PATIENCE * product_speed(device))
    for layers in (1, 2):
        check_fits(override(part, {"model.n_layers": layers}), device)
    if part.model.context < run.model.context:
        say(
            f"measuring {part.model.context} of {run.model.context} tokens on {device}, since all "
            "would take long"
        )
    one, two = (_seconds(run, part, layers, device) for layers in (1, 2))
    per_layer = max(0.0, two - one)
    return run.model.context / (one + per_layer * (run.model.n_layers - 1))


def flops_to_measure(run: RunConfig) -> float:
    """The FLOPs of `measure_speed` with whole sequences."""
    return PASSES * sum(_flops(_part(run), layers) for layers in (1, 2))


def _part(run: RunConfig, flops: float = math.inf) -> RunConfig:
    """The part of a step to measure: up to four sequences, or, if these exceed `flops`, as much of
    one as does not."""
    sequences = min(run.train.micro_batch_size or run.train.batch_size, 4)
    alone = {"parallel.tensor": 1, "parallel.replicate": 1}
    batch = {"train.batch_size": sequences, "train.micro_batch_size": None}
    part = override(run, batch | alone)
    context = run.model.context
    while _flops(part, 2) > flops and context >= 2 * FEWEST:
        context = context // 2 if part.train.batch_size == 1 else context
        part = override(part, {"train.batch_size": 1, "model.context": context})
    return part


def _flops(run: RunConfig, n_layers: int) -> float:
    """The FLOPs of a step with a model of `n_layers` layers."""
    return run.tokens_per_step * flops_per_token(dataclasses.replace(run.model, n_layers=n_layers))


def product_speed(device: torch.device, size: int = 1024) -> float:
    """FLOPs per second of a product of two square matrices, the fastest of a few."""
    dtype = torch.bfloat16 if uses_bf16("auto", device) else torch.float32
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    return 2 * size**3 / _fastest(lambda: matrix @ matrix, device)


def _fastest(act: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of a few calls, or of a single one if it takes long.

    On a GPU the first one compiles kernels, and does not count.
    """
    if device.type == "cuda":
        act()
        torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < PASSES and sum(times) < ENOUGH:
        began = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def _seconds(run: RunConfig, part: RunConfig, n_layers: int, device: torch.device) -> float:
    """The best time for one sequence of `run` through a model of `n_layers` layers, forward and
    backward, extrapolated from that for `part` of a step."""
    model = build_model(override(part, {"model.n_layers": n_layers}), device)
    shape = (part.train.batch_size, part.model.context)
    tokens = torch.randint(run.model.vocab_size, shape, device=device)

    def step() -> None:
        with in_precision(run.train.precision, device):
            loss = model.loss(tokens, tokens)
        loss.backward()

    share = _flops(run, n_layers) / run.train.batch_size / _flops(part, n_layers)
    return _fastest(step, device) * share
