"""A real Chromium, spoken to through a pipe: what a page logs, asks for, and does when clicked."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 30.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
_START = """
import os, sys
profile, theirs_in, theirs_out, *command = sys.argv[1:]
os.dup2(int(theirs_in), 103)
os.dup2(int(theirs_out), 104)
os.dup2(103, 3)
os.dup2(104, 4)
os.execv(command[0], [*command, f"--user-data-dir={profile}"])
"""
"""The browser reads what it is told from descriptor 3 and answers on descriptor 4."""


class Page:
    """One page; `errors` and `requests` are what happened so far."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._rest = to_browser, from_browser, b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Ask the browser for something, and wait for its answer."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == number:
                assert "error" not in heard, heard
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser says nothing"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        self._note(heard.get("method"), heard.get("params", {}))
        return heard

    def _note(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, file: Path) -> None:
        """Load a file and wait until all of it is there."""
        self._loaded = False
        self.call("Page.navigate", url=file.as_uri())
        while not self._loaded:
            self._hear()

    def run(self, script: str) -> Any:
        """The value of an expression in the page, or what it promises."""
        how = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=script, **how)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def size(self, width: int, height: int = 900) -> None:
        """Look at the page through a window of this size, without the bars beside it."""
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def medium(self, kind: str = "screen", scheme: str = "light") -> None:
        """Show the page on a `screen` or as `print`, to one who prefers `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=kind, features=[feature])

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer to a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def printed(self) -> bytes:
        """The page as a PDF file on A4."""
        sheet = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        answer = self.call("Page.printToPDF", **sheet)
        return base64.b64decode(answer["data"])


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A headless Chromium with a profile of its own; a test that asks for one where there is none
    is skipped."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    start = [sys.executable, "-c", _START, str(profile)]
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(
            [*start, str(theirs_in), str(theirs_out), CHROMIUM, *_FLAGS],
            pass_fds=(theirs_in, theirs_out),
            stdout=nowhere,
            stderr=nowhere,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        process.wait(10)
