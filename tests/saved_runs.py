"""Run directories with a small model in them, written without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spherelm import RunConfig, Transformer, durable, records
from spherelm.config import ParallelConfig
from spherelm.config_io import to_dict
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.distributed.processes import Processes
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.run_dir import Claim, RunDir, write_description
from tests.model.tiny import perturbed, tiny_config

BYTES = {"vocab_size": 257, "d_model": 32, "n_heads": 4, "d_mlp": 48, "context": 64}
"""A model of bytes: big enough for different texts to get different scores."""


def byte_model(**fields: Any) -> Transformer:
    """A float32 model whose numbers are away from where they start."""
    return perturbed(tiny_config(**{**BYTES, **fields})).float()


def begin_run(run_dir: RunDir, config: RunConfig, tokenizer: Path | None = None) -> None:
    """Start a fresh run in a folder that nobody uses."""
    with Claim(run_dir, resume="never", force=False) as claim:
        claim.take()
        claim.create(config, tokenizer)


def write_run(root: Path, model: Transformer, step: int = 7, val_loss: float = 2.5) -> Path:
    """A run directory as training leaves it, with one checkpoint of `model`."""
    run = RunConfig(model=model.config)
    run_dir = RunDir(root)
    run_dir.checkpoints.mkdir(parents=True)
    write_description(run_dir, run)
    ByteTokenizer().save(root / "tokenizer")
    line = {"step": step, "tokens": 100 * step, "val_loss": val_loss, "val_bits_per_byte": 3.6}
    run_dir.metrics.write_text(json.dumps(line) + "\n")
    checkpoints.Writing(
        run_dir.checkpoints,
        step,
        {f"model.{name}": tensor for name, tensor in model.state_dict().items()},
        {"config": to_dict(run), "val_loss": val_loss, "data": "none"},
        Processes(ParallelConfig(), "cpu"),
    ).finish()
    return root


def change_state(checkpoint: Path, sealed: bool = True, **changes: Any) -> None:
    """Change what a checkpoint says of itself, as another version might have written it."""
    write = records.write if sealed else durable.write_json
    state, manifest = checkpoint / "state.json", checkpoint / "manifest.json"
    write(state, {**records.read(state), **changes})
    files = records.read(manifest)["files"]
    files["state.json"] = {"bytes": state.stat().st_size, "crc32": durable.checksum(state)}
    write(manifest, {"files": files})
