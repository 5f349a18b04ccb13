"""The hub: never asked for a misspelt path, and given up in seconds where nobody answers."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from spherelm.cli import main
from spherelm.data import hub
from spherelm.data.tokenizer_load import load_tokenizer
from spherelm.errors import UserError
from tests.saved_runs import byte_model, write_run

pytest.importorskip("tokenizers")


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said that there is no network."""
    for name in ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hub, "PATIENCE", 0.5)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("./tokenizr", "tokenizer"),
        ("data/tokenizr", None),
        ("data/tokenizr/", None),
        ("/data/tokenizer", None),
        ("~/tokenizer", "tokenizer"),
        ("some/where/else", None),
        ("tokenizr", "tokenizer"),
        ("tokenizer.jsn.json", None),
        ("my tokenizer", "tokenizer"),
    ],
)
@pytest.mark.usefixtures("online")
def test_a_misspelt_path_contacts_nobody(
    spec: str, meant: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("the network was asked")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "data").mkdir()
    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(UserError) as refusal:
        load_tokenizer(spec)
    hint = "" if meant is None else f"; did you mean {meant!r}?"
    assert str(refusal.value) == f"tokenizer {spec} does not exist{hint}"


@pytest.mark.parametrize("fault", ["refuses", "hangs", "offline"])
@pytest.mark.usefixtures("online")
def test_a_hub_that_does_not_answer_is_given_up(
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("datasets")

    def connect(*_: Any, **__: Any) -> NoReturn:
        if fault == "hangs":
            time.sleep(20)
        raise ConnectionRefusedError("nobody is there")

    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, connect)
    monkeypatch.setattr(socket.socket, "connect", connect)
    if fault == "offline":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("some words")
    write_run(Path("run"), byte_model())
    before = sorted(tmp_path.rglob("*"))
    commands = [
        ["prepare", "text.txt", "--out", "new", "--tokenizer", "nobody/has-this"],
        ["prepare", "hf:nobody/has-this", "--out", "new"],
        ["eval", "tasks", "run", "--tasks", "wsc273", "--device", "cpu"],
    ]
    for command in commands:
        with contextlib.suppress(ImportError):  # what is imported for the first time takes longer
            import datasets  # noqa: F401
            import lm_eval.tasks  # noqa: F401
        began = time.monotonic()
        assert main(command) == 2
        assert time.monotonic() - began < 15
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert "huggingface.co does not answer" in said
    assert [path for path in sorted(tmp_path.rglob("*")) if "cache" not in path.parts] == before
    assert not hub._is_offline() or fault == "offline"


@pytest.mark.usefixtures("online")
def test_the_way_may_lead_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], timeout: float) -> Any:
        asked.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    assert hub.answers()
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert hub.answers()
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example:81")
    assert hub.answers()
    assert asked == [("huggingface.co", 443), ("proxy.example", 3128), ("mirror.example", 81)]


@pytest.mark.parametrize("name", ["https_proxy", "all_proxy"])
@pytest.mark.parametrize("proxy", ["proxy.example:3128", "http://me:secret@proxy.example:3128"])
@pytest.mark.usefixtures("online")
def test_a_proxy_is_named_as_the_libraries_take_it(
    name: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], timeout: float) -> Any:
        asked.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv(name, proxy)
    assert hub.answers()
    assert asked == [("proxy.example", 3128)]


@pytest.mark.usefixtures("online")
def test_what_is_here_is_opened_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "answers", lambda: pytest.fail("the network was asked"))
    with hub.asked(str, here=True):
        assert not hub._is_offline()


@pytest.mark.parametrize("before", [None, "0"])
@pytest.mark.usefixtures("online")
def test_a_hub_that_was_silent_once_is_asked_again(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, hub.OFFLINE, False)
    monkeypatch.setattr(hub, "answers", lambda: False)
    if before is not None:
        monkeypatch.setenv(hub.OFFLINE, before)
    with hub.asked(str):
        assert hub._is_offline()
        assert constants.HF_HUB_OFFLINE
    assert os.environ.get(hub.OFFLINE) == before
    assert constants.HF_HUB_OFFLINE is False
