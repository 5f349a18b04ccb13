"""Import: turn an exported folder into a run directory with one checkpoint."""

from __future__ import annotations

from pathlib import Path

from spherelm.config import ParallelConfig
from spherelm.config_io import to_dict
from spherelm.data.tokenizer import Tokenizer
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError, no_folder
from spherelm.folders import place
from spherelm.folders.kinds import IMPORT
from spherelm.hf.read import TOKENIZER, Export, model_path, reading
from spherelm.model.transformer import Transformer
from spherelm.runs.checkpoint import Writing
from spherelm.runs.load import Saved, find_tokenizer, named_tensors, read_weights
from spherelm.runs.run_dir import RunDir, write_description


def import_from_hf(source: str | Path, out: str | Path, *, force: bool = False) -> Path:
    """Turn an exported folder into a run directory with one checkpoint, bit for bit.

    A folder without a tokenizer makes a run without one.
    """
    inputs = [model_path(source)]
    if not inputs[0].is_dir():
        raise UserError(f"{no_folder(inputs[0])}; give an exported folder")
    place.check(out, IMPORT, force=force, inputs=inputs)

    def read(saved: Saved) -> tuple[Saved, Transformer, Tokenizer | None]:
        if not isinstance(saved, Export):
            raise UserError(
                f"{source} is already spherelm's own; only an exported folder is imported"
            )
        if saved.folded:
            raise UserError(
                f"{source} is a folded export, which cannot be restored bit for bit: import one "
                "that was exported without --fold"
            )
        return saved, read_weights(saved), _own_tokenizer(saved)

    saved, model, tokenizer = reading(source, read)
    with place.whole(out, IMPORT, force=force, inputs=inputs) as folder:
        run_dir = RunDir(folder)
        run_dir.checkpoints.mkdir()
        write_description(run_dir, saved.config)
        if tokenizer is not None:
            tokenizer.save(run_dir.tokenizer)
        state = {"config": to_dict(saved.config), "val_loss": saved.val_loss, "data": "imported"}
        processes = Processes(ParallelConfig(), "cpu")
        tensors = named_tensors(model)
        Writing(run_dir.checkpoints, saved.step or 0, tensors, state, processes).finish()
    return Path(out)


def _own_tokenizer(saved: Export) -> Tokenizer | None:
    """The tokenizer in the folder, if any; raises if it is there but cannot be read."""
    try:
        return None if saved.own_tokenizer() is None else find_tokenizer(saved)
    except UserError as error:
        why = str(error).partition("; ")[0]  # without its remedy, which does not apply here
        raise UserError(
            f"the tokenizer in {saved.folder} cannot be imported: {why}; without "
            f"{', '.join(sorted(TOKENIZER))} there the model is imported without one"
        ) from None
