"""The fused decode step gives the logits and the cache of the plain one."""

from __future__ import annotations

import json

import pytest
import torch

from spherelm.generation.cached import decode, new_cache, prefill
from spherelm.model.block import NGPTBlock
from spherelm.model.fold import FoldedTransformer
from spherelm.model.transformer import Transformer
from spherelm.ops.choose import Choice
from spherelm.ops.names import Kernels
from tests.generation.parallel import Parallel
from tests.model.tiny import VARIANTS, perturbed, random_tokens, tiny_config

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Both compute in float32 in another order; GPT's logits here reach 3.
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.mark.parametrize("variant", ["lerp", "gpt, grouped heads", "one kv head, no qk norm"])
def test_logits_and_cache_are_those_of_the_plain_step(variant: str) -> None:
    """At a first token, and where parts of the cache are empty, full and cut."""
    from spherelm.generation.fused import FusedDecode, applies

    model = perturbed(tiny_config(**VARIANTS[variant])).float().to(DEVICE)
    folded = FoldedTransformer(model, ops=Choice(kernels="triton"))
    assert applies(folded, 1)
    fused = FusedDecode(folded)
    tokens = random_tokens(model.config, 1, 140).to(DEVICE)
    caches = [new_cache(folded, 1, 200), new_cache(folded, 1, 200)]
    for t in (0, 65, 131):
        position = torch.tensor([t], device=DEVICE)
        for cache in caches:
            if t:
                prefill(folded, tokens[:, :t], cache)
        plain = decode(folded, tokens[:, t], position, caches[0], t + 1)
        ours = fused.decode(tokens[:, t], position, caches[1], 200)
        torch.testing.assert_close(ours, plain, **CLOSE)
        torch.testing.assert_close(caches[1].keys, caches[0].keys, **CLOSE)
        torch.testing.assert_close(caches[1].values, caches[0].values, **CLOSE)


def test_what_the_kernels_do_not_do_is_left_to_the_plain_step() -> None:
    from spherelm.generation.fused import applies

    def folded(model: Transformer, kernels: Kernels = "triton") -> FoldedTransformer:
        return FoldedTransformer(model, ops=Choice(kernels=kernels))

    assert not applies(folded(perturbed(tiny_config())), 1)  # float64
    assert not applies(folded(perturbed(tiny_config()).float()), 2)
    assert not applies(folded(perturbed(tiny_config()).float(), "reference"), 1)
    assert not applies(folded(perturbed(tiny_config(update="slerp")).float()), 1)
    for block in (  # whose text was that of a block of ours, or written beyond its memory
        Parallel(tiny_config()),
        NGPTBlock(tiny_config(d_mlp=200)),
    ):
        model = perturbed(tiny_config())
        model.blocks[1] = block
        assert not applies(folded(model.float()), 1)


def test_the_benchmark_runs_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    from spherelm.cli.bench import main

    sizes = ["--size", "debug", "--prompt", "8", "--new", "33", "--prompts", "16"]
    assert main(["decode", *sizes, "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["decode"]
    assert [row["arch"] for row in rows] == ["gpt", "ngpt"]
    # Matrices of two blocks and E_output in float32; a few thousand factors beside them.
    matrices = 4 * (2 * (4 * 64 * 64 + 3 * 64 * 256) + 257 * 64)
    for row in rows:
        assert matrices < row["weight_bytes"] < 1.02 * matrices
        assert row["step_ms"] > 0
