"""Loss and gradients of a part of a batch; on one GPU, as a CUDA graph.

A pass of a 0.5B model is some two thousand launches. If the device executes them faster than the
host launches them, as in FP8, it waits; a graph is a single launch. It is captured from an ordinary
pass, after warm-ups that compile everything, and computes the same numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from spherelm.data.loader import Batch
from spherelm.errors import UserError
from spherelm.eval.loss import summed_loss
from spherelm.model.scaling import begin_step, keep_rounded
from spherelm.model.transformer import Transformer
from spherelm.ops.device import in_precision
from spherelm.ops.names import Precision

WARM_UPS = 2
"""Ordinary passes of a kind before it is captured; the first one compiles."""


class Kind(NamedTuple):
    """What all replays of a graph have in common."""

    shape: torch.Size
    """Of the tokens."""
    targets: int
    """In the whole step: the loss is their mean."""
    first: bool
    """Whether this is the first pass of a step; later ones add to its gradients."""


@dataclass
class Captured:
    """A pass as a graph, with the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    loss: Tensor


@dataclass
class Passes:
    """Runs the passes of a model's training steps."""

    model: Transformer
    precision: Precision
    device: torch.device
    graphs: bool
    """Whether to capture passes, where possible."""
    _seen: Counter[Kind] = field(default_factory=Counter)
    _captured: dict[Kind, Captured] = field(default_factory=dict)
    _gradients: list[Tensor | None] = field(default_factory=list)
    """Where the captured passes leave gradients, by parameter."""
    _scales: list[Tensor] | None = None
    """Where the captured passes read the scales of FP8 products."""

    def __call__(self, part: Batch, targets: int, first: bool) -> Tensor:
        """Add the gradients of the loss of `part`, divided by the step's `targets`, to the existing
        ones; in the `first` part of a step there must be none. Returns the loss, summed over the
        part's targets, in a tensor that the next call may overwrite."""
        kind = Kind(part.tokens.shape, targets, first)
        if self._to_be_captured(kind, part):
            return self._replay(part, kind)
        self._keep_rounded(not first)
        loss = self._run(part, targets)
        self._keep_rounded(False)
        return loss

    def _replay(self, part: Batch, kind: Kind) -> Tensor:
        if kind.first and self._in_8_bits:
            tokens = part.tokens.numel()
            self._scales = begin_step(self.model.layers, tokens, self._scales)
        if kind not in self._captured:
            self._captured[kind] = self._capture(part, kind)
        captured = self._captured[kind]
        captured.batch.tokens.copy_(part.tokens)
        captured.batch.targets.copy_(part.targets)
        captured.graph.replay()
        if kind.first:
            for parameter, gradient in zip(self.model.parameters(), self._gradients, strict=True):
                parameter.grad = gradient
        return captured.loss

    def _run(self, part: Batch, targets: int) -> Tensor:
        with in_precision(self.precision, self.device):
            loss = summed_loss(self.model, part)
        (loss / targets).backward()
        return loss.detach()

    def _to_be_captured(self, kind: Kind, part: Batch) -> bool:
        """Passes with documents or positions never are: their masks are made on the host."""
        if not self.graphs or part.documents is not None or part.position_ids is not None:
            return False
        self._seen[kind] += 1
        if self._seen[kind] <= WARM_UPS:
            return False
        # A captured later part adds to the gradients of a captured first one.
        ours = next(iter(self._gradients), None)
        return kind.first or (ours is not None and next(self.model.parameters()).grad is ours)

    def _capture(self, part: Batch, kind: Kind) -> Captured:
        self._keep_rounded(True)
        batch = Batch(part.tokens.clone(), part.targets.clone(), None)
        graph = torch.cuda.CUDAGraph()
        pool = next((c.graph.pool() for c in self._captured.values()), None)
        # "thread_local": other threads may read the next batch or write a checkpoint meanwhile.
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                loss = self._run(batch, kind.targets)
        except torch.OutOfMemoryError:  # `failures.explained` has the better message
            raise
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"a pass cannot be captured as a CUDA graph ({reason}); "
                "set train.cuda_graphs = false (--train.no-cuda-graphs)"
            ) from error
        self._keep_rounded(False)
        if kind.first:
            self._gradients = [p.grad for p in self.model.parameters()]
        return Captured(graph, batch, loss)

    @property
    def _in_8_bits(self) -> bool:
        return self.model.ops.hold is not None

    def _keep_rounded(self, keep: bool) -> None:
        if self._in_8_bits:
            keep_rounded(self.model.layers, keep)
