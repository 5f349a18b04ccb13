# mypy: disable-error-code="misc"
"""nGPT inside Hugging Face transformers.

`import spherelm.hf.register` registers the classes, after which `from_pretrained` of the Auto
classes and everything built on it load an exported folder without `trust_remote_code`. Exporting
and loading natively need no transformers.
"""

from __future__ import annotations

from typing import Any

from spherelm.errors import UserError
from spherelm.hf.card import TRANSFORMERS
from spherelm.model.sphere import retract_

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
# With it `save_pretrained` writes the classes, too, as for those that came with a folder: its
# config.json names them, and without them it would load nowhere but where spherelm is.
NGPTConfig.register_for_auto_class("AutoConfig")
NGPTModel.register_for_auto_class("AutoModel")
NGPTForCausalLM.register_for_auto_class("AutoModelForCausalLM")


class RetractionCallback(transformers.TrainerCallback):
    """Puts the model, however it is wrapped, back on the sphere after each optimizer step.

    nGPT wants `weight_decay=0.0`; all else of `transformers.Trainer` is as ever.
    """

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        retract_(model)
