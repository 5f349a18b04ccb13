# mypy: disable-error-code="misc"
"""nGPT inside Hugging Face transformers.

`import spherelm.hf.register` registers the classes, so that `from_pretrained` of the Auto classes,
and everything built on it, loads an exported folder without `trust_remote_code`. Exporting and
native loading do not need transformers.
"""

from __future__ import annotations

from typing import Any

from spherelm.errors import UserError
from spherelm.hf.card import TRANSFORMERS
from spherelm.model.sphere import unit_matrices

try:
    import transformers

    from spherelm.hf.remote_code.configuration_spherelm import NGPTConfig
    from spherelm.hf.remote_code.modeling_spherelm import NGPTForCausalLM, NGPTModel
except ImportError as error:
    raise UserError(
        f"spherelm.hf.register needs transformers {TRANSFORMERS} or newer: "
        f"pip install 'spherelm[hf]'"
    ) from error

__all__ = ["NGPTConfig", "NGPTForCausalLM", "NGPTModel", "RetractionCallback"]

transformers.AutoConfig.register(NGPTConfig.model_type, NGPTConfig, exist_ok=True)
transformers.AutoModel.register(NGPTConfig, NGPTModel, exist_ok=True)
transformers.AutoModelForCausalLM.register(NGPTConfig, NGPTForCausalLM, exist_ok=True)
# This makes `save_pretrained` write the classes, too, as it does for classes loaded from a folder:
# config.json names them, and without them the folder would load only where spherelm is installed.
NGPTConfig.register_for_auto_class("AutoConfig")
NGPTModel.register_for_auto_class("AutoModel")
NGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")


class RetractionCallback(transformers.TrainerCallback):
    """Puts the model, however it is wrapped, back on the sphere after each optimizer step.

    Frozen matrices, such as those below an adapter, stay as they are. Use `weight_decay=0.0` for
    nGPT; the other settings of `transformers.Trainer` are as usual.
    """

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        for matrix in unit_matrices(model):
            if matrix.parameter.requires_grad:
                matrix.retract_()
