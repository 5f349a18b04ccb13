"""The paper's tasks: a model whose scores are known by hand, and the same numbers from both sides.

The model is a real GPT that is a bigram table: embeddings are unit vectors, blocks add nothing, and
the logits after byte a are row a of the table.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from spherelm import ModelConfig, Transformer, __version__
from spherelm.cli import main
from spherelm.data.tokenizer import ByteTokenizer
from spherelm.eval import harness
from spherelm.eval.harness import (
    FEWSHOT_SEED,
    MAX_NEW_TOKENS,
    Answers,
    _templates_compiled_once,
    average_accuracy,
    evaluate_task,
    harness_model,
)
from spherelm.eval.journal import Journal
from spherelm.eval.tasks import PAPER_TASKS, choose_tasks
from spherelm.generation.engine import Engine
from spherelm.generation.text import generate_text
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


def test_settings_are_the_harness_s_own() -> None:
    """What is not given to it, the harness decides: the choice of examples, the longest answer."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    defaults = inspect.signature(lm_eval.simple_evaluate).parameters
    assert defaults["fewshot_random_seed"].default == FEWSHOT_SEED
    assert HFLM.max_gen_toks.fget(None) == MAX_NEW_TOKENS


def test_a_prompt_leaves_room_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a context of 64, ten tokens for the answer; half of it where more are asked for."""
    asked: list[tuple[list[list[int]], int]] = []

    def note(engine: Engine, tokenizer: Any, prompts: Any, **settings: Any) -> list[str]:
        asked.append((prompts, settings["max_new_tokens"]))
        return generate_text(engine, tokenizer, prompts, **settings)

    monkeypatch.setattr(harness, "generate_text", note)
    prompt = "one prompt that is longer than the context " * 3
    for budget in (10, 50):
        settings = {"until": ["\0"], "max_gen_toks": budget}
        (text,) = answers(byte_model(context=64)).texts([(prompt, settings)])
        assert text
    ids = BYTES.encode(prompt)
    assert asked == [([ids[-54:]], 10), ([ids[-32:]], 32)]


def answers(model: Transformer, journal: Journal | None = None) -> Answers:
    return Answers(model, BYTES, 2, None, Journal() if journal is None else journal)


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


def test_batches_have_few_shapes() -> None:
    model = byte_model(context=80)
    shapes = set()
    model.register_forward_pre_hook(lambda _, inputs: shapes.add(inputs[0].shape[1]))
    answers(model).loglikelihoods([([1] * n, [2]) for n in range(1, 100)])
    assert shapes == {32, 64, 80}


def test_what_does_not_fit_is_cut_off_on_the_left() -> None:
    model = byte_model(context=16)
    context, target = list(range(40)), [7, 8, 9]
    ((value, _),) = answers(model).loglikelihoods([(context, target)])
    with torch.no_grad():
        logp = model(torch.tensor([[*context, *target][-17:-1]]))[0].log_softmax(-1)
    expected = sum(float(logp[-3 + i, t]) for i, t in enumerate(target))
    assert math.isclose(value, expected, rel_tol=1e-5)


def test_rolling_likelihood_is_the_loss_of_the_text() -> None:
    from spherelm.eval.loss import text_loss

    model, text = byte_model(context=16), "a text of more than sixteen bytes"
    measured = text_loss(model, BYTES, [text])
    total = answers(model).rolling(text)
    assert math.isclose(total, -measured.loss * measured.tokens, rel_tol=1e-5)


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


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(write_task_files(tmp_path / "data"))
    run = str(write_run(tmp_path / "run", byte_model()))
    out = tmp_path / "out"
    arguments = ["eval", "tasks", run, "--tasks", "wsc273,lambada_openai", "--data", data]
    options = ["--limit", "2", "--device", "cpu", "--out", str(out), "--json"]
    assert main([*arguments, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    (model,) = report["models"]
    assert model["tasks"]["wsc273"]["examples"] == 2
    assert model["average_accuracy"] is None
    environment = model["environment"]
    assert environment["checkpoint"] == next((tmp_path / "run" / "checkpoints").iterdir()).name
    assert (environment["dtype"], environment["batch_size"]) == ("float32", 16)
    assert environment["spherelm"] == __version__
    assert environment["torch"] == torch.__version__
    assert environment["lm_eval"] == version("lm_eval")
    assert "thread" in environment["device"]
    kept = (out / "answers.jsonl").read_text()
    assert main([*arguments, *options]) == 0
    assert json.loads(capsys.readouterr().out) == report
    assert (out / "answers.jsonl").read_text() == kept
    assert json.loads((out / "tasks.json").read_text()) == report
    # Answers in another precision are other answers; those before are kept beside them.
    assert main([*arguments, *options, "--dtype", "bf16"]) == 0
    (other,) = json.loads(capsys.readouterr().out)["models"]
    assert other["environment"]["dtype"] == "bfloat16"
    both = (out / "answers.jsonl").read_text()
    assert both.startswith(kept)
    assert len(both) > 1.5 * len(kept)


def test_several_models_in_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_task_files(tmp_path / "data")
    write_run(tmp_path / "one", byte_model())
    write_run(tmp_path / "two", byte_model(n_layers=1))
    arguments = ["eval", "tasks", "--tasks", "wsc273,lambada_openai", "--data", "data"]
    arguments += ["--limit", "2", "--device", "cpu", "--out", "out"]
    alone = []
    for run in ("one", "two"):
        assert main([*arguments[:2], run, *arguments[2:], "--json"]) == 0
        alone += json.loads(capsys.readouterr().out)["models"]
    assert main([*arguments[:2], "one", "two", *arguments[2:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == alone
    for columns in ("200", "44"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main([*arguments[:2], "one", "two", *arguments[2:]]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.split("\n"))) <= int(columns)
        for model in alone:
            assert f"{model['tasks']['lambada_openai']['perplexity']:.4f}" in shown
    assert main([*arguments[:2], "one", "missing", *arguments[2:]]) == 2
    said = capsys.readouterr()
    assert "missing" in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "nonsense"], "there is no task 'nonsense'"),
        (["--limit", "0"], "--limit must be a whole number of at least 1"),
        (["--data", "nowhere"], "cannot read the task file"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "tasks", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
