"""Answers to the harness: in batches, in windows, and after an interruption as without one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from spherelm.data.tokenizer import ByteTokenizer
from spherelm.eval import answers as answering
from spherelm.eval.answers import Answers
from spherelm.eval.journal import Journal
from spherelm.generation.engine import Engine
from spherelm.generation.text import generate_text
from spherelm.model.transformer import Transformer
from tests.saved_runs import byte_model

BYTES = ByteTokenizer()


def answers(model: Transformer, journal: Journal | None = None) -> Answers:
    return Answers(model, BYTES, 2, None, Journal() if journal is None else journal)


def test_a_prompt_leaves_room_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a context of 64, ten tokens for the answer; half of it where more are asked for."""
    asked: list[tuple[list[list[int]], int]] = []

    def note(engine: Engine, tokenizer: Any, prompts: Any, **settings: Any) -> list[str]:
        asked.append((prompts, settings["max_new_tokens"]))
        return generate_text(engine, tokenizer, prompts, **settings)

    monkeypatch.setattr(answering, "generate_text", note)
    prompt = "one prompt that is longer than the context " * 3
    for budget in (10, 50):
        settings = {"until": ["\0"], "max_gen_toks": budget}
        (text,) = answers(byte_model(context=64)).texts([(prompt, settings)])
        assert text
    ids = BYTES.encode(prompt)
    assert asked == [([ids[-54:]], 10), ([ids[-32:]], 32)]


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_a_batch_answers_as_each_question_alone(batch_size: int) -> None:
    """Lengths around the multiples that batches are filled up to, and around the context."""
    model = byte_model(context=80)  # no multiple of 32
    numbers = torch.Generator().manual_seed(3)
    sizes = [(1, 1), (5, 2), (30, 2), (31, 2), (32, 1), (60, 5), (64, 9), (78, 2), (79, 2)]
    sizes += [(90, 3), (1, 80), (3, 100)]
    pairs = []
    for n_context, n_target in sizes:
        ids = torch.randint(256, (n_context + n_target,), generator=numbers).tolist()
        pairs.append((ids[:n_context], ids[n_context:]))
    with torch.no_grad():
        best = [model(torch.tensor([c]))[0, -1].argmax().item() for c, _ in pairs[:6]]
    pairs += [(c, [int(token)]) for (c, _), token in zip(pairs, best, strict=False)]

    asked = Answers(model, BYTES, batch_size, None, Journal()).loglikelihoods(pairs)
    for (context, target), (value, greedy) in zip(pairs, asked, strict=True):
        window = (context + target)[-81:]
        scored = window[-min(len(target), len(window) - 1) :]
        with torch.no_grad():
            logp = model(torch.tensor([window[:-1]]))[0].log_softmax(-1)[-len(scored) :]
        expected = sum(float(row[token]) for row, token in zip(logp, scored, strict=True))
        # float32: sums of up to 80 numbers in another order.
        assert math.isclose(value, expected, rel_tol=1e-5)
        assert greedy is (logp.argmax(-1).tolist() == scored)
    assert {greedy for _, greedy in asked} == {True, False}


def test_batches_have_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = byte_model(context=80)
    shapes, rows = set(), set()
    hidden, logits = model.hidden, model.logits
    monkeypatch.setattr(model, "hidden", lambda x: shapes.add(x.shape[1]) or hidden(x))
    monkeypatch.setattr(model, "logits", lambda h: rows.add(len(h)) or logits(h))
    answers(model).loglikelihoods([([1] * n, [2] * (n % 9)) for n in range(1, 100)])
    assert shapes == {32, 64, 80}
    assert rows == {32}, "only what is asked for"
    assert answers(model).loglikelihoods([([1, 2], [])]) == [(0.0, True)]


def test_what_does_not_fit_is_cut_off_on_the_left() -> None:
    model = byte_model(context=16)
    context, target = list(range(40)), [7, 8, 9]
    ((value, _),) = answers(model).loglikelihoods([(context, target)])
    with torch.no_grad():
        logp = model(torch.tensor([[*context, *target][-17:-1]]))[0].log_softmax(-1)
    expected = sum(float(logp[-3 + i, t]) for i, t in enumerate(target))
    assert math.isclose(value, expected, rel_tol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 32, 33, 47])
def test_rolling_likelihood_has_the_windows_of_the_harness(length: int) -> None:
    """All full but the last, which sees what is before it; else `lm_eval --model hf` had others."""
    utils = pytest.importorskip("lm_eval.utils")
    model, text = byte_model(context=16), "a text of more than three times sixteen bytes, as here"
    ids = BYTES.encode(text[:length])
    expected = 0.0
    for inputs, targets in utils.get_rolling_token_windows(ids, 256, 16, 1):
        with torch.no_grad():
            logp = model(torch.tensor([inputs]))[0, -len(targets) :].log_softmax(-1)
        expected += float(logp[range(len(targets)), targets].sum())
    assert math.isclose(answers(model).rolling(text[:length]), expected, rel_tol=1e-5)


def test_the_longest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory is short, it shows at once, and a batch is of similar lengths."""
    model, asked = byte_model(), []
    score = Answers._score

    def note(self: Answers, batch: Any) -> Any:
        asked.append([len(context) for context, _ in batch])
        return score(self, batch)

    monkeypatch.setattr(Answers, "_score", note)
    pairs = [([1] * length, [length]) for length in (3, 9, 5, 7, 2)]
    found = answers(model).loglikelihoods(pairs)
    assert asked == [[9, 7], [5, 3], [2]]
    alone = [answers(model).loglikelihoods([pair])[0][0] for pair in pairs]
    # The same sums in batches of other widths: float32, of logits around 5.
    assert [value for value, _ in found] == pytest.approx(alone, abs=1e-5)


def test_an_interrupted_evaluation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, file = byte_model(), tmp_path / "answers.jsonl"
    pairs = [([1, 2, i], [i, 5]) for i in range(7)]
    expected = answers(model).loglikelihoods(pairs)
    journal = Journal(file, "m")
    answers(model, journal).loglikelihoods(pairs[:5])
    journal.close()
    with open(file, "a") as broken:
        broken.write('{"question": "cut sho')
    journal = Journal(file, "m")
    asked = []
    resumed = answers(model, journal)
    score = resumed._score
    monkeypatch.setattr(Answers, "_score", lambda _, batch: asked.extend(batch) or score(batch))
    assert resumed.loglikelihoods(pairs) == expected
    assert len(asked) == 2
    journal.close()
    other = Journal(file, "n")
    assert not other, "answers of another model"
    other["q"] = 1
    other.close()
    assert len(Journal(file, "m")) == 7
    assert dict(Journal(file, "n")) == {"q": 1}
