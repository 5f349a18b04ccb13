"""What a configuration describes, built: the model, its optimizer, and data that fit them."""

from __future__ import annotations

import torch

from spherelm.config import RunConfig
from spherelm.data.dataset import TokenDataset
from spherelm.data.loader import BlockReader
from spherelm.errors import UserError
from spherelm.model.sphere import store_matrices_
from spherelm.model.transformer import Transformer
from spherelm.ops.choose import Choice
from spherelm.optim.adamw import AdamW


def build_model(run: RunConfig, device: torch.device) -> Transformer:
    """The model of a run, freshly initialized: the same weights on every device for a seed."""
    model = Transformer(run.model, ops=Choice(attention=run.train.attention))
    if run.train.weight_storage == "bf16":
        store_matrices_(model, torch.bfloat16)
    return model.to(device)


def build_optimizer(run: RunConfig, model: Transformer) -> AdamW:
    """The optimizer that the configuration describes."""
    optim = run.optim
    return AdamW(
        model,
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        weight_decay=optim.weight_decay,
    )


def check_data(run: RunConfig, dataset: TokenDataset) -> None:
    """Refuse a data set that the model cannot learn from."""
    BlockReader(dataset.train, run.model.context, run.data.within_documents)
    if dataset.vocab_size > run.model.vocab_size:
        raise UserError(
            f"the data has a vocabulary of {dataset.vocab_size}, but model.vocab_size is "
            f"{run.model.vocab_size}; it must not be smaller"
        )
    dataset.check_tokenizer()
