"""nGPT inside Hugging Face transformers.

`import spherelm.hf.register` registers the classes, after which `from_pretrained` of the Auto
classes and everything built on it load an exported folder without `trust_remote_code`. Exporting
and loading natively need no transformers.
"""

from spherelm.errors import UserError

try:
    import transformers
except ImportError as error:
    raise UserError(
        "spherelm.hf.register needs the package transformers: pip install 'spherelm[hf]'"
    ) from error

from spherelm.hf.callback import RetractionCallback
from spherelm.hf.remote_code.configuration_spherelm import NGPTConfig
from spherelm.hf.remote_code.modeling_spherelm import NGPTForCausalLM, NGPTModel

transformers.AutoConfig.register(NGPTConfig.model_type, NGPTConfig, exist_ok=True)
transformers.AutoModel.register(NGPTConfig, NGPTModel, exist_ok=True)
transformers.AutoModelForCausalLM.register(NGPTConfig, NGPTForCausalLM, exist_ok=True)

__all__ = ["NGPTConfig", "NGPTForCausalLM", "NGPTModel", "RetractionCallback"]
