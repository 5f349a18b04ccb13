"""The paper's three ablation tables: each row is a config, and trains."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from spherelm import AdamW, ModelConfig, Transformer, presets
from spherelm.errors import UserError
from spherelm.model.config import SCALE_NAMES, ScaleConfig
from spherelm.model.scale import Scale
from spherelm.model.sphere import largest_norm_deviation
from spherelm.paper.ablations import TABLES, ablate, names
from tests.model.tiny import random_tokens, tiny_config

ROWS = sorted({row.name for table in TABLES.values() for row in table})
ROOT = 32.0  # sqrt(d_model) of the paper's 0.5B model

# The tables once more, as read from the paper: what differs from the unchanged nGPT.
# (s_init, s_scale) of the columns of 'Ablations of s_init and s_scale'.
INIT_TABLE = {
    "s_qk": [(0.33, 1 / ROOT), (0.05, 1 / ROOT), (1, 1), (0.33, 1), (0.05, 1)],
    "s_u": [(1 / ROOT, 1), (1, 1 / ROOT), (1 / ROOT, 1 / ROOT)],
    "s_z": [(ROOT, 1 / ROOT), (1, 1), (ROOT, 1)],
}
# Modes of s_qk, s_u and s_ν, s_z, α: v(ector), s(calar), f(ixed).
SCALAR_TABLE = [
    *("vvvv", "svvv", "vsvv", "vvsv", "vvvs", "ssvv", "sssv", "ssss"),
    *("fvvv", "vfvv", "ffvv", "ffsv"),
]


def differences(config: ModelConfig, base: ModelConfig) -> dict[str, object]:
    """The fields in which a config is not its base."""
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(base, field.name)
    }


def test_init_table_is_the_paper_s() -> None:
    base = presets.get("ngpt-0.5b-1k").model
    rows = iter(names("init"))
    assert next(rows) == "baseline"
    for column, values in INIT_TABLE.items():
        fields = ("s_u", "s_nu") if column == "s_u" else (column,)
        for init, scale in values:
            found = differences(ablate(base, next(rows)), base)
            assert found == {name: ScaleConfig(init=init, scale=scale) for name in fields}
    assert not list(rows)


def test_scalar_table_is_the_paper_s() -> None:
    base = presets.get("ngpt-0.5b-1k").model
    modes = {"v": "vector", "s": "scalar", "f": "fixed"}
    for name, letters in zip(names("scalar"), SCALAR_TABLE, strict=True):
        config = ablate(base, name)
        s_qk, s_u, s_z, alpha = (modes[letter] for letter in letters)
        found = [getattr(config, field).mode for field in SCALE_NAMES]
        assert found == [alpha, alpha, s_qk, s_u, s_u, s_z]
        assert set(differences(config, base)) <= set(SCALE_NAMES)


def test_norm_table_is_the_paper_s() -> None:
    base = presets.get("ngpt-0.5b-1k").model
    found = [differences(ablate(base, name), base) for name in names("norm")]
    assert found == [{}, {"qk_norm": False}, {"update": "slerp"}]


def test_reported_losses_read_as_the_paper_prints_them() -> None:
    by_name = {row.name: row.reported for table in TABLES.values() for row in table}
    assert by_name["baseline"].loss == 2.252
    assert by_name["s_z-scale-1"].loss == pytest.approx(2.252 * 1.0312)
    assert by_name["slerp"].loss == pytest.approx(2.252 * 0.9992)


@pytest.mark.parametrize("name", ROWS)
def test_row_takes_a_training_step(name: str) -> None:
    config = ablate(tiny_config(), name)
    model = Transformer(config)
    optimizer = AdamW(model, lr=1e-2)
    tokens = random_tokens(config, batch=8)
    before = {path: p.detach().clone() for path, p in model.named_parameters()}
    fixed = {path: b.clone() for path, b in model.named_buffers()}
    first = model.loss(tokens, tokens.roll(-1, 1))
    first.backward()
    optimizer.step()
    second = model.loss(tokens, tokens.roll(-1, 1))

    assert math.isfinite(float(first.detach()))
    assert float(second.detach()) < float(first.detach())
    assert largest_norm_deviation(model) < 1e-6
    for path, p in model.named_parameters():
        if path.endswith("s_u.stored") and p.numel() == 1:
            continue  # Norm makes the loss blind to a scalar on u
        assert not torch.equal(p, before[path]), path
    for path, b in model.named_buffers():
        assert torch.equal(b, fixed[path]), path
    for path, scale in model.named_modules():
        if isinstance(scale, Scale):
            mode = getattr(config, path.rpartition(".")[2]).mode
            learned = {"vector": scale.n, "scalar": 1, "fixed": 0}[mode]
            assert sum(p.numel() for p in scale.parameters()) == learned


def test_a_row_changes_only_what_it_ablates() -> None:
    """Starting values of a base for short runs survive a change of mode."""
    base = presets.get("ngpt-nano").model
    assert ablate(base, "s_z-scalar").s_z == dataclasses.replace(base.s_z, mode="scalar")


def test_unknown_row_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 's_qk-scalar'"):
        ablate(tiny_config(), "s_qk-scaler")


def test_a_gpt_has_nothing_to_ablate() -> None:
    with pytest.raises(UserError, match="arch"):
        ablate(tiny_config(arch="gpt"), "baseline")
