"""Mistakes on a command line, from the parser's own events to one line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
import tyro
from tyro import _errors

from spherelm.errors import UserError
from spherelm.flags import given, long_forms, parse, value_of


@dataclass(frozen=True)
class Section:
    width: int = 8
    """How wide."""
    steps_of_warmup: int | None = None
    """Steps."""
    normed: bool = True
    """Whether."""

    def __post_init__(self) -> None:
        if self.width % 2:
            raise UserError(f"section.width must be even, not {self.width}")


@dataclass(frozen=True)
class Flags:
    """For tests."""

    run: tyro.conf.Positional[str]
    """A folder with a run. There may be several."""
    out: str
    """Where to."""
    mode: Literal["fast", "slow"] = "fast"
    """How."""
    rate: float | None = None
    """How fast."""
    sizes: tuple[int, ...] = ()
    """How large."""
    section: Section = field(default_factory=Section)


MISTAKES = {
    _errors.UnrecognizedArgs: {
        "r --out o --mod slow": "there is no option --mod; did you mean --mode?",
        "r --out o --mod=slow": "there is no option --mod=slow; did you mean --mode?",
        "r --out o --widht 3": "there is no option --widht; did you mean --section.width?",
        "r --out o --section.no-norm": "did you mean --section.no-normed?",
        "r --out o --zzz": "there is no option --zzz (",
        "r --out o --run r": "there is no option --run; RUN is given by itself, without one (",
        "r --out o --save-dir x": "there is no option --save-dir; did you mean --out? (",
        "r --out o --learning-rate 1": "there is no option --learning-rate (",  # nor --lr here
        "r --out o --warmup 1": "did you mean --section.steps-of-warmup? (",
        "r --out o more": "'more' is one word too many",
        "r --out o --section.no-normed more": "takes no value, not 'more'; leave that out",
        "r --out o --section.normed=no": "'no'; did you mean --section.no-normed?",
    },
    _errors.MissingArgs: {
        "r": "--out must be given (",
        "": "--out and RUN must be given (",
        "r --oot o": "there is no option --oot; did you mean --out?",
    },
    _errors.InvalidChoice: {
        "r --out o --mode quick": "--mode must be one of fast, slow, not 'quick'",
    },
    _errors.BadValue: {
        "r --out": "--out needs a value (",
        "r --out o --mode": "--mode needs a value: fast, slow (",
        "--checkpoint r --out o": "no option --checkpoint; RUN is given by itself, without one (",
        "--oot o r": "there is no option --oot; did you mean --out? (",
    },
    _errors.InstantiationFailure: {
        "r --out o --section.width wide": "--section.width must be a whole number, not 'wide'",
        "r --out o --section.steps_of_warmup=1.5": (
            "--section.steps-of-warmup must be a whole number, not '1.5'"
        ),
        "r --out o --rate much": "--rate must be a number, not 'much'",
        "r --out o --sizes 1 x": "--sizes must be whole numbers",
        "r --out o --section.width 3": "section.width must be even, not 3 (",
    },
}
"""By the event that tyro makes of each: a tyro that makes others, or none, fails here."""


@pytest.mark.parametrize("columns", ["12", "80"])
@pytest.mark.parametrize("event", MISTAKES)
def test_a_mistake_is_one_line_however_wide_the_terminal_is(
    event: type[_errors.ParseErrorEvent],
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Nothing is drawn, so nothing can be wrapped, or lost with a frame."""
    monkeypatch.setenv("COLUMNS", columns)
    fired: list[_errors.ParseErrorEvent] = []
    fire = _errors._fire
    monkeypatch.setattr(_errors, "_fire", lambda event: (fired.append(event), fire(event)))
    for line, says in MISTAKES[event].items():
        with pytest.raises(UserError) as refusal:
            parse(Flags, line.split(), "verb")
        assert says in str(refusal.value)
        assert str(refusal.value).endswith("(spherelm verb --help lists the options)")
        assert "\n" not in str(refusal.value)
        assert isinstance(fired.pop(), event)
    assert capfd.readouterr() == ("", "")


def test_an_event_that_is_not_known_yet_is_no_empty_line() -> None:
    from spherelm.flags.mistakes import explain

    assert "cannot be understood (ParseErrorEvent)" in explain(
        _errors.ParseErrorEvent("spherelm verb"), [], Flags("r", "o")
    )


def test_a_flag_for_several_values_needs_one() -> None:
    """As with a shell's variable that is empty: nothing is not the same as unset."""
    for argv in (["r", "--out", "o", "--sizes"], ["r", "--sizes", "--out", "o"]):
        with pytest.raises(UserError, match="--sizes needs a value"):
            parse(Flags, argv, "verb")
    assert parse(Flags, ["r", "--out", "o"], "verb").sizes == ()


def test_a_short_form_may_be_meant() -> None:
    with pytest.raises(UserError, match=r"no option --widt; did you mean --width\?"):
        parse(Flags, ["r", "--out", "o", "--widt", "3"], "verb", {"--width": "--section.width"})


def test_a_word_too_many_may_have_been_meant_for_an_option() -> None:
    with pytest.raises(UserError, match=r"'slow' is one word too many: .* did you mean --mode slo"):
        parse(Flags, ["r", "slow", "--out", "o"], "verb", meant=lambda word: f"--mode {word}")


def test_options_of_one_ending_are_all_named() -> None:
    @dataclass(frozen=True)
    class Rates:
        gpt_lr: float = 1.0
        ngpt_lr: float = 1.0

    with pytest.raises(UserError, match=r"no option --lr; did you mean --gpt-lr or --ngpt-lr\?"):
        parse(Rates, ["--lr", "1"], "verb")


def test_defaults_may_be_others() -> None:
    flags = parse(Flags, ["r", "--out", "o"], "verb", mode="slow", section=Section(4))
    assert flags == Flags("r", "o", "slow", section=Section(4))


def test_a_flag_is_given_whatever_its_value_and_spelling() -> None:
    words = ["--steps", "8", "--section.steps_of_warmup=1", "a_b", "--section.no-normed"]
    argv = long_forms(words, {"--steps": "--t.s"})
    assert argv == ["--t.s", "8", "--section.steps-of-warmup=1", "a_b", "--section.no-normed"]
    assert given(argv) == {"t.s", "section.steps_of_warmup", "section.normed"}


@pytest.mark.parametrize("default", [True, False])
def test_a_switch_has_both_forms_whatever_its_default(default: bool) -> None:
    for word, value in {"--section.normed": True, "--section.no_normed": False}.items():
        flags = parse(Flags, ["r", "--out", "o", word], "verb", section=Section(normed=default))
        assert flags.section.normed is value


def test_a_value_is_known_before_all_are_parsed() -> None:
    for argv in (["--out", "a=b"], ["--out=a=b"], ["x", "--out", "a=b", "--outer", "c"]):
        assert value_of("--out", argv) == "a=b"
    for argv in ([], ["--out"], ["--outer", "a"]):
        assert value_of("--out", argv) is None
    with pytest.raises(UserError, match="--out is given 2 times; give it once"):
        value_of("--out", ["--out", "a", "--out=a"])
    for argv in (["--out="], ["--out", ""]):
        with pytest.raises(UserError, match="--out is empty; give it a value, or leave it out"):
            value_of("--out", argv)


def test_a_name_of_a_folder_is_not_empty() -> None:
    @dataclass(frozen=True)
    class Names:
        runs: tyro.conf.Positional[tuple[str, ...]]
        out: str
        text: tuple[str, ...] = ()
        prompt: str = ""

    assert parse(Names, ["r", "--out", "o", "--prompt", ""], "verb").prompt == ""
    for argv in (["r", "", "--out", "o"], ["r", "--out", ""], ["r", "--out", "o", "--text", ""]):
        with pytest.raises(UserError, match=r"(runs|--out|--text) is empty; name a file or folder"):
            parse(Names, argv, "verb")
