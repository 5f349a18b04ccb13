"""`spherelm inspect`: the paper's pictures of a network's insides, and the paths of tokens."""

from __future__ import annotations

import contextlib
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from spherelm import cpu_isa
from spherelm.cli.saved_model import check_runs
from spherelm.console import print_table, show
from spherelm.errors import UserError
from spherelm.flags import parse
from spherelm.validate import check_fields

if TYPE_CHECKING:
    from spherelm.inspect.insides import Insides


@dataclass(frozen=True, kw_only=True)
class InspectFlags:
    """Embeddings, condition numbers, learned factors, and the path of every token of a text, for
    one model or several side by side: a page, pictures, and all numbers as JSON.

        spherelm inspect runs/gpt runs/ngpt --out inside
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories (their newest checkpoints), checkpoints, or exported folders."""
    out: str
    """A folder for index.html, inspect.json, directions.json and the pictures."""
    text: str | None = None
    """A text whose beginning the models read: a file, compressed or not, or a folder, as for
    `eval`. Unset: validation text of the data they were all trained on if that still exists, else
    of the built-in corpus."""
    field: str = "text"
    """Field or column that holds the text in .jsonl and .parquet files."""
    tokens: int = 96
    """Tokens of the text to follow, at most; no more than a model's context."""
    layer: int | None = None
    """The layer whose matrices are shown in full. Unset: the 3rd, as in the paper, or the last."""
    tokenizer: str | None = None
    """A tokenizer, where a run has none of its own."""
    device: str = "auto"
    """cpu, cuda, mps, or auto for the fastest there is. Products are in float32 everywhere."""
    json: bool = False
    """Print all numbers, except the rows of directions.json, as one JSON object."""

    def __post_init__(self) -> None:
        check_fields(self, "--")


def main(argv: list[str]) -> int:
    flags = parse(InspectFlags, argv, "inspect")
    check_runs("inspect", flags.runs)
    cpu_isa.before_products("bf16", flags.device)  # rows of large networks are compared in bf16

    from spherelm.folders import kinds, place

    with place.results(flags.out, kinds.INSPECT, inputs=[*flags.runs, flags.text]):
        return _inspect(flags)


def _inspect(flags: InspectFlags) -> int:
    from spherelm.inspect.files import write_page, write_pictures
    from spherelm.inspect.insides import look_inside
    from spherelm.inspect.picture import short_labels
    from spherelm.ops.device import choose_device
    from spherelm.plots.chart import COLOURS, roles_for
    from spherelm.saved import find_saved, find_tokenizer, reading, to_device
    from spherelm.saved import read_weights as read

    device = choose_device(flags.device, "--device")
    # Check every run before spending minutes on the first.
    saved = [find_saved(run) for run in flags.runs]
    tokenizers = [find_tokenizer(found, flags.tokenizer) for found in saved]
    for run, found in zip(flags.runs, saved, strict=True):
        if flags.layer is not None and not 1 <= flags.layer <= found.config.model.n_layers:
            raise UserError(
                f"--layer must be from 1 to {found.config.model.n_layers}, the layers of {run}, "
                f"not {flags.layer}"
            )
    archs = [found.config.model.arch for found in saved]
    if len(set(roles_for(archs))) < len(archs):
        raise UserError(
            f"one page takes at most {len(COLOURS)} models, {len(COLOURS) - 1} where all are GPT "
            f"or all nGPT, not {len(archs)}: there are no more colours to tell them apart"
        )
    labels = short_labels(archs, flags.runs)
    text, called = _text(flags, {found.config.data.path for found in saved})
    models = []
    for run, label, tokenizer in zip(flags.runs, labels, tokenizers, strict=True):
        progress = _Progress(run)
        progress("reading the weights")
        model = reading(run, lambda found: to_device(read(found).float(), device).eval())
        models.append(
            look_inside(
                model,
                tokenizer,
                text,
                run=run,
                label=label,
                tokens=flags.tokens,
                layer=flags.layer,
                report=progress,
                bf16=True,
            )
        )
        progress.end()
    out = Path(flags.out)
    write_pictures(out / "pictures", models, lambda line: print(line, file=sys.stderr))
    write_page(out, models, called)
    result = {"text": called, "models": [model.as_json() for model in models]}
    return show(result, flags.json, lambda: _print(models, called, flags.out))


def _text(flags: InspectFlags, data: set[str | None]) -> tuple[str, str]:
    """The text for the models to read and a name for it; `data` are their training folders."""
    if flags.text is not None:
        from spherelm.eval.texts import read_beginning
        from spherelm.inspect.insides import enough

        text = read_beginning(flags.text, enough(flags.tokens), flags.field)
        return text, f"the beginning of {Path(flags.text).name}"
    from spherelm.data.open import open_builtin, open_dataset
    from spherelm.inspect.files import beginning_of

    folder = next(iter(data)) if len(data) == 1 else None
    if folder is not None:
        with contextlib.suppress(UserError):  # deleted, or has no validation part or tokenizer
            dataset = open_dataset(folder, verify=False)
            return beginning_of(dataset, flags.tokens), f"validation text of {folder}"
    called = "validation text of the built-in corpus"
    return beginning_of(open_builtin(), flags.tokens), called


def _print(models: list[Insides], text: str, out: str) -> None:
    rows: list[tuple[str, ...]] = [
        ("loss on the text", *(f"{m.loss:.3f}" for m in models)),
        ("condition of E_input", *(f"{m.embeddings[0].condition:,.3g}" for m in models)),
    ]
    for place, each in enumerate(models[0].conditions):
        medians = (statistics.median(m.conditions[place].by_layer) for m in models)
        shown = (f"{value:,.3g}" for value in medians)
        rows.append((f"condition of {each.matrix}, median over layers", *shown))
    for name in ("alpha_attn", "alpha_mlp", "s_z"):
        means = [
            next((f"{f.all_layers.mean:.3g}" for f in m.factors if f.name == name), "")
            for m in models
        ]
        if any(means):
            rows.append((f"mean {name}", *means))
    print_table(f"on {text}", rows, ["", *(m.label for m in models)])
    print(f"{Path(out) / 'index.html'}")


class _Progress:
    """Progress on stderr: on a terminal one line, overwritten; elsewhere a line per stage."""

    def __init__(self, run: str) -> None:
        self.run, self.stage = run, ""
        self.live = sys.stderr.isatty()

    def __call__(self, done: str) -> None:
        stage = done.partition(":")[0]
        if self.live:
            print(f"\r\x1b[K{self.run}: {done}", end="", file=sys.stderr, flush=True)
        elif stage != self.stage:
            print(f"{self.run}: {stage}", file=sys.stderr, flush=True)
        self.stage = stage

    def end(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
