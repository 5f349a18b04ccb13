"""What is printed fits the terminal, whole numbers and all, and can be shown by it."""

from __future__ import annotations

import pytest

from spherelm import console

HEAD = ("model", "bits per byte", "tokens", "tokenizer")
ROWS = [
    ("runs/a-model-with-a-long-name-of-its-own", "1.2345", "1,234,567", "a byte-level BPE"),
    ("[bold]b", "12.3456", "1", "bytes"),
]


@pytest.mark.parametrize("width", [20, 44, 56, 64, 80, 120, 200])
def test_a_table_fits_and_breaks_no_number(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    title = "a title that is longer than the table is"
    console.print_table(title, ROWS, HEAD, words=["tokenizer"], caption="a caption")
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.split("\n")) <= width
    for number in ("1.2345", "1,234,567", "12.3456"):
        assert number in shown
    assert "[bold]b" in shown
    joined = " ".join(shown.replace("│", " ").replace("┃", " ").split())
    for words in (title, "a caption"):
        assert words in joined
    form = "frames" if "┏" in shown else "list" if "  tokens: 1" in shown else "columns"
    assert form == {20: "list", 44: "list", 56: "columns"}.get(width, "frames")


def test_frames_are_whole_at_every_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = ("preset", *(f"{n} GPUs" for n in (2, 4, 8, 16, 32, 64, 128)))
    rows = [("ngpt-0.5b-4k", *["117.1"] * 7)]
    framed = 0
    for width in range(50, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        console.print_table(None, rows, head)
        lines = capsys.readouterr().out.rstrip("\n").split("\n")
        assert max(map(len, lines)) <= width
        if "┏" in lines[0]:
            framed += 1
            assert all(line[-1] in "┓┃┩│┘" for line in lines), "\n".join(lines)
            assert sum(line.count("117.1") for line in lines) == 7
    assert framed > 15  # 72 columns hold the numbers, 84 all heads in one line


def test_a_table_without_frames(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    rows = [("a name of four words", "1.25", "17"), ("b", "1,024.50", "3")]
    console.print_table("Title", rows, ("what", "loss in nats", "tokens"))
    assert capsys.readouterr().out.split("\n") == [
        "Title",
        "what               loss in  tokens",
        "                      nats",
        "a name of four        1.25      17",
        "words",
        "b                 1,024.50       3",
        "",
    ]


def test_an_empty_table_has_its_head(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for width in ("12", "80"):
        monkeypatch.setenv("COLUMNS", width)
        console.print_table("None yet", [], ("name", "loss"))
        assert "None yet" in " ".join(capsys.readouterr().out.split())


def test_letters_that_ascii_does_not_have() -> None:
    def plain(text: str) -> str:
        return text.encode("ascii", console.PLAIN).decode()

    assert plain("4 · d_model × 2 → α ± 1…") == "4 * d_model x 2 -> alpha +- 1..."
    assert plain("größe 漢 \U0001f600") == r"gr\xf6\xdfe \u6f22 \U0001f600"
    assert "größe ×".encode("latin-1", console.PLAIN).decode("latin-1") == "größe ×"


def test_text_is_broken_where_the_terminal_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    text = console.paragraph("one\ntwo " + "words " * 20)
    assert all(len(line) <= 44 for line in text.split("\n"))
    assert text.startswith("one two words")
    line = "spherelm train --data tokens --out runs/mine --steps 2000"
    command = console.command(line)
    assert all(len(part) <= 44 for part in command.split("\n"))
    assert " ".join(command.replace("\\\n", " ").split()) == line
    monkeypatch.setenv("COLUMNS", "400")
    assert max(map(len, console.paragraph("word " * 200).split("\n"))) <= 100
    monkeypatch.setenv("COLUMNS", "1")
    assert console.entries("title", [("--flag", "what it is good for")]) == (
        "title\n  --flag\n      what it is\n      good for"
    )


def test_numbers_are_rounded_before_their_unit_is_chosen() -> None:
    counts = {0: "0", 999: "999", 999.7: "1k", 1000: "1k", 1234567: "1.23M", 999_499: "999k"}
    counts |= {999_700: "1M", 999_999_999: "1B", 2e9: "2B", 1e12: "1T"}
    assert {value: console.format_count(value) for value in counts} == counts
    flops = {12_345: "12,345 FLOPs", 999_999: "1 MFLOPs", 7.28e6: "7.28 MFLOPs"}
    flops |= {999.7e6: "1 GFLOPs", 1e18: "1 EFLOPs"}
    assert {value: console.format_flops(value) for value in flops} == flops


def test_one_thing_is_told_in_the_singular() -> None:
    said = {0: "0 runs", 1: "1 run", 2: "2 runs", 1200: "1,200 runs"}
    assert {number: console.counted(number, "run") for number in said} == said


def test_times_are_told_in_the_unit_that_one_reads() -> None:
    told = {0.4: "0s", 59.4: "59s", 59.7: "1m00s", 61: "1m01s", 3599.7: "1h00m", 3725: "1h02m"}
    told |= {48 * 3600: "2.0 days", 48 * 3600 - 1: "47h59m", 60 * 3600: "2.5 days"}
    assert {seconds: console.format_seconds(seconds) for seconds in told} == told
