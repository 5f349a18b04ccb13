"""The functions of `import spherelm`: `load`, `train` and `generate`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import torch

from spherelm import cpu_isa, presets
from spherelm.config import RunConfig
from spherelm.config_io import override, read_toml, toml_values
from spherelm.data.dataset import TokenDataset
from spherelm.data.open import open_dataset
from spherelm.distributed import launcher
from spherelm.errors import UserError
from spherelm.folders import place
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.generation.text import encode_prompt, generate_text
from spherelm.ops.device import choose_device, uses_bf16
from spherelm.ops.names import Dtype
from spherelm.runs.run_dir import Resume, RunDir
from spherelm.saved import Loaded, load_model, to_device
from spherelm.training.interrupt import hearing_again
from spherelm.training.loop import TrainResult
from spherelm.training.loop import train as run_training
from spherelm.training.origin import config_after, find_start
from spherelm.training.report.reporter import Reporter, for_terminal
from spherelm.validate import require_choice


def load(path: str | Path, *, device: str = "auto", tokenizer: str | None = None) -> Loaded:
    """A trained model as `.model`, `.tokenizer` and `.config`, which can be unpacked.

    `path` is a run directory (its newest checkpoint), a checkpoint, or an exported folder. `device`
    is cpu, cuda, mps, or auto for the fastest available; `tokenizer` is for a run without its own.
    """
    loaded = load_model(path, tokenizer)
    return loaded._replace(model=to_device(loaded.model, choose_device(device, "device")).eval())


def train(
    config: RunConfig | str | Path | None,
    data: str | Path | TokenDataset | None,
    out: str | Path,
    *,
    resume: Resume = "never",
    force: bool = False,
    init_from: str | Path | None = None,
) -> TrainResult:
    """Train in the run directory `out`, and show progress, as `spherelm train` does.

    `config` is a `RunConfig`, a preset's name such as ngpt-nano, or a TOML file such as another
    run's config.toml; fields missing in a file are those of `RunConfig()`. For a preset, and a file
    without model.vocab_size, the data determines it. `data` is a folder of tokens, an opened one,
    or None for the one that `config` names, else the built-in corpus. `resume` and `force` are
    those of the command line.

    `init_from` is a model to begin with, anything that `load` reads. A preset then gives everything
    but the shape, and a `config` of None takes the settings of the model's last run. The data must
    have been made by its tokenizer.
    """
    source = None
    if init_from is None:
        run, data_decides = _run_config(config)
    else:
        run_dir = RunDir(Path(out))
        goes_on = resume != "never" and not force and run_dir.holds_a_run()
        last, source = find_start(init_from, run_dir, goes_on)
        run, data_decides = _config_after(config, last), False
    dataset = data if isinstance(data, TokenDataset) else open_dataset(data or run.data.path)
    if data is not None:
        path = str(data.path if isinstance(data, TokenDataset) else data)
        run = override(run, {"data.path": path})
    notes: tuple[str, ...] = ()
    if data_decides:
        run = override(run, {"model.vocab_size": dataset.vocab_size})
        notes = dataset.vocab_size_notes
    if force and not isinstance(config, RunConfig):
        place.check_apart(Path(out), [config])  # a file there would be removed with the old run
    reporter = for_terminal(run.train.log_every) if launcher.is_first() else Reporter()
    alone = launcher.world_size() == 1  # otherwise torchrun may send SIGTERM again after the end
    with hearing_again() if alone else contextlib.nullcontext():
        return run_training(
            run,
            dataset,
            Path(out),
            resume=resume,
            force=force,
            reporter=reporter,
            init_from=source,
            notes=notes,
        )


def _config_after(config: RunConfig | str | Path | None, last: RunConfig) -> RunConfig:
    """The configuration of a run that begins with the model of `last`."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Path) or (isinstance(config, str) and config.endswith(".toml")):
        return read_toml(config, config_after(last))
    return config_after(last, config)


def _run_config(config: RunConfig | str | Path | None) -> tuple[RunConfig, bool]:
    """The configuration, and whether the data determines its model.vocab_size."""
    if isinstance(config, RunConfig):
        return config, False
    if config is None:
        raise UserError("config is None; give a preset, a TOML file or a RunConfig, or init_from")
    if isinstance(config, Path) or (isinstance(config, str) and config.endswith(".toml")):
        model = toml_values(config).get("model")
        sets_size = isinstance(model, dict) and "vocab_size" in model
        return read_toml(config, RunConfig()), not sets_size
    return presets.get(config), True


def generate(
    model: str | Path | Loaded,
    prompt: str = "",
    *,
    max_new_tokens: int = 128,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float = 1.0,
    stop: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    dtype: Dtype = "auto",
) -> str:
    """The text that follows `prompt`: at most `max_new_tokens` tokens, ended by a string of `stop`.

    `model` is a result of `load`, or a path that it reads, onto `device`. The other arguments are
    those of `spherelm generate`; a temperature of 0 always takes the most likely token. For many
    texts from one model, keep a `spherelm.generation.engine.Engine`.
    """
    if not isinstance(prompt, str):
        raise UserError(f"prompt must be a text, not {prompt!r}")
    require_choice("dtype", dtype, get_args(Dtype))
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    loaded = model if isinstance(model, Loaded) else load(model, device=device)
    there = loaded.model.E_input.device
    cpu_isa.before_products(dtype, there.type)
    engine = Engine(loaded.model, torch.bfloat16 if uses_bf16(dtype, there) else torch.float32)
    tokenizer, ids = loaded.tokenizer, [encode_prompt(loaded.tokenizer, prompt)]
    (text,) = generate_text(
        engine, tokenizer, ids, max_new_tokens=max_new_tokens, sampling=sampling, stop=stop
    )
    return text
