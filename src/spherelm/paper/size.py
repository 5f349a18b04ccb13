"""A size: a scale at which the paper's experiments are run, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spherelm import presets
from spherelm.config import RunConfig
from spherelm.paper.points import CONTEXTS, MODELS, Budget, Context, Model, Point
from spherelm.paper.runner import Job

CONTEXT_TOKENS: dict[Context, int] = {name: presets.CONTEXTS[name] for name in CONTEXTS}


@dataclass(frozen=True)
class Shape:
    """Layers, width and heads of a model."""

    layers: int
    width: int
    heads: int

    @property
    def fields(self) -> dict[str, int]:
        values = {"n_layers": self.layers, "d_model": self.width, "n_heads": self.heads}
        return {f"model.{name}": value for name, value in values.items()}


@dataclass(frozen=True)
class Size:
    """A scale at which the experiments are run."""

    name: str
    what: str
    """A one-line description."""
    models: Mapping[Model, Shape]
    contexts: Mapping[Context, int]
    budgets: Mapping[Budget, int]
    """In steps; at `small`, whose runs are the study's, in millions of tokens."""
    configure: Callable[[Size, Point], RunConfig]
    identify: Callable[[Size, Point], str]
    flops: float
    """FLOPs per second that one device sustains in training, to estimate costs."""
    device: str
    """The device whose hours are counted: GPU or CPU core."""
    measured: str
    """How `flops` was measured."""
    caveat: str = ""
    """What its results cannot show; printed on every page."""
    grid_models: tuple[Model, ...] = MODELS
    """Models of the large grids."""
    rates: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """Multiples of the usual learning rate, for the selection of rates."""
    rate_budget: Budget = "100k"
    insides_budget: Budget = "100k"
    """Budget of the models whose insides are shown."""
    histogram_rate: float = 1.0
    """Multiple of the usual rate: the paper's histograms use twice the rate of its ablations."""
    tokens_per_step: int = 0
    """Used at nano only, where it is the same in every context."""
    validation_tokens: int = 0
    built_in: bool = False
    """Whether built-in data, tasks and books are used if none are given."""
    workers: int = 2
    """Runs at a time, unless --workers says otherwise; 0: in the calling process."""
    hidden: bool = False

    @property
    def largest(self) -> Model:
        """The model of Figure 1."""
        return self.grid_models[-1]

    @property
    def panels(self) -> list[tuple[Model, Context]]:
        """The panels of a large grid: each of its models at every context."""
        return [(model, context) for model in self.grid_models for context in CONTEXTS]

    def config(self, point: Point) -> RunConfig:
        """The configuration of a point's run."""
        return self.configure(self, point)

    def job(self, point: Point) -> Job:
        """The run of a point."""
        return Job(self.identify(self, point), self.config(point))

    def hours(self, job: Job) -> float:
        """Hours of one device."""
        return job.flops / self.flops / 3600

    @property
    def unit(self) -> str:
        """The unit of costs."""
        return "GPU-hours" if self.device == "GPU" else "CPU-minutes"

    def amount(self, hours: float) -> str:
        """Hours of a device in that unit."""
        amount = hours if self.device == "GPU" else 60 * hours
        return f"{amount:,.0f}" if amount >= 9.95 else f"{amount:.2g}" if amount else "0"

    def cost(self, hours: float) -> str:
        return f"{self.amount(hours)} {self.unit}"

    @property
    def speed(self) -> str:
        """What one device sustains, and how that was measured."""
        tflops = self.flops / 1e12
        shown = f"{tflops:,.0f}" if tflops >= 99.95 else f"{tflops:.3g}"
        return f"{shown} TFLOP/s ({self.measured})"

    @property
    def is_papers(self) -> bool:
        return self.name == "paper"

    def model_name(self, model: Model) -> str:
        """The model's name in tables, with the paper's model it stands for."""
        shape = self.models[model]
        if self.is_papers:
            return model
        return f"{shape.layers} layers, d {shape.width} (for {model})"

    def short_name(self, model: Model) -> str:
        """The model's name in charts."""
        shape = self.models[model]
        return model if self.is_papers else f"{shape.layers}×{shape.width}"

    def context_name(self, context: Context) -> str:
        tokens = self.contexts[context]
        return context if tokens == CONTEXT_TOKENS[context] else f"{tokens} (for {context})"
