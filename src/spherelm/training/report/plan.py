"""What a run will cost, before it starts: parameters, FLOPs, memory and expected time."""

from __future__ import annotations

import json
import time
from typing import Any

import torch

from spherelm.config import RunConfig
from spherelm.config_io import override, to_dict, to_toml
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import WindowReader
from spherelm.model.flops import count_parameters, flops_per_token
from spherelm.ops.device import choose_device, in_precision
from spherelm.training.build import build_model
from spherelm.training.memory import check_fits, training_memory
from spherelm.training.report.reporter import format_count, format_seconds


def print_plan(run: RunConfig, dataset: TokenDataset, as_json: bool) -> None:
    """Print the configuration and its cost; nothing is written."""
    plan = make_plan(run, dataset)
    if as_json:
        print(json.dumps(plan))
        return
    print(to_toml(run))
    memory = plan["training_memory_bytes"] / 2**30
    rows = {
        "parameters": format_count(plan["parameters"]),
        "FLOPs per token": format_count(plan["flops_per_token"]),
        "tokens": f"{format_count(plan['tokens'])}, {plan['epochs']:.2f} epochs of the data",
        "FLOPs of the run": format_count(plan["flops"]),
        "memory": f"{memory:.2f} GiB on one device",
        "expected time": f"{format_seconds(plan['expected_seconds'])} on {plan['device']}, "
        f"{format_count(plan['tokens_per_second'])} tokens/s",
    }
    for name, value in rows.items():
        print(f"{name:<17} {value}")


def make_plan(run: RunConfig, dataset: TokenDataset) -> dict[str, Any]:
    """The numbers of a plan; the speed, of forward and backward, is measured on a model of one
    layer and of two."""
    device = choose_device(run.train.device)
    tokens = run.tokens_per_step * run.train.steps
    windows = WindowReader(dataset.train, run.model.context).n_windows
    one, two = (_seconds(run, layers, device) for layers in (1, 2))
    per_layer = max(0.0, two - one)
    speed = run.model.context / (one + per_layer * (run.model.n_layers - 1))
    per_token = flops_per_token(run.model)
    return {
        "config": to_dict(run),
        "parameters": count_parameters(run.model).total,
        "flops_per_token": per_token,
        "tokens": tokens,
        "epochs": run.train.steps * run.train.batch_size / windows,
        "flops": per_token * tokens,
        "training_memory_bytes": training_memory(run).total,
        "device": str(device),
        "tokens_per_second": speed,
        "expected_seconds": tokens / speed,
    }


def _seconds(run: RunConfig, n_layers: int, device: torch.device) -> float:
    """The best time for a sequence through a model of `n_layers` layers, forward and backward."""
    sequences = min(run.train.micro_batch_size or run.train.batch_size, 4)
    of_step = {"train.batch_size": sequences, "train.micro_batch_size": None}
    part = override(run, {"model.n_layers": n_layers, **of_step})
    check_fits(part, device)
    model = build_model(part, device)
    shape = (sequences, run.model.context)
    tokens = torch.randint(run.model.vocab_size, shape, device=device)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        with in_precision(run.train.precision, device):
            loss = model.loss(tokens, tokens)
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times) / sequences
