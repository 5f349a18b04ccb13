"""Export to a Hugging Face folder, and import back.

    config.json  generation_config.json  model.safetensors   what transformers reads
    configuration_spherelm.py  modeling_spherelm.py          nGPT's classes, for trust_remote_code
    tokenizer.json  tokenizer_config.json                    the tokenizer: the same ids
    spherelm.json  spherelm-tokenizer.json  README.md        what spherelm reads; the model card

A folder appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spherelm import durable
from spherelm.config import ParallelConfig
from spherelm.config_io import to_dict
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.exchange.card import model_card, read_losses
from spherelm.exchange.load import (
    EXPORT_FORMAT,
    EXPORT_RECORD,
    EXPORT_VERSION,
    Saved,
    find_saved,
    find_tokenizer,
    read_weights,
)
from spherelm.exchange.names import fold_scales, to_hf_config, to_hf_tensors
from spherelm.exchange.tokenizer_files import write_tokenizer
from spherelm.model.sphere import matrices
from spherelm.model.transformer import Transformer
from spherelm.train import checkpoint as checkpoints
from spherelm.train.processes import Processes
from spherelm.train.run_dir import RunDir, write_description

CLASS_FILES = ("configuration_spherelm.py", "modeling_spherelm.py")


def export_to_hf(
    source: str | Path,
    out: str | Path,
    *,
    tokenizer: str | None = None,
    fold: bool = False,
    force: bool = False,
) -> Path:
    """Write the model at `source` (run, checkpoint or export) as a Hugging Face folder."""
    saved = find_saved(source)
    if fold and saved.config.model.arch != "ngpt":
        raise UserError("--fold is for nGPT; a GPT has no scales to fold")
    found = find_tokenizer(saved, tokenizer)
    model = read_weights(saved)
    with _new_folder(Path(out), force) as folder:
        _write_model(folder, model, fold)
        _write_tokens(folder, found, saved)
        losses = _losses(saved)
        card = model_card(Path(out).name, saved.config, losses, fold, has_tokenizer=True)
        durable.write_text(folder / "README.md", card)
        if not fold:  # a folded model does not come back
            _write_record(folder, saved, losses)
    return Path(out)


def import_from_hf(source: str | Path, out: str | Path, *, force: bool = False) -> Path:
    """Turn an exported folder into a run directory with one checkpoint, bit for bit.

    A folder without a tokenizer makes a run without one.
    """
    saved = find_saved(source)
    if saved.kind != "export":
        raise UserError(f"{source} is already spherelm's own; only an exported folder is imported")
    if saved.folded:
        raise UserError(
            f"{source} is a folded export, which comes back in function but not bit for bit: "
            "import one that was exported without --fold"
        )
    model = read_weights(saved)
    with _new_folder(Path(out), force) as folder:
        run_dir = RunDir(folder)
        run_dir.checkpoints.mkdir()
        write_description(run_dir, saved.config)
        with contextlib.suppress(UserError):
            find_tokenizer(saved).save(folder / "tokenizer")
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
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk, too
        raise UserError(f"cannot write the weights: {str(error).splitlines()[0]}") from None
    durable.force_to_disk(folder / "model.safetensors")
    dtype = str(next(matrices(model))[1].dtype).removeprefix("torch.")
    durable.write_json(folder / "config.json", to_hf_config(model.config, dtype, fold))
    if model.config.arch == "ngpt":
        classes = Path(__file__).parents[1] / "hub"
        for name in CLASS_FILES:
            shutil.copyfile(classes / name, folder / name)


def _write_tokens(folder: Path, tokenizer: Tokenizer, saved: Saved) -> None:
    write_tokenizer(folder, tokenizer, saved.config.model.context)
    end = tokenizer.end_of_document
    config = _read(folder / "config.json")
    ids = {"eos_token_id": end, "pad_token_id": end}
    durable.write_json(folder / "config.json", {**config, "bos_token_id": None, **ids})
    durable.write_json(folder / "generation_config.json", ids)


def _losses(saved: Saved) -> list[dict[str, Any]]:
    if saved.kind == "export":
        record = saved.folder / EXPORT_RECORD
        return _read(record).get("losses", []) if record.is_file() else []
    return read_losses(RunDir(saved.run_root).metrics, until=saved.step or 0)


def _write_record(folder: Path, saved: Saved, losses: list[dict[str, Any]]) -> None:
    record = {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "config": to_dict(saved.config),
        "step": saved.step,
        "val_loss": saved.val_loss,
        "losses": losses,
        "crc32": {"model.safetensors": durable.checksum(folder / "model.safetensors")},
    }
    durable.write_json(folder / EXPORT_RECORD, record)


def _read(file: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return value


@contextlib.contextmanager
def _new_folder(out: Path, force: bool) -> Iterator[Path]:
    """A folder to fill beside `out`, which takes its place when all went well."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; --out must be a folder")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise UserError(f"{out} is not empty; choose another --out, or replace it with --force")
    if out.name in ("", ".."):  # it could not take the place of the folder that one is in
        raise UserError(f"--out must be the name of a folder to make, not {out}")
    temporary = out.with_name(f".{out.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        try:
            temporary.mkdir(parents=True)
            yield temporary
            shutil.rmtree(out, ignore_errors=True)
            temporary.rename(out)
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
