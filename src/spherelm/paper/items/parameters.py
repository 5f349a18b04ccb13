"""Tables 2 and 3: parameters of the models, and of their optimization."""

from __future__ import annotations

from spherelm import presets
from spherelm.model.config import ARCH_NAMES, ARCHS
from spherelm.model.flops import count_parameters
from spherelm.paper import reported
from spherelm.paper.item import Item
from spherelm.paper.points import MODELS, Point
from spherelm.paper.result import Cell, Column, Result, Table, both
from spherelm.paper.sizes import PAPER
from spherelm.paper.workbench import Workbench


def _make(bench: Workbench) -> Result:
    columns = [
        Column("model"),
        *both("layers"),
        *both("width"),
        *both("heads"),
        *both("parameters", "M", digits=1),
        Column("of them learned factors", "M", "ours", digits=3),
    ]
    rows: list[list[Cell]] = []
    for model in MODELS:
        for arch in ARCHS:
            shape = PAPER.config(Point(arch, model)).model
            layers, width, heads = reported.SHAPES[model]
            count = count_parameters(shape)
            rows.append(
                [
                    f"{ARCH_NAMES[arch]} {model}",
                    *(shape.n_layers, layers, shape.d_model, width, shape.n_heads, heads),
                    count.total / 1e6,
                    reported.PARAMETERS[arch, model] / 1e6,
                    count.factors / 1e6,
                ]
            )
    tables = [
        Table("parameters", "The paper's models (Table 2)", columns, rows),
        _optimization(),
    ]
    if not bench.size.is_papers:
        tables.insert(1, _stand_ins(bench))
    return Result(
        tables,
        notes=[
            "Counted from the configurations, without building a model: the presets gpt-0.5b-1k, "
            "ngpt-0.5b-1k, gpt-1b-1k and ngpt-1b-1k. The paper truncates its counts to one "
            "decimal place instead of rounding.",
        ],
    )


def _stand_ins(bench: Workbench) -> Table:
    columns = [
        Column("model"),
        Column("in place of"),
        Column("layers", whose="ours"),
        Column("width", whose="ours"),
        Column("heads", whose="ours"),
        Column("parameters", whose="ours"),
        Column("of them learned factors", whose="ours"),
    ]
    rows: list[list[Cell]] = []
    for model in MODELS:
        for arch in ARCHS:
            shape = bench.size.config(Point(arch, model)).model
            count = count_parameters(shape)
            numbers = shape.n_layers, shape.d_model, shape.n_heads, count.total, count.factors
            name = f"{ARCH_NAMES[arch]} {bench.size.short_name(model)}"
            rows.append([name, f"{ARCH_NAMES[arch]} {model}", *numbers])
    return Table("stand-ins", f"What stands for them at {bench.size.name}", columns, rows)


def _optimization() -> Table:
    found: dict[str, list[Cell]] = {name: [name] for name in reported.OPTIMIZATION}
    for place, arch in enumerate(ARCHS):
        optim = presets.get(f"{arch}-0.5b-1k").optim
        ours = {
            "optimizer": "AdamW" if optim.algorithm == "adamw" else optim.algorithm,
            "weight decay": f"{optim.weight_decay:g}",
            "warmup steps": f"{optim.warmup_steps}",
            "schedule": optim.schedule,
            "final learning rate": f"{optim.final_lr:g}",
        }
        for name, values in reported.OPTIMIZATION.items():
            found[name] += [ours[name], values[place]]
    columns = [Column("setting"), *(column for arch in ARCHS for column in both(ARCH_NAMES[arch]))]
    return Table("optimization", "Settings of the optimizer (Table 3)", columns, [*found.values()])


ITEM = Item(
    "parameters",
    "Tables 2 and 3",
    "Parameters of models and optimizer",
    "layers, width, heads and parameters of the paper's models, and the optimizer's settings",
    lambda size: [],
    _make,
    weights=False,
)
