"""Operators for torch.compile with little around them.

`torch.library.custom_op` puts autograd and the compiler's guards around every call, 13 µs of the
host where a bare operator takes 5 (torch 2.13). A step in eight bits calls some 600 of them, all
inside autograd functions of ours, where nothing of that is needed.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("spherelm", "FRAGMENT")


def operator(name: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Makes `spherelm::name` of a function of tensors whose results are new; `fake` gives tensors
    like its results, and computes nothing."""

    def register(function: Callable[..., Any]) -> Any:
        schema = torch.library.infer_schema(function, mutates_args=())
        _LIBRARY.define(name + schema)
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"spherelm::{name}", fake, lib=_LIBRARY)
        return getattr(torch.ops.spherelm, name).default

    return register
