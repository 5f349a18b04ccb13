"""Builds what a configuration describes: the model, its optimizer, and the state of a new run."""

from __future__ import annotations

import torch

from spherelm.config import RunConfig
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import Loader, WindowReader
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.model.sphere import store_matrices_
from spherelm.model.transformer import Transformer
from spherelm.ops.choose import Choice
from spherelm.ops.device import check_fp8, prepare_torch
from spherelm.optim import build
from spherelm.runs.state import TrainState
from spherelm.training.origin import Origin
from spherelm.training.parallel.shard import parallelize


def build_model(run: RunConfig, device: torch.device) -> Transformer:
    """The model of a run, freshly initialized; a seed gives the same weights on every device."""
    model = Transformer(
        run.model, ops=Choice(attention=run.train.attention, fp8=run.train.precision == "fp8")
    )
    if run.train.weight_storage == "bf16":
        store_matrices_(model, torch.bfloat16)
    return model.to(device)


def build_optimizer(run: RunConfig, model: Transformer) -> build.Optimizer:
    """The optimizer that the configuration describes."""
    return build.build_optimizer(model, run.optim, run.train.steps)


def check_eight_bits(run: RunConfig, device: torch.device) -> None:
    """Refuse FP8 products on hardware without them, or of shapes that they do not support."""
    if run.train.precision != "fp8":
        return
    check_fp8(device, "train.precision fp8", "bf16 or fp32")
    if run.parallel.tensor > 1:
        raise UserError(
            f"train.precision = fp8 does not work with parallel.tensor = {run.parallel.tensor}; "
            "leave that at 1, or use bf16"
        )
    for name in ("d_model", "mlp_width"):
        if (size := getattr(run.model, name)) % 16:
            field = "d_mlp" if name == "mlp_width" else name
            raise UserError(f"train.precision = fp8 needs model.{field} in steps of 16, not {size}")


def build_state(
    run: RunConfig, dataset: TokenDataset, processes: Processes, origin: Origin | None = None
) -> TrainState:
    """The initial state of a run in this process: its share of the model and of every batch."""
    processes.at("building the model", long=True)
    prepare_torch(run.train.seed, run.train.deterministic)
    model = build_model(run, processes.device)
    if origin is not None:  # before the model is sharded
        processes.at("reading the model to begin with", long=True)
        processes.together(lambda: origin.give_weights_(model))
    parallelize(model, run.train, processes)
    optimizer = build_optimizer(run, model)
    loader = Loader(
        dataset.train,
        context=run.model.context,
        batch_size=run.train.batch_size,
        seed=run.train.seed,
        rank=processes.data_rank,
        world_size=processes.data_ranks,
        within_documents=run.data.within_documents,
        restart_positions=run.data.restart_positions,
        device=processes.device,
    )
    return TrainState(run, dataset.fingerprint, model, optimizer, loader)


def check_data(run: RunConfig, dataset: TokenDataset) -> None:
    """Refuse a data set on which the model cannot be trained or evaluated."""
    for split in (dataset.train, dataset.val) if dataset.has_val else (dataset.train,):
        WindowReader(split, run.model.context, run.data.within_documents)
    if dataset.vocab_size > run.model.vocab_size:
        raise UserError(
            f"the data has a vocabulary of {dataset.vocab_size}, but model.vocab_size is "
            f"{run.model.vocab_size}; it must not be smaller"
        )
    dataset.check_tokenizer()
