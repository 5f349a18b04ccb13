"""Export to a Hugging Face folder, and import back.

    config.json  generation_config.json  model.safetensors   what transformers reads
    configuration_spherelm.py  modeling_spherelm.py          nGPT's classes, for trust_remote_code
    tokenizer.json  tokenizer_config.json                    the tokenizer: the same ids
    spherelm.json  spherelm-tokenizer.json  README.md        what spherelm reads; the model card

A folder appears whole or not at all.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.config import ParallelConfig
from spherelm.config_io import to_dict
from spherelm.data.tokenizer import Tokenizer
from spherelm.distributed.processes import Processes
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.folders.kinds import EXPORT, IMPORT
from spherelm.hf.card import model_card, read_losses
from spherelm.hf.names import fold_scales, to_hf_config, to_hf_tensors
from spherelm.hf.tokenizer_files import write_tokenizer
from spherelm.model.sphere import matrices
from spherelm.model.transformer import Transformer
from spherelm.runs import checkpoint as checkpoints
from spherelm.runs.run_dir import RunDir, write_description
from spherelm.saved import (
    EXPORT_FORMAT,
    EXPORT_RECORD,
    EXPORT_VERSION,
    TOKENIZER,
    Saved,
    find_tokenizer,
    model_path,
    read_record,
    read_weights,
    reading,
)

CLASS_FILES = ("configuration_spherelm.py", "modeling_spherelm.py")
READ_BACK = ("model.safetensors", "config.json", *sorted(TOKENIZER))
"""Files of an export that spherelm reads again: their checksums are in its record."""


def export_to_hf(
    source: str | Path,
    out: str | Path,
    *,
    tokenizer: str | None = None,
    fold: bool = False,
    force: bool = False,
) -> Path:
    """Write the model at `source` (run, checkpoint or export) as a Hugging Face folder."""
    inputs = (model_path(source), RunDir.around(source), tokenizer)
    place.check(out, EXPORT, force=force, inputs=inputs)

    def read(saved: Saved) -> tuple[Saved, Tokenizer, Transformer, list[dict[str, Any]]]:
        if fold and saved.config.model.arch != "ngpt":
            raise UserError("--fold is for nGPT; a GPT has no scales to fold")
        if saved.config.model.gpt_qk_norm:
            raise UserError(
                "a GPT with model.gpt_qk_norm cannot be exported: Hugging Face's Llama, which a "
                "GPT becomes, has no norm of q and k"
            )
        found = find_tokenizer(saved, tokenizer)
        return saved, found, read_weights(saved), _losses(saved)

    saved, found, model, losses = reading(source, read)
    with place.whole(out, EXPORT, force=force, inputs=inputs, marked=False) as folder:
        _write_model(folder, model, fold)
        _write_tokens(folder, found, saved)
        card = model_card(Path(out).name, saved.config, losses, fold, has_tokenizer=True)
        durable.write_text(folder / "README.md", card)
        _write_record(folder, saved, losses, fold)
    return Path(out)


def import_from_hf(source: str | Path, out: str | Path, *, force: bool = False) -> Path:
    """Turn an exported folder into a run directory with one checkpoint, bit for bit.

    A folder without a tokenizer makes a run without one.
    """
    place.check(out, IMPORT, force=force, inputs=[model_path(source)])

    def read(saved: Saved) -> tuple[Saved, Transformer, Tokenizer | None]:
        if saved.kind != "export":
            raise UserError(
                f"{source} is already spherelm's own; only an exported folder is imported"
            )
        if saved.folded:
            raise UserError(
                f"{source} is a folded export, which comes back in function but not bit for bit: "
                "import one that was exported without --fold"
            )
        tokenizer = None
        with contextlib.suppress(UserError):
            tokenizer = find_tokenizer(saved)
        return saved, read_weights(saved), tokenizer

    saved, model, tokenizer = reading(source, read)
    with place.whole(out, IMPORT, force=force, inputs=[source]) as folder:
        run_dir = RunDir(folder)
        run_dir.checkpoints.mkdir()
        write_description(run_dir, saved.config)
        if tokenizer is not None:
            tokenizer.save(folder / "tokenizer")
        checkpoints.Writing(
            run_dir.checkpoints,
            saved.step or 0,
            {f"model.{name}": tensor for name, tensor in model.state_dict().items()},
            {"config": to_dict(saved.config), "val_loss": saved.val_loss, "data": "imported"},
            Processes(ParallelConfig(), "cpu"),
        ).finish()
    return Path(out)


def _write_model(folder: Path, model: Transformer, fold: bool) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = to_hf_tensors({name: t.detach() for name, t in model.state_dict().items()})
    if fold:
        tensors = fold_scales(tensors, model.config)
    try:
        with durable.written(folder / "model.safetensors") as file:
            save_file(tensors, file, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk, too
        raise UserError(f"cannot write the weights: {str(error).splitlines()[0]}") from None
    dtype = str(next(matrices(model))[1].dtype).removeprefix("torch.")
    durable.write_json(folder / "config.json", to_hf_config(model.config, dtype, fold))
    if model.config.arch == "ngpt":
        classes = Path(__file__).parent / "remote_code"
        for name in CLASS_FILES:
            durable.write_bytes(folder / name, (classes / name).read_bytes())


def _write_tokens(folder: Path, tokenizer: Tokenizer, saved: Saved) -> None:
    write_tokenizer(folder, tokenizer, saved.config.model.context)
    end = tokenizer.end_of_document
    config = records.read(folder / "config.json")
    ids = {"eos_token_id": end, "pad_token_id": end}
    durable.write_json(folder / "config.json", {**config, "bos_token_id": None, **ids})
    durable.write_json(folder / "generation_config.json", ids)


def _losses(saved: Saved) -> list[dict[str, Any]]:
    if saved.kind == "export":
        record = saved.folder / EXPORT_RECORD
        losses: list[dict[str, Any]] = read_record(record)["losses"] if record.is_file() else []
        return losses
    return read_losses(RunDir(saved.run_root).metrics, saved.step or 0, saved.began)


def _write_record(folder: Path, saved: Saved, losses: list[dict[str, Any]], folded: bool) -> None:
    there = {path.name for path in folder.iterdir()}
    record = {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "config": to_dict(saved.config),
        "folded": folded,
        "step": saved.step,
        "val_loss": saved.val_loss,
        "losses": losses,
        "crc32": {name: durable.checksum(folder / name) for name in READ_BACK if name in there},
    }
    records.write(folder / EXPORT_RECORD, record)
