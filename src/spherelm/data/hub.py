"""The Hugging Face hub: asked only for possible names, and given up on within seconds.

Without a network its libraries retry for half a minute, and print a dozen lines about it. So we try
one connection first; if it fails, the libraries are told to use only their cache.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import re
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from spherelm.errors import UserError, first_line

OFFLINE = "HF_HUB_OFFLINE"
"""The switch, in the environment and in the hub's libraries, for never contacting the hub."""
PATIENCE = 4.0
"""Seconds that a connection to the hub may take."""


def may_be_a_name(spec: str) -> bool:
    """Whether `spec` can be a name on the hub, NAME or OWNER/NAME, rather than a mistyped path."""
    if not re.fullmatch(r"[\w][\w.\-]*(/[\w][\w.\-]*)?", spec, re.ASCII):
        return False
    return not Path(spec).parent.exists() if "/" in spec else nearest_here(spec) is None


def nearest_here(name: str) -> str | None:
    """A file or folder in the current directory whose name is almost `name`."""
    close = difflib.get_close_matches(name, os.listdir(), n=1, cutoff=0.8)
    return close[0] if close else None


@contextlib.contextmanager
def asked(refusal: Callable[[str], str], here: bool = False) -> Iterator[None]:
    """Use the hub's libraries, with only their cache if the hub does not answer. `here` says that
    everything is local, so the hub is not tried.

    Whatever goes wrong (the network, the name, a bug of a library: they do not tell them apart)
    becomes the one line that `refusal` makes of the reason.
    """
    online = here or answers()
    with contextlib.ExitStack() as later:
        if not online:
            _switch(os.environ, "1", later)  # first: the libraries read it when imported
            for module in ("huggingface_hub.constants", "datasets.config"):
                with contextlib.suppress(ImportError):
                    _switch(vars(importlib.import_module(module)), True, later)
        try:
            yield
        except Exception as error:
            silence = f"it is not in the cache, and {_endpoint().hostname} does not answer"
            raise UserError(refusal(first_line(error) if online else silence)) from None


def _switch(place: MutableMapping[str, Any], value: object, later: contextlib.ExitStack) -> None:
    before = place.get(OFFLINE)
    place[OFFLINE] = value
    if before is None:
        later.callback(place.pop, OFFLINE)
    else:
        later.callback(place.__setitem__, OFFLINE, before)


def _is_offline() -> bool:
    """Whether the user has switched the hub off."""
    words = (os.environ.get(name, "") for name in (OFFLINE, "TRANSFORMERS_OFFLINE"))
    return any(word.upper() in ("1", "ON", "YES", "TRUE") for word in words)


def _endpoint() -> urllib.parse.SplitResult:
    """The address that the hub's libraries use."""
    return urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")


def answers() -> bool:
    """Whether the hub, or the proxy in front of it, accepts a connection; not tried if offline."""
    if _is_offline():
        return False
    way = _endpoint()
    proxies = urllib.request.getproxies()
    proxy = proxies.get(way.scheme) or proxies.get("all")
    if proxy and not urllib.request.proxy_bypass(way.hostname or ""):
        way = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    port = way.port or (80 if way.scheme == "http" else 443)
    found: list[bool] = []

    def connect() -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((way.hostname or "", port), PATIENCE).close()
            found.append(True)

    # In a thread: looking up a name may take longer than any socket timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(found)
