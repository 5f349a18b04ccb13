"""`spherelm bench rounding`: how many numbers eight bits lose, operand by operand, in a real run.

    spherelm bench rounding runs/x runs/x/checkpoints/step_500

Runs a forward and a backward pass of a trained model on its data, as with `train.precision = fp8`,
and counts for each operand of each product the share of numbers that became zero and the share that
became the format's largest value. Two passes are run and the second is counted, because only then
are the gradients' scales known. Without a GPU the products are simulated.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from spherelm.bench.flags import RoundingFlags as Flags
from spherelm.bench.report import Report, Table, environment, measuring
from spherelm.data.loader import Batch, evaluation_batches
from spherelm.eval.loss import summed_loss
from spherelm.model.transformer import Transformer
from spherelm.ops.choose import Choice
from spherelm.ops.device import check_fp8, choose_device, in_precision
from spherelm.ops.fp8.casts import watching
from spherelm.ops.fp8.held import count_share, held_by
from spherelm.saved import Saved, find_saved, open_own_data, read_weights

_PRODUCTS = {"attention": ("W_q, W_k, W_v", "W_o"), "mlp": ("W_u, W_nu", "W_oMLP")}
_OPERANDS = ("input", "matrix", "gradient")


@dataclass(frozen=True)
class Share:
    """How rounding affected one operand of one kind of product, over all layers."""

    model: str
    product: str
    operand: str
    zero: float
    """Share of numbers that are 0 in eight bits."""
    largest: float
    """Share of numbers that are the format's largest value, whether clipped or exact."""
    zero_worst: float
    """The largest `zero` of any single layer."""


def run(flags: Flags) -> Report:
    """Count for every model."""
    device = choose_device(flags.device, "--device")
    if device.type == "cuda":
        check_fp8(device, "bench rounding on a GPU", "--device cpu")
    models = {name: find_saved(name) for name in flags.models}  # find all before reading the first
    found = {name: count(name, saved, flags, device) for name, saved in models.items()}
    columns = ["", "operand", "zeros", "in the worst layer", "largest"]
    tables = [
        Table(
            f"Numbers of eight-bit operands in {name}",
            columns,
            [
                [s.product, s.operand, *(f"{x:.4%}" for x in (s.zero, s.zero_worst, s.largest))]
                for s in shares
            ],
        )
        for name, shares in found.items()
    ]
    flat = [asdict(share) for shares in found.values() for share in shares]
    return Report(environment(device), {"rounding": flat}, tables)


def count(name: str, saved: Saved, flags: Flags, device: torch.device) -> list[Share]:
    """The shares of one saved model."""
    measuring(name)
    dataset = open_own_data(saved, flags.data)
    config = saved.config.model
    model = Transformer(config, Choice(fp8=True))
    model.load_state_dict(read_weights(saved).state_dict())
    model.to(device)
    batches = evaluation_batches(
        dataset.val if dataset.has_val else dataset.train,
        context=config.context,
        n_sequences=flags.sequences,
        batch_size=flags.sequences,
        within_documents=saved.config.data.within_documents,
        restart_positions=saved.config.data.restart_positions,
        device=device,
    )
    return shares_of(model, next(iter(batches)), name)


def shares_of(model: Transformer, batch: Batch, name: str) -> list[Share]:
    """The shares of a model in its second pass over a batch."""
    parts = held_by(model)
    seen: dict[tuple[str, str], dict[str, list[Tensor]]] = {}

    def watch(bits: Tensor, inverse: Tensor, slot: int) -> None:
        path = next(p for p, h in parts.items() if h.inverse.data_ptr() == inverse.data_ptr())
        part = "mlp" if path.endswith("mlp.held") else "attention"
        where = (_PRODUCTS[part][slot // 3], _OPERANDS[slot % 3])
        counted = torch.cat((count_share(bits), torch.tensor([bits.numel()], device=bits.device)))
        seen.setdefault(where, {}).setdefault(path, []).append(counted)

    def backward() -> None:
        with in_precision("auto", model.E_input.device):
            loss = summed_loss(model, batch)
        (loss / batch.targets.numel()).backward()
        model.zero_grad()

    backward()
    with watching(watch):
        backward()
    found = []
    for (product, operand), layers in seen.items():
        counts = torch.stack([torch.stack(c).sum(0) for c in layers.values()]).double().cpu()
        zero, largest, total = counts.sum(0).tolist()
        worst = float((counts[:, 0] / counts[:, 2]).max())
        found.append(Share(name, product, operand, zero / total, largest / total, worst))
    return found
