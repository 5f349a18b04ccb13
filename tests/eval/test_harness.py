"""The paper's tasks: a model whose scores are known by hand, and the same numbers from both sides.

The model is a real GPT that is a bigram table: embeddings are unit vectors, blocks add nothing, and
the logits after byte a are row a of the table.
"""

from __future__ import annotations

import inspect
import itertools
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from spherelm import ModelConfig, Transformer
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.eval.answers import MAX_NEW_TOKENS, Answers
from spherelm.eval.harness import (
    FEWSHOT_SEED,
    _templates_compiled_once,
    average_accuracy,
    evaluate_task,
    harness_model,
    load_task,
)
from spherelm.eval.tasks import PAPER_TASKS, choose_tasks
from spherelm.hf.export import export_to_hf
from tests.eval.task_files import ARC, HELLASWAG, LAMBADA, WINOGRANDE, write_task_files
from tests.saved_runs import byte_model, write_run

pytest.importorskip("lm_eval")
BYTES = ByteTokenizer()
CHAIN = ": a;b!c?d\n"
"""What greedy decoding says after a colon: each byte has one follower."""


def bigram_table() -> Tensor:
    """log p(b | a), (257, 257): drawn at random, but for the chain and a space after y."""
    table = torch.randn(257, 257, generator=torch.Generator().manual_seed(5)) * 2
    for first, second in [*itertools.pairwise(CHAIN), ("y", " ")]:
        table[ord(first), ord(second)] = 12.0
    return table.log_softmax(-1)


def bigram_model(table: Tensor) -> Transformer:
    model = Transformer(
        ModelConfig(
            arch="gpt", vocab_size=257, d_model=258, n_layers=1, n_heads=1, d_mlp=2, context=1024
        )
    )
    assert model.E_output is not None
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:
                p.zero_()
        model.E_input.fill_diagonal_(1.0)
        # RMSNorm of a unit vector has this one coordinate.
        coordinate = 1 / math.sqrt(1 / 258 + 1e-6)
        model.E_output[:, :257] = table.T / coordinate
    return model


TABLE = bigram_table()


def log_p(context: str, continuation: str) -> float:
    """By hand: the sum over the continuation's bytes."""
    text = (context + continuation).encode()
    n = len(continuation.encode())
    return sum(float(TABLE[text[i - 1], text[i]]) for i in range(len(text) - n, len(text)))


def best(scores: list[float]) -> int:
    return scores.index(max(scores))


def test_each_metric_by_hand(tmp_path: Path) -> None:
    data = write_task_files(tmp_path)
    lm = harness_model(Answers(bigram_model(TABLE), BYTES, batch_size=3))
    measured = {
        task.name: evaluate_task(task, lm, data, limit=2 if task.shots else None)
        for task in PAPER_TASKS
    }

    def choices(context: str, options: list[str]) -> tuple[int, int]:
        scores = [log_p(context, " " + option) for option in options]
        return best(scores), best([s / len(o) for s, o in zip(scores, options, strict=True)])

    picked = [choices(f"Question: {r['question']}\nAnswer:", r["choices"]) for r in ARC]
    arc = measured["arc_easy"].metrics
    assert arc["acc"] == sum(p[0] == r["gold"] for p, r in zip(picked, ARC, strict=True)) / 3
    assert arc["acc_norm"] == sum(p[1] == r["gold"] for p, r in zip(picked, ARC, strict=True)) / 3

    picked = [
        choices(
            f"{r['activity_label']}: {r['ctx_a']} {r['ctx_b'].capitalize()}",
            [e.replace(" [step]", "") for e in r["endings"]],
        )
        for r in HELLASWAG
    ]
    swag = measured["hellaswag"].metrics
    golds = [int(r["label"]) for r in HELLASWAG]
    assert swag["acc"] == sum(p[0] == g for p, g in zip(picked, golds, strict=True)) / 2
    assert swag["acc_norm"] == sum(p[1] == g for p, g in zip(picked, golds, strict=True)) / 2

    right = 0
    for r in WINOGRANDE:
        before, after = r["sentence"].split("_")
        scores = [log_p(before + r[o], " " + after.strip()) for o in ("option1", "option2")]
        right += best(scores) == int(r["answer"]) - 1
    assert measured["winogrande"].value == right / 2

    schemas = [
        ("The dog chased the cat because ", ["the dog", "the cat"], " was angry.", 0),
        ("The man asked the boy to lift ", ["the man's", "the boy's"], " arms.", 1),
        ("The cup hit the plate. ", ["The plate", "The cup"], " broke.", 0),
    ]
    right = sum(
        best([log_p(before + o, after) for o in options]) == gold
        for before, options, after, gold in schemas
    )
    assert measured["wsc273"].value == right / 3

    words = [r["text"].rsplit(" ", 1) for r in LAMBADA]
    likelihoods = [log_p(context, " " + word) for context, word in words]
    lambada = measured["lambada_openai"].metrics
    assert math.isclose(lambada["perplexity"], math.exp(-sum(likelihoods) / 2), rel_tol=1e-4)
    assert lambada["acc"] == 1 / 2  # after y the table says " a", but no cat
    assert lambada["acc_stderr"] == pytest.approx(math.sqrt(1 / 2 * 1 / 2 / 2))

    # "a;b!c?d" for both sentences: the references agree in 7 and in 6 of 7 tokens.
    precisions = [13 / 14, 11 / 12, 9 / 10, 7 / 8]
    expected = 100 * math.exp(sum(map(math.log, precisions)) / 4)
    assert math.isclose(measured["wmt14-fr-en"].value, expected, rel_tol=1e-6)
    assert measured["wmt14-fr-en"].examples == 2

    five = [measured[t.name].value for t in PAPER_TASKS if t.metric == "acc"]
    assert average_accuracy(list(measured.values())) == pytest.approx(sum(five) / 5)
    assert average_accuracy(list(measured.values())[1:]) is None


def test_the_harness_gives_the_exported_folder_the_same_numbers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from lm_eval.models.huggingface import HFLM

    import spherelm.hf.register  # noqa: F401

    data = write_task_files(tmp_path / "data")
    model = byte_model(context=1024)
    folder = export_to_hf(write_run(tmp_path / "run", model), tmp_path / "hf")
    theirs = HFLM(pretrained=str(folder), batch_size=2, device="cpu", dtype="float32")
    ours = harness_model(Answers(model, BYTES, batch_size=3))
    for task in choose_tasks("arc_easy,wsc273,lambada_openai,wmt14-fr-en"):
        limit = 2 if task.shots else None
        expected = evaluate_task(task, theirs, data, limit)
        measured = evaluate_task(task, ours, data, limit)
        assert measured.metrics == pytest.approx(expected.metrics, rel=1e-4)


def test_shots_are_the_papers_and_in_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [task.shots for task in PAPER_TASKS] == [0, 0, 0, 0, 0, 5]
    asked: list[str] = []
    texts = Answers.texts

    def note(self: Answers, requests: Any) -> list[str]:
        asked.extend(context for context, _ in requests)
        return texts(self, requests)

    monkeypatch.setattr(Answers, "texts", note)
    (task,) = choose_tasks("wmt14-fr-en")
    lm = harness_model(Answers(byte_model(context=1024), BYTES))
    evaluate_task(task, lm, write_task_files(tmp_path), limit=2)
    assert len(asked) == 2
    for number, prompt in enumerate(asked):
        # Five sentences with their translations, none of them the one in question, and that one.
        assert prompt.count("French phrase: ") == prompt.count("English phrase:") == 6
        assert prompt.count(f"French phrase: phrase {number}\n") == 1
        assert prompt.endswith(f"French phrase: phrase {number}\nEnglish phrase:")


def test_the_examples_are_those_that_the_harness_would_draw(tmp_path: Path) -> None:
    (task,) = choose_tasks("wmt14-fr-en")
    loaded = load_task(task, write_task_files(tmp_path))["tasks"][task.name]
    drawn = [loaded.fewshot_rnd.random() for _ in range(4)]
    harness_s = random.Random(FEWSHOT_SEED)
    assert drawn == [harness_s.random() for _ in range(4)]


def test_settings_are_the_harness_s_own() -> None:
    """What is not given to it, the harness decides: the choice of examples, the longest answer."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    defaults = inspect.signature(lm_eval.simple_evaluate).parameters
    assert defaults["fewshot_random_seed"].default == FEWSHOT_SEED
    assert HFLM.max_gen_toks.fget(None) == MAX_NEW_TOKENS


def test_a_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lm_eval.utils

    environment = lm_eval.utils.env
    compiled: list[str] = []
    compile_ = type(environment).compile

    def count(self: object, source: str, *rest: object) -> object:
        compiled.append(source)
        return compile_(self, source, *rest)

    monkeypatch.setattr(type(environment), "compile", count)
    (task,) = choose_tasks("lambada_openai")
    lm = harness_model(Answers(byte_model(), BYTES))
    data = write_task_files(tmp_path)
    compiled_for = {}
    for limit in (1, 2):
        compiled.clear()
        assert evaluate_task(task, lm, data, limit).examples == limit
        compiled_for[limit] = len(compiled)
    assert 0 < compiled_for[1] == compiled_for[2]
    assert "compile" not in vars(environment)  # the harness is left as it was


def test_a_harness_without_templates_is_left_alone() -> None:
    other = SimpleNamespace(utils=SimpleNamespace())
    with _templates_compiled_once(other):
        assert vars(other.utils) == {}
