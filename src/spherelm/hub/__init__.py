"""nGPT inside Hugging Face transformers.

`import spherelm.hub` registers the classes, after which `AutoModelForCausalLM.from_pretrained` and
everything built on it load an exported folder without `trust_remote_code`. Exporting and loading
natively need no transformers: they are in `spherelm.exchange`.
"""

from spherelm.errors import UserError

try:
    import transformers
except ImportError as error:
    raise UserError(
        "spherelm.hub needs the package transformers: pip install 'spherelm[hf]'"
    ) from error

from spherelm.hub.callback import RetractionCallback
from spherelm.hub.configuration_spherelm import NGPTConfig
from spherelm.hub.modeling_spherelm import NGPTForCausalLM, NGPTModel

transformers.AutoConfig.register(NGPTConfig.model_type, NGPTConfig, exist_ok=True)
transformers.AutoModel.register(NGPTConfig, NGPTModel, exist_ok=True)
transformers.AutoModelForCausalLM.register(NGPTConfig, NGPTForCausalLM, exist_ok=True)

__all__ = ["NGPTConfig", "NGPTForCausalLM", "NGPTModel", "RetractionCallback"]
