"""Which configuration a resumed run may have: what decides its numbers must stay as it was."""

from __future__ import annotations

from spherelm.config import RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.errors import UserError

MAY_CHANGE = {
    "parallel.tensor",
    "parallel.replicate",
    "parallel.timeout",
    "parallel.start_timeout",
    "data.path",  # the data itself is compared by its fingerprint
    "train.steps",
    "train.device",
    "train.micro_batch_size",
    "train.activation_checkpointing",
    "train.attention",
    "train.compile",
    "train.deterministic",
    "train.log_every",
    "train.eval_every",
    "train.eval_sequences",
    "train.checkpoint_every",
    "train.keep_last",
    "train.background_checkpoints",
    "train.tensorboard",
    "train.wandb_project",
}
"""Fields that say where, how often or how long, not what is learned."""


def check_same_run(before: RunConfig, now: RunConfig) -> None:
    """Refuse to resume with a configuration that would be another run."""
    old, new = dict(flatten(to_dict(before))), dict(flatten(to_dict(now)))
    for field in sorted(old.keys() | new.keys()):
        if field not in MAY_CHANGE and old.get(field) != new.get(field):
            raise UserError(
                f"cannot resume with {field} = {new.get(field)}: the run began with "
                f"{old.get(field)}; leave it as it was, or start anew with another --out"
            )
