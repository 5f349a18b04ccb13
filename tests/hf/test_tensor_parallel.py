"""The tensor-parallel plan: two processes hold half of every head and MLP unit, and agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spherelm.hf.export import export_to_hf
from tests.saved_runs import byte_model, write_run

pytest.importorskip("transformers")

WORKER = """
import sys
import torch
import spherelm.hf.register
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("gloo")
tokens = torch.arange(20)[None] * 3
whole = AutoModelForCausalLM.from_pretrained(sys.argv[1])
split = AutoModelForCausalLM.from_pretrained(sys.argv[1], tp_plan="auto")
layer = split.model.layers[0]
for module in (layer.self_attn.q_proj, layer.self_attn.s_qk, layer.mlp.s_u, layer.mlp.gate_proj):
    assert module.weight.to_local().shape[0] * 2 == module.weight.shape[0]
with torch.no_grad():
    torch.testing.assert_close(split(tokens).logits, whole(tokens).logits, rtol=0, atol=1e-5)
expected, loss = (model(tokens, labels=tokens).loss for model in (whole, split))
torch.testing.assert_close(loss, expected)
loss.backward()
expected.backward()
for name in ("self_attn.s_qk", "mlp.s_u", "alpha_attn"):
    a, b = (m.model.layers[0].get_submodule(name).weight.grad for m in (split, whole))
    a = a.full_tensor() if hasattr(a, "full_tensor") else a
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
"""


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    model = byte_model(n_kv_heads=2)
    folder = export_to_hf(write_run(tmp_path / "run", model), tmp_path / "hf")
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", script, folder],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
