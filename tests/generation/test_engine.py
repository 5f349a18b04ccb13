"""Generation: the loop over the folded model gives what the model itself would choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spherelm import Transformer
from spherelm.errors import UserError
from spherelm.generation import engine as engine_module
from spherelm.generation import graph
from spherelm.generation.cached import generation_bytes, new_cache
from spherelm.generation.engine import Engine
from spherelm.generation.sampling import Sampling
from spherelm.model.fold import FoldedTransformer
from tests.model.tiny import perturbed, tiny_config

PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5]]
GREEDY = Sampling(temperature=0)


def generate(
    model: Transformer, prompts: Any, max_new_tokens: int, **sampling: Any
) -> list[list[int]]:
    sampled = Sampling(**sampling)
    return Engine(model).generate(prompts, max_new_tokens=max_new_tokens, sampling=sampled)


def uncached_greedy(model: Transformer, prompt: list[int], n: int) -> list[int]:
    """The most likely token again and again, from the whole sequence each time."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(n):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_greedy_equals_greedy_without_a_cache(arch: str) -> None:
    model = perturbed(tiny_config(arch=arch, context=32))
    expected = [uncached_greedy(model, prompt, 20) for prompt in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=20, temperature=0) == expected
    alone = [generate(model, [p], max_new_tokens=20, temperature=0)[0] for p in PROMPTS]
    assert alone == expected


@pytest.mark.parametrize("kept", [[1], [0, 1, 0]])
def test_a_model_that_lost_blocks_or_has_more(kept: list[int]) -> None:
    """The cache has room for the blocks there are, whatever the configuration says."""
    model = perturbed(tiny_config(context=32))
    model.blocks = nn.ModuleList(model.blocks[i] for i in kept)
    expected = [uncached_greedy(model, prompt, 8) for prompt in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=8, temperature=0) == expected


def test_stream_gives_the_same_tokens_and_none_after_a_stop() -> None:
    model = perturbed(tiny_config(context=32))
    engine = Engine(model)
    free = engine.generate(PROMPTS, max_new_tokens=20, sampling=GREEDY)
    stop = {free[0][2]}
    whole = engine.generate(PROMPTS, max_new_tokens=20, sampling=GREEDY, stop_ids=stop)
    streamed: list[list[int]] = [[] for _ in PROMPTS]
    for step in engine.stream(PROMPTS, max_new_tokens=20, sampling=GREEDY, stop_ids=stop):
        for row, token in zip(streamed, step, strict=True):
            if token is not None:
                row.append(token)
    assert streamed == whole
    assert whole[0] == free[0][: free[0].index(free[0][2])]
    assert all(stop.isdisjoint(row) for row in whole)


def test_generation_ends_early_when_all_have_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = perturbed(tiny_config(context=32))
    engine = Engine(model)
    decoded = []
    original = engine._decode
    monkeypatch.setattr(engine, "_decode", lambda *a: decoded.append(1) or original(*a))
    engine.generate([[1]], max_new_tokens=400, stop_ids=set(range(13)))
    assert len(decoded) < engine_module.LOOK_EVERY


def test_a_seed_repeats_and_another_differs() -> None:
    model = perturbed(tiny_config(context=64))
    first, again, other = (
        generate(model, PROMPTS, max_new_tokens=40, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_repetition_penalty_counts_prompt_and_new_tokens() -> None:
    model = perturbed(tiny_config(context=32))
    tokens = [3, 1]
    with torch.no_grad():
        for _ in range(20):
            logits = model(torch.tensor([tokens]))[0, -1].tolist()
            for token in set(tokens):
                logits[token] *= 0.5 if logits[token] > 0 else 2
            tokens.append(logits.index(max(logits)))
    settings = {"max_new_tokens": 20, "temperature": 0.0}
    assert generate(model, [[3, 1]], repetition_penalty=2.0, **settings) == [tokens[2:]]
    assert generate(model, [[3, 1]], **settings) != [tokens[2:]]


def test_prompts_may_be_rows_of_a_tensor() -> None:
    """As a batch of the loader is, and an array."""
    model, rows = perturbed(tiny_config()).float(), [[3, 1, 4], [1, 5, 9]]
    expected = generate(model, rows, 4, temperature=0, repetition_penalty=1.2)
    for given in (torch.tensor(rows), np.array(rows, np.uint16)):
        assert generate(model, given, 4, temperature=0, repetition_penalty=1.2) == expected
    with pytest.raises(TypeError):
        generate(model, torch.tensor([[1.5, 2.0]]), 4)


def test_no_new_tokens() -> None:
    assert generate(perturbed(tiny_config()), PROMPTS, max_new_tokens=0) == [[], [], []]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "no prompt"),
        ([[1], []], "no tokens"),
        ([[1, 13]], "the id 13"),
        ([[-1]], "the id -1"),
    ],
)
def test_bad_prompts_are_refused(prompts: list[list[int]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate(perturbed(tiny_config()), prompts, max_new_tokens=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_size_of_a_cache_is_known_before_it_is_made(dtype: torch.dtype) -> None:
    model = FoldedTransformer(Transformer(tiny_config(n_kv_heads=2)), dtype)
    cache = new_cache(model, 3, 17)
    assert generation_bytes(model, 3, 0, 17) == cache.keys.nbytes + cache.values.nbytes


def test_more_than_memory_allows_is_refused_before_allocating() -> None:
    model = perturbed(tiny_config())
    with pytest.raises(UserError, match=r"needs at least .* TiB, but .* GiB are free"):
        generate(model, [[1]], max_new_tokens=10**12)


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1]], ids=["batch", "fused"])
@pytest.mark.parametrize("compile", [False, True])
def test_cuda_graphs_change_nothing(arch: str, prompts: list[list[int]], compile: bool) -> None:
    """Longer than the shortest span, so that a second graph takes over."""
    model = perturbed(tiny_config(arch=arch, d_model=64, n_heads=4)).float().cuda()
    plain = Engine(model, cuda_graphs=False)
    graphed = Engine(model, compile=compile)
    length = engine_module.SHORTEST_SPAN + 20
    for sampling in (GREEDY, Sampling(temperature=0.8, top_k=5, seed=3)):
        expected = plain.generate(prompts, max_new_tokens=length, sampling=sampling)
        assert expected == graphed.generate(prompts, max_new_tokens=length, sampling=sampling)


class Held:
    """What a CUDA graph does, without one: the function runs on its own copies of the inputs."""

    made = 0

    def __init__(self, function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
        Held.made += 1
        self.function, self.inputs = function, [tensor.clone() for tensor in inputs]

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        for held, tensor in zip(self.inputs, inputs, strict=True):
            held.copy_(tensor)
        return self.function(*self.inputs)


@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_padded_prompts_give_the_same_text(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, where prompts of similar length share a graph and one cache after another."""
    monkeypatch.setattr(graph, "Graph", Held)
    monkeypatch.setattr(Held, "made", 0)
    model = perturbed(tiny_config(arch=arch, context=32))
    plain, graphed = Engine(model), Engine(model, fused=False)
    graphed.graphed = True
    long = [[(7 * i) % 13 for i in range(n)] for n in (40, 33, 37)]  # all padded to 48
    for prompts in ([long[0]], [long[1]], [long[2]], [long[0]]):
        expected = plain.generate(prompts, max_new_tokens=6, sampling=GREEDY)
        assert graphed.generate(prompts, max_new_tokens=6, sampling=GREEDY) == expected
    assert Held.made == 2  # one that reads, since the length came again, and one that decodes


def test_padding_is_at_most_a_quarter_and_fits_the_cache() -> None:
    for length in range(1, 5000):
        padded = engine_module.padded_length(length)
        assert length <= padded <= max(16, 1 << (length - 1).bit_length())
        assert padded <= 1.25 * length or padded - length < 16


def test_two_streams_of_one_engine_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins while the first is under way, with prompts of another length, or alike."""
    monkeypatch.setattr(graph, "Graph", Held)
    model = perturbed(tiny_config(context=64)).float()
    plain, graphed = Engine(model), Engine(model, fused=False)
    graphed.graphed = True
    for first, second in (([1, 2, 3], [4, 5]), ([1, 2, 3], [6] * 300), ([1, 2, 3], [3, 2, 1])):
        both = zip(
            *(
                graphed.stream([prompt], max_new_tokens=8, sampling=GREEDY)
                for prompt in (first, second)
            ),
            strict=True,
        )
        found = [[row[0] for row in rows] for rows in zip(*both, strict=True)]
        expected = [
            plain.generate([prompt], max_new_tokens=8, sampling=GREEDY)[0]
            for prompt in (first, second)
        ]
        assert found == expected
    assert graphed._kept is not None  # for the next


@pytest.mark.gpu
@pytest.mark.parametrize("arch", ["gpt", "ngpt"])
def test_a_prompt_read_by_a_graph_gives_the_same_text(arch: str) -> None:
    model = perturbed(tiny_config(arch=arch, d_model=64, n_heads=4)).float().cuda()
    plain, graphed = Engine(model, cuda_graphs=False), Engine(model)
    for length in (100, 97, 112, 60, 100, 60):  # three share a graph, and so do two
        prompts = [[(7 * i) % 13 for i in range(length)]]
        expected = plain.generate(prompts, max_new_tokens=40, sampling=GREEDY)
        assert graphed.generate(prompts, max_new_tokens=40, sampling=GREEDY) == expected


def test_who_has_stopped_stays_so_and_nobody_waits_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two that stop one after the other, at 5, and would go on if they were asked."""
    drawn: list[int] = []

    def steps(*_: Any) -> Iterator[Tensor]:
        for number, tokens in enumerate(([1, 2], [5, 2], [3, 2], [3, 5], [3, 2], [3, 2])):
            drawn.append(number)
            yield torch.tensor(tokens)

    engine = Engine(perturbed(tiny_config()))
    monkeypatch.setattr(engine, "_steps", steps)
    monkeypatch.setattr(engine_module, "LOOK_EVERY", 1)
    settings: Any = {"max_new_tokens": 6, "stop_ids": {5}}
    assert engine.generate([[1], [1]], **settings) == [[1], [2, 2, 2]]
    assert drawn == [0, 1, 2, 3]
    assert list(engine.stream([[1], [1]], **settings)) == [[1, 2], [None, 2], [None, 2]]
    assert drawn == 2 * [0, 1, 2, 3]
