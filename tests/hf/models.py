"""Models under their Hugging Face classes, for tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from spherelm import Transformer
from spherelm.hf.names import to_hf_config, to_hf_tensors
from spherelm.model.fold import folded_state
from tests.model.tiny import perturbed, tiny_config
from tests.saved_runs import BYTES

transformers = pytest.importorskip("transformers")


def on_sphere(**fields: Any) -> Transformer:
    """A float32 model whose matrices are on the sphere also where its forward would put them."""
    from spherelm import retract_

    model = perturbed(tiny_config(**{**BYTES, **fields}))
    retract_(model)
    return model.float()


def as_hf(model: Transformer, fold: bool = False, **config: Any) -> Any:
    """The model under its Hugging Face class, without a folder between."""
    import spherelm.hf.register  # noqa: F401

    tensors = to_hf_tensors(folded_state(model) if fold else model.state_dict())
    values = to_hf_config(model.config, "float32", fold) | config
    kind = values.pop("model_type")
    hf_config = transformers.AutoConfig.for_model(kind, **values)
    hf = transformers.AutoModelForCausalLM.from_config(hf_config)
    missing, unexpected = hf.load_state_dict(tensors, strict=False)
    tied = ["lm_head.weight"] if hf_config.tie_word_embeddings else []
    assert (missing, unexpected) == (tied, [])
    return hf.eval()


def tokens(batch: int = 2, length: int = 40) -> Tensor:
    return torch.randint(257, (batch, length))
