"""Operators for torch.compile with little overhead.

`torch.library.custom_op` wraps every call in autograd and the compiler's guards, which takes 13 µs
on the host; a bare operator takes 5 (torch 2.13). An FP8 step calls some 600 of them, all inside
our own autograd functions, which need neither.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("spherelm", "FRAGMENT")


def operator(name: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function of tensors that returns new tensors as the operator `spherelm::name`;
    `fake` returns empty tensors like its results."""

    def register(function: Callable[..., Any]) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=())
        _LIBRARY.define(name + schema)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"spherelm::{name}", fake, lib=_LIBRARY)
        return getattr(torch.ops.spherelm, name).default

    return register
