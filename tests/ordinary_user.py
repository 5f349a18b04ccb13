"""Tests may run as root, who may do everything: be nobody for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """What is not allowed to others is not allowed here."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
