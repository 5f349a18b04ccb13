"""What a run will cost, before it starts: parameters, FLOPs, memory and expected time."""

from __future__ import annotations

import dataclasses
import json
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
from spherelm.training.build import build_model, check_data
from spherelm.training.memory import check_fits, training_memory


def print_plan(
    run: RunConfig, dataset: TokenDataset, as_json: bool, init_from: Path | None = None
) -> None:
    """Print the configuration and its cost, and the model it begins with; nothing is written."""
    plan = make_plan(run, dataset)
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


def make_plan(run: RunConfig, dataset: TokenDataset) -> dict[str, Any]:
    """The numbers of a plan."""
    device = choose_device(run.train.device)
    tokens = run.tokens_per_step * run.train.steps
    check_data(run, dataset)
    windows = WindowReader(dataset.train, run.model.context).n_windows
    speed = measure_speed(run, device)
    per_token = flops_per_token(run.model)
    return {
        "config": to_dict(run),
        "parameters": count_parameters(run.model).total,
        "flops_per_token": per_token,
        "tokens": tokens,
        "epochs": run.train.steps * run.train.batch_size / windows,
        "flops": per_token * tokens,
        "training_memory_bytes": training_memory(run).total,
        "free_memory_bytes": free_memory(device),
        "device": str(device),
        "tokens_per_second": speed,
        "expected_seconds": tokens / speed,
    }


def _memory(needed: int, free: int | None) -> str:
    """What one device needs; a run for several may be planned where there is less."""
    here = f", but {gib(free)} are free here" if free is not None and free < needed else ""
    return f"{gib(needed)} on one device{here}"


PASSES = 3
"""Passes of which the fastest counts."""


def measure_speed(run: RunConfig, device: torch.device) -> float:
    """Tokens per second of forward and backward, from a model of one layer and one of two."""
    one, two = (_seconds(run, layers, device) for layers in (1, 2))
    per_layer = max(0.0, two - one)
    return run.model.context / (one + per_layer * (run.model.n_layers - 1))


def flops_to_measure(run: RunConfig) -> float:
    """What `measure_speed` computes."""
    models = (dataclasses.replace(run.model, n_layers=n) for n in (1, 2))
    tokens = PASSES * _sequences(run) * run.model.context
    return tokens * sum(flops_per_token(model) for model in models)


def product_speed(device: torch.device, size: int = 1024) -> float:
    """FLOPs per second of a product of two square matrices, the fastest of some."""
    dtype = torch.bfloat16 if uses_bf16("auto", device) else torch.float32
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    return 2 * size**3 / _fastest(lambda: matrix @ matrix, device)


def _fastest(act: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(PASSES):
        began = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times)


def _sequences(run: RunConfig) -> int:
    return min(run.train.micro_batch_size or run.train.batch_size, 4)


def _seconds(run: RunConfig, n_layers: int, device: torch.device) -> float:
    """The best time for a sequence through a model of `n_layers` layers, forward and backward."""
    sequences = _sequences(run)
    of_step = {"train.batch_size": sequences, "train.micro_batch_size": None}
    part = override(run, {"model.n_layers": n_layers, **of_step})
    check_fits(part, device)
    model = build_model(part, device)
    shape = (sequences, run.model.context)
    tokens = torch.randint(run.model.vocab_size, shape, device=device)

    def step() -> None:
        with in_precision(run.train.precision, device):
            loss = model.loss(tokens, tokens)
        loss.backward()

    return _fastest(step, device) / sequences
