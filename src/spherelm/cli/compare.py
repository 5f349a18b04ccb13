"""`spherelm compare`: GPT beside nGPT on the same tokens, in one table and one page."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spherelm import cpu_isa, durable, presets
from spherelm.config import DataConfig, TrainConfig
from spherelm.console import open_console, print_table, show
from spherelm.errors import UserError
from spherelm.flags import SHORT_FORMS, long_forms, parse, value_of
from spherelm.model.config import ARCHS, Arch
from spherelm.validate import check_fields

if TYPE_CHECKING:
    from spherelm.compare.comparison import Comparison


@dataclass(frozen=True)
class CompareFlags:
    """Train GPT and nGPT on the same tokens and see how many fewer nGPT needs.

    Both get the same data in the same order; every field of the training loop and of the data is a
    flag and applies to both.

        spherelm compare --out runs/demo
    """

    out: str
    """The folder to make: two run directories, report.html, figures, result.json, and inside/,
    what both models look like inside."""
    preset: str = "nano"
    """The size of both models: nano takes about three minutes on two CPU cores. nano-muon is as
    large, and has the strongest GPT that we know, beside nGPT with Muon."""
    gpt_lr: float | None = None
    """GPT's highest learning rate. Unset: the preset's."""
    ngpt_lr: float | None = None
    """nGPT's highest learning rate. Unset: the preset's."""
    resume: Literal["never", "auto"] = "never"
    """auto: continue a comparison that was interrupted, or begin if there is none."""
    force: bool = False
    """Replace the comparison that --out holds; a folder with anything else is refused."""
    json: bool = False
    """Print the result as one JSON object."""
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_fields(self, "--")


def main(argv: list[str]) -> int:
    argv = long_forms(argv, SHORT_FORMS)
    preset = value_of("--preset", argv) or "nano"
    arch, _, size = preset.partition("-")
    if arch in ARCHS:
        raise UserError(
            f"--preset must be a size for both models, such as {size or 'nano'}, not {preset}"
        )
    base = presets.of_size(preset, "gpt")
    defaults = {"preset": preset, "data": base.data, "train": base.train}
    flags = parse(CompareFlags, argv, "compare", SHORT_FORMS, presets.as_option, **defaults)
    cpu_isa.before_products(flags.train.precision, flags.train.device)
    return _compare(flags)


def _compare(flags: CompareFlags) -> int:
    from spherelm.compare import pair as comparing
    from spherelm.compare.charts import charts_of
    from spherelm.compare.comparison import read_comparison
    from spherelm.compare.display import open_display
    from spherelm.compare.inside import look_inside_both
    from spherelm.compare.report import render
    from spherelm.data.open import open_dataset
    from spherelm.ops.device import choose_device
    from spherelm.plots import png
    from spherelm.training.memory import check_fits

    out = Path(flags.out)
    dataset = open_dataset(flags.data.path)
    comparing.check_data(dataset)
    rates: dict[Arch, float | None] = {"gpt": flags.gpt_lr, "ngpt": flags.ngpt_lr}
    runs = comparing.configure(flags.preset, flags.train, flags.data, dataset.vocab_size, rates)
    for run in runs.values():
        check_fits(run, choose_device(run.train.device))
    inputs = [dataset.path]
    with comparing.claimed(out, runs, resume=flags.resume, force=flags.force, inputs=inputs):
        with open_display(runs) as display:
            stopped = comparing.train_both(runs, dataset, out, display.reporter)
        if stopped is not None:
            display.note(f"stopped, saved {stopped.checkpoint}; continue with --resume auto")
            return 130 if stopped.stopped_by == signal.SIGINT else 0
        comparison = read_comparison(out, flags.preset, dataset)
        if png.write(charts_of(comparison), out) is None:
            display.note(png.NO_MATPLOTLIB)
        inside = look_inside_both(out, dataset, display.note)
        durable.write_text(out / "report.html", render(comparison, inside))
        durable.write_json(out / comparing.RESULT, comparison.as_json())
    return show(comparison.as_json(), flags.json, lambda: _print(comparison, out, inside))


def _print(comparison: Comparison, out: Path, inside: str | None) -> None:
    from rich.panel import Panel
    from rich.text import Text

    from spherelm.compare.table import caveat, rows, verdict

    console = open_console()
    console.print(f"\n{verdict(comparison)}", style="bold")
    console.print(caveat(comparison))
    head = ["", *(side.name for side in comparison.sides)]
    print_table(None, [(row.what, row.gpt, row.ngpt) for row in rows(comparison)], head)
    for side in comparison.sides:
        if side.arch in comparison.samples:
            sample = comparison.samples[side.arch]
            text = Text.assemble((sample.prompt, "dim"), sample.text)
            console.print(Panel(text, title=f"{side.name} writes", title_align="left"))
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)
    if inside is not None:
        console.print(f"inside: {out / inside}", soft_wrap=True)
