"""The insides of the two models of a comparison: the same page that `spherelm inspect` makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spherelm.compare.pair import ARCHS, INSIDE, NAMES
from spherelm.data.dataset import TokenDataset
from spherelm.inspect.files import beginning_of, write_page
from spherelm.inspect.insides import look_inside
from spherelm.ops.device import choose_device
from spherelm.runs.run_dir import RunDir
from spherelm.saved import load_model, to_device

TOKENS = 96
"""Of the validation text, whose paths are followed."""


def look_inside_both(
    out: Path, dataset: TokenDataset, report: Callable[[str], None] = lambda done: None
) -> str | None:
    """Write the page for the two finished runs in `out`; its address from there.

    None where the data has no tokenizer, without which the text cannot be shown.
    """
    if not all(RunDir(out / arch).tokenizer.is_dir() for arch in ARCHS):
        return None
    text = beginning_of(dataset, TOKENS)
    models = []
    for arch in ARCHS:
        report(f"looking inside {NAMES[arch]}")
        model, tokenizer, config = load_model(out / arch)
        model = to_device(model.float(), choose_device(config.train.device)).eval()
        label = NAMES[arch]
        models.append(look_inside(model, tokenizer, text, run=arch, label=label, tokens=TOKENS))
    (out / INSIDE).mkdir(exist_ok=True)
    page = write_page(out / INSIDE, models, "the beginning of the validation text")
    return page.relative_to(out).as_posix()
