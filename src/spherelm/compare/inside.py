"""The insides of the two models of a comparison: the same page that `spherelm inspect` makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spherelm.compare.pair import INSIDE
from spherelm.data.dataset import TokenDataset
from spherelm.errors import UserError
from spherelm.inspect.files import beginning_of, write_page
from spherelm.inspect.insides import look_inside
from spherelm.model.config import ARCH_NAMES, ARCHS
from spherelm.ops.device import choose_device
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model, to_device

TOKENS = 96
"""Tokens of the validation text whose paths are followed."""


def look_inside_both(
    out: Path, dataset: TokenDataset, say: Callable[[str], None] = lambda line: None
) -> str | None:
    """Write the page for the two finished runs in `out`; returns its path relative to `out`.

    Returns None if the data has no tokenizer, without which the text cannot be shown, or if a model
    does not fit in memory: the comparison is still worth reading.
    """
    if not all(RunDir(out / arch).tokenizer.is_dir() for arch in ARCHS):
        return None
    text = beginning_of(dataset, TOKENS)
    models = []
    for arch in ARCHS:
        label = ARCH_NAMES[arch]
        say(f"looking inside {label}")
        try:
            model, tokenizer, config = load_model(out / arch)
            model = to_device(model.float(), choose_device(config.train.device)).eval()
            found = look_inside(model, tokenizer, text, run=arch, label=label, tokens=TOKENS)
        except UserError as error:
            say(f"the page about the models' insides is left out: {error}")
            return None
        models.append(found)
    (out / INSIDE).mkdir(exist_ok=True)
    page = write_page(out / INSIDE, models, "the beginning of the validation text")
    return page.relative_to(out).as_posix()
