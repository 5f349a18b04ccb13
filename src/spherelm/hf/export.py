"""Export: a trained model as a folder that Hugging Face's tools read.

    config.json  generation_config.json  model.safetensors   what transformers reads
    configuration_spherelm.py  modeling_spherelm.py          nGPT's classes, for trust_remote_code
    tokenizer.json  tokenizer_config.json                    the tokenizer, with the same ids
    spherelm.json  spherelm-tokenizer.json  README.md        what spherelm reads; the model card

The folder appears complete or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spherelm import durable, records
from spherelm.config_io import to_dict
from spherelm.data.tokenizer import Tokenizer
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.folders.kinds import EXPORT
from spherelm.hf.card import model_card, read_losses
from spherelm.hf.names import to_hf_config, to_hf_tensors
from spherelm.hf.read import FORMAT, RECORD, TOKENIZER, VERSION, Export, model_path, reading
from spherelm.hf.tokenizer_files import write_tokenizer
from spherelm.model.fold import folded_state
from spherelm.model.sphere import matrices
from spherelm.model.transformer import Transformer
from spherelm.runs.load import Checkpoint, Saved, find_tokenizer, read_weights
from spherelm.runs.run_dir import RunDir


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

    def read(saved: Saved) -> tuple[Saved, Tokenizer, Transformer, Sequence[dict[str, Any]]]:
        if fold and saved.config.model.arch != "ngpt":
            raise UserError("--fold is for nGPT; a GPT has no scales to fold")
        if saved.config.model.gpt_qk_norm:
            raise UserError(
                "a GPT with model.gpt_qk_norm cannot be exported: Hugging Face's Llama, which a "
                "GPT becomes, has no norm of q and k"
            )
        return saved, find_tokenizer(saved, tokenizer), read_weights(saved), _losses(saved)

    saved, found, model, losses = reading(source, read)
    with place.whole(out, EXPORT, force=force, inputs=inputs, marked=False) as folder:
        _write_model(folder, model, fold, end=found.end_of_document)
        write_tokenizer(folder, found, model.config.context)
        card = model_card(Path(out).name, saved.config, losses, fold)
        durable.write_text(folder / "README.md", card)
        read_back = ("model.safetensors", "config.json", *sorted(TOKENIZER))
        there = (name for name in read_back if (folder / name).is_file())
        record = {
            "format": FORMAT,
            "version": VERSION,
            "config": to_dict(saved.config),
            "folded": fold,
            "step": saved.step,
            "val_loss": saved.val_loss,
            "losses": list(losses),
            "crc32": {name: durable.checksum(folder / name) for name in there},
        }
        records.write(folder / RECORD, record)
    return Path(out)


def _losses(saved: Saved) -> Sequence[dict[str, Any]]:
    """The validation losses measured up to the exported step."""
    if isinstance(saved, Checkpoint):
        return read_losses(RunDir(saved.run_root).metrics, saved.step or 0, saved.began)
    return saved.losses if isinstance(saved, Export) else ()


def _write_model(folder: Path, model: Transformer, fold: bool, end: int) -> None:
    """Weights, configuration and classes; `end` is the token that ends a text."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    state = folded_state(model) if fold else model.state_dict()
    tensors = to_hf_tensors({name: t.detach() for name, t in state.items()})
    try:
        with durable.written(folder / "model.safetensors") as file:
            save_file(tensors, file, metadata={"format": "pt"})
    except SafetensorError as error:  # also raised for a full disk
        raise UserError(f"cannot write the weights: {str(error).splitlines()[0]}") from None
    dtype = str(next(matrices(model))[1].dtype).removeprefix("torch.")
    ids = {"eos_token_id": end, "pad_token_id": end}
    config = {**to_hf_config(model.config, dtype, fold), "bos_token_id": None, **ids}
    durable.write_json(folder / "config.json", config)
    durable.write_json(folder / "generation_config.json", ids)
    if model.config.arch == "ngpt":
        for classes in (Path(__file__).parent / "remote_code").glob("*_spherelm.py"):
            durable.write_bytes(folder / classes.name, classes.read_bytes())
