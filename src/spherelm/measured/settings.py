"""What was tried: settings of rate, schedule and starting values, and the losses they ended at.

`measured.json` travels with the package, one line a setting. It is written from the records of the
study and the demo's sweep, never by hand.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spherelm import records
from spherelm.config import OWN_RATES, RunConfig
from spherelm.config_io import flatten, to_dict
from spherelm.model.flops import count_parameters

FILE = Path(__file__).parent / "measured.json"
_FORMAT, _VERSION = "spherelm measurements", 1

Fields = tuple[tuple[str, Any], ...]
"""Dotted names of a run's fields and their values, by name."""

RATES = ("optim.lr", "optim.muon_lr")
OF_KINDS = tuple(f"optim.{name}" for name in OWN_RATES if name != "muon_lr")
"""Rates of kinds of parameters, where they have their own."""
OPTIM = (
    *("schedule", "decay_share", "log_rho", "final_lr", "warmup_steps", "weight_decay"),
    *("beta2", "muon_momentum"),
)
NGPT_STARTS = ("model.alpha_attn.init", "model.alpha_mlp.init", "model.s_z.init")
GPT_STARTS = ("model.init_std",)
CHOSEN = (
    *RATES,
    *OF_KINDS,
    *(f"optim.{name}" for name in OPTIM),
    *NGPT_STARTS,
    *GPT_STARTS,
)
"""All fields that a choice is made of: the rates, and the recipe that they were tried with."""

_SIZES = ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "context")
_NO_KIND = {*CHOSEN, *(f"model.{name}" for name in _SIZES), "optim.base_d_model"}
_NO_KIND |= {"optim.base_steps"}


@dataclass(frozen=True, order=True)
class Size:
    """What the best rate may depend on, beside the number of tokens."""

    n_layers: int
    d_model: int
    parameters: int
    """In blocks: without embeddings and factors."""
    context: int
    tokens_per_step: int

    @classmethod
    def of(cls, run: RunConfig) -> Size:
        model, count = run.model, count_parameters(run.model)
        blocks = count.attention + count.mlp
        return cls(model.n_layers, model.d_model, blocks, model.context, run.tokens_per_step)


@dataclass(frozen=True)
class Setting:
    """One setting at one size and number of tokens."""

    page: str
    """Where its runs are described."""
    kind: Fields
    """What the runs were made with that is not chosen here and is no size: see `kind_of`."""
    size: Size
    tokens: int
    recipe: Fields
    """Schedule and starting values, see `recipe_of`."""
    lr: float
    muon_ratio: float
    """Muon's rate, as a multiple of `lr`; 1 without Muon."""
    losses: tuple[tuple[int, float], ...] = ()
    """Final validation losses by seed; infinite where a run diverged."""

    @property
    def diverged(self) -> bool:
        """Whether a run did, from whatever seed: such a setting was tried, and is never chosen."""
        return any(math.isinf(loss) for _, loss in self.losses)

    @property
    def rates(self) -> tuple[float, float]:
        return self.lr, self.muon_ratio

    @classmethod
    def of(cls, run: RunConfig, page: str) -> Setting:
        """The setting of a run, no loss yet."""
        optim = run.optim
        ratio = 1.0 if optim.muon_lr is None else _short(optim.muon_lr / optim.lr)
        kind, recipe = kind_of(run), recipe_of(run)
        return cls(page, kind, Size.of(run), run.tokens, recipe, optim.lr, ratio)


def kind_of(run: RunConfig) -> Fields:
    """The architecture, and whatever else of model, optimizer and precision is not as by default:
    fp32 and bf16 products are alike here, eight bits and weights stored in bf16 are not.

    Algorithms, variants and recipes are of different kinds; sizes and chosen fields are of none.
    """
    fields, plain = _deciding(run), _deciding(RunConfig())
    names = [n for n in fields if fields[n] != plain.get(n) or n == "model.arch"]
    return tuple(sorted((name, fields[name]) for name in names if name not in _NO_KIND))


def _deciding(run: RunConfig) -> dict[str, Any]:
    sections = {name: to_dict(getattr(run, name)) for name in ("model", "optim")}
    coarse = {"train.precision": "fp8"} if run.train.precision == "fp8" else {}
    if run.train.weight_storage != "fp32":
        coarse["train.weight_storage"] = run.train.weight_storage
    return dict(flatten(sections)) | coarse


def recipe_of(run: RunConfig) -> Fields:
    """Schedule and starting values, each in its unit (see `unit`), so that runs can be compared.

    What the architecture, the schedule or the optimizer does not have is left out.
    """
    fields: dict[str, Any] = {f"optim.{name}": getattr(run.optim, name) for name in OPTIM}
    if run.optim.schedule != "wsd":
        del fields["optim.decay_share"]
    if run.optim.schedule != "log":
        del fields["optim.log_rho"]
    if run.optim.algorithm != "muon":
        del fields["optim.muon_momentum"]
    own = {name: getattr(run.optim, name.split(".")[1]) for name in OF_KINDS}
    fields |= {name: lr for name, lr in own.items() if lr not in (None, run.optim.lr)}
    if run.model.arch == "ngpt":
        starts = {name: name.split(".")[1] for name in NGPT_STARTS}
        fields |= {name: run.model.resolve_scale(of).init for name, of in starts.items()}
        del fields["optim.weight_decay"]  # must be 0
    else:
        fields["model.init_std"] = run.model.matrix_std
    for name, value in fields.items():
        if name == "optim.warmup_steps":  # 70 of 702 steps and 140 of 1404 are both a tenth
            fields[name] = round(value / unit(name, run), 2)
        elif not isinstance(value, str):
            fields[name] = _short(value / unit(name, run))
    return tuple(sorted(fields.items()))


def unit(name: str, run: RunConfig) -> float:
    """What a field of the recipe is measured in, so that it carries over to another run.

    The final rate and those of kinds of parameters are shares of the highest, the warmup is one of
    the steps. alpha is "in order of 1/n_layers" (the paper; nuGPT, arXiv 2604.27077, has 0.05 /
    depth ratio, too), and GPT's deviation one of 1/sqrt(d_model), with which a matrix keeps the
    size of what it is applied to.
    """
    if name in ("optim.final_lr", *OF_KINDS):
        return run.optim.lr
    if name == "optim.warmup_steps":
        return run.train.steps
    if name.startswith("model.alpha"):
        return 1 / run.model.n_layers
    if name == "model.init_std":
        return 1 / math.sqrt(run.model.d_model)
    return 1.0


def _short(value: float) -> float:
    """Without the last digits, which sizes and roots leave."""
    return float(f"{value:.4g}")


# --- measured.json -------------------------------------------------------------------------------


def gather(runs: Iterable[tuple[RunConfig, str, float]]) -> list[Setting]:
    """All settings of (run, page, final loss), each with its losses by seed.

    The loss of a run that diverged is infinite.
    """
    losses: dict[Setting, dict[int, float]] = {}
    for run, page, loss in runs:
        losses.setdefault(Setting.of(run, page), {})[run.train.seed] = round(loss, 6)
    found = [replace(s, losses=tuple(sorted(seeds.items()))) for s, seeds in losses.items()]
    return sorted(found, key=lambda s: (s.page, s.size, str(s.kind), s.tokens, str(s.recipe), s.lr))


def to_json(settings: Iterable[Setting]) -> str:
    """The text of measured.json, a line a setting."""
    head = json.dumps({"format": _FORMAT, "version": _VERSION})
    lines = []
    for setting in settings:
        values = asdict(setting)
        values |= {name: dict(values[name]) for name in ("kind", "recipe")}
        # Null for infinity, which JSON does not know.
        values["losses"] = {s: y if math.isfinite(y) else None for s, y in setting.losses}
        lines.append(json.dumps(values))
    return f'{head[:-1]}, "settings": [\n' + ",\n".join(lines) + "\n]}\n"


def read(path: Path = FILE) -> list[Setting]:
    """The settings in a file."""
    values = records.read_format(path, _FORMAT, _VERSION)
    return [_from_json(line, path) for line in records.field(values, "settings", list, path)]


@functools.cache
def measured() -> tuple[Setting, ...]:
    """All that was measured."""
    return tuple(read())


def _from_json(values: Mapping[str, Any], path: Path) -> Setting:
    try:
        fields = {name: tuple(sorted(values[name].items())) for name in ("kind", "recipe")}
        losses = tuple(
            sorted((int(s), math.inf if y is None else y) for s, y in values["losses"].items())
        )
        size = Size(**values["size"])
        return Setting(**{**values, **fields, "size": size, "losses": losses})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise records.damaged(path, "it has a line that is no setting") from None
