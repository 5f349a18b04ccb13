"""A decode step as one CUDA graph: a single launch in the place of hundreds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spherelm.generation.cached import Cache

Decode = Callable[[Tensor, Tensor, Cache, int], Tensor]
"""tokens (B,), positions (B,), cache, span -> logits (B, V)"""


class DecodeGraph:
    """A decode step for one cache and span, replayed.

    A decode step writes the same keys however often it runs on the same inputs, so the runs that
    warm up and capture may use the caller's tokens and leave the cache as one step would.
    """

    WARM_UPS = 3

    def __init__(
        self, decode: Decode, cache: Cache, span: int, tokens: Tensor, positions: Tensor
    ) -> None:
        self._tokens, self._positions = tokens.clone(), positions.clone()

        def run() -> Tensor:
            return decode(self._tokens, self._positions, cache, span)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = run()

    def __call__(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits of the step, (B, V), in a tensor that the next call overwrites."""
        self._tokens.copy_(tokens)
        self._positions.copy_(positions)
        self._graph.replay()
        return self._logits
