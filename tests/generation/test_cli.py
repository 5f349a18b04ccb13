"""`spherelm generate`, `export` and `import` as a user calls them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from spherelm.cli import main
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from tests.saved_runs import byte_model, write_run

GREEDY = ["--temperature", "0", "--max-new-tokens", "12", "--device", "cpu"]


def test_text_is_the_prompt_and_what_the_model_adds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = byte_model()
    run = write_run(tmp_path / "run", model)
    assert main(["generate", str(run), "--prompt", "def ", *GREEDY]) == 0
    ids = ByteTokenizer().encode("def ")
    new = Engine(model).generate(
        [ids], max_new_tokens=12, sampling=Sampling(temperature=0), stop_ids={256}
    )[0]
    assert capsys.readouterr().out == "def " + ByteTokenizer().decode(new) + "\n"


@pytest.mark.parametrize(
    ("flag", "content", "prompts"),
    [
        ("--prompts", b"a\x0cb\nc\xe2\x80\xa8d\r\n\ne", ["a\x0cb", "c\u2028d", "", "e"]),
        ("--prompts", b"one\n\n", ["one", ""]),
        ("--prompt-file", b"a\r\nb\x0c\nc\r\n", ["a\r\nb\x0c\nc"]),
    ],
)
def test_a_line_of_a_file_ends_with_its_newline_and_nothing_else(
    flag: str,
    content: bytes,
    prompts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = write_run(tmp_path / "run", byte_model())
    (tmp_path / "file").write_bytes(content)
    argv = ["generate", str(run), flag, str(tmp_path / "file"), "--json", "--device", "cpu"]
    assert main([*argv, "--max-new-tokens", "0"]) == 0
    assert [o["prompt"] for o in json.loads(capsys.readouterr().out)["outputs"]] == prompts


def test_prompts_from_a_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", byte_model())
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\nand two\n")
    assert main(["generate", str(run), "--prompts", str(prompts), "--json", *GREEDY]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert [o["prompt"] for o in outputs] == ["one", "and two"]
    capsys.readouterr()
    main(["generate", str(run), "--prompt", "and two", "--json", *GREEDY])
    alone = json.loads(capsys.readouterr().out)["outputs"]
    assert alone[0] == outputs[1]


def test_a_note_beyond_the_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", byte_model())
    assert (
        main(["generate", str(run), "--prompt", "", "--max-new-tokens", "80", "--device", "cpu"])
        == 0
    )
    assert "81 tokens, beyond the context of 64" in capsys.readouterr().err


def test_export_and_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", byte_model())
    hf, back = str(tmp_path / "hf"), str(tmp_path / "back")
    assert main(["export", str(run), "--to", "hf", "--out", hf]) == 0
    assert main(["import", hf, "--out", back, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["out"] == back
    texts = []
    for source in (str(run), hf, back):
        assert main(["generate", source, "--prompt", "x", *GREEDY]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1


NOT_TEXT = "binary is not UTF-8 text: invalid start byte at byte 3; convert it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "nowhere"], "nowhere does not exist"),
        (["generate", "RUN", "--top-p", "2"], "--top-p must be above 0"),
        (["generate", "RUN", "--prompt", "x", "--prompts", "y"], "cannot be given together"),
        (["generate", "RUN", "--prompts", "y"], "cannot read prompts"),
        (["generate", "RUN", "--prompts", "BINARY"], NOT_TEXT),
        (["generate", "RUN", "--prompt-file", "BINARY"], NOT_TEXT),
        (["generate", "RUN", "--prompt", "a", "--max-new-tokens", str(10**12)], "GiB are free"),
        (["generate", "RUN", "--tokenizer", "./none.json"], "does not exist"),
        (["export", "RUN", "--out", "RUN"], "is an input, too"),
        (["export", "RUN"], "--out"),
        (["import", "RUN", "--out", "OUT"], "already spherelm's own"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", byte_model())
    (tmp_path / "binary").write_bytes(b"two\xff")
    names = {"RUN": str(run), "OUT": str(tmp_path / "out"), "BINARY": str(tmp_path / "binary")}
    assert main([names.get(a, a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, flag in (("generate", "--min-p"), ("export", "--fold"), ("import", "--force")):
        with pytest.raises(SystemExit):
            importlib.import_module(f"spherelm.cli.{verb}").main(["--help"])
        assert flag in capsys.readouterr().out
