"""The names of implementations, in a file of their own that the CLI can import without torch."""

from __future__ import annotations

from typing import Literal

AttentionBackend = Literal["auto", "cudnn", "flash", "efficient", "math", "fa3", "fa4"]
"""auto takes the fastest that we measured; the rest are PyTorch's, and FlashAttention 3 and 4."""

WITHOUT_MASKS = frozenset(("flash", "fa3", "fa4"))
"""Backends that take no mask, so cannot keep attention inside documents."""
WITHOUT_FP32 = frozenset(("cudnn", "flash", "fa3", "fa4"))
"""Backends that do not compute in float32."""

Kernels = Literal["auto", "triton", "reference"]
"""auto takes our Triton kernels on CUDA, and plain PyTorch elsewhere. With TRITON_INTERPRET=1 in
the environment, triton also runs on a CPU, slowly."""

Update = Literal["lerp", "slerp", "riemannian"]
"""How a block of nGPT moves the hidden state on the sphere."""

Dtype = Literal["auto", "fp32", "bf16"]
"""Precision of a trained model's products; auto: bf16 on CUDA, fp32 elsewhere."""

Precision = Literal["auto", "fp32", "bf16", "fp8"]
"""Precision of products in training; auto as above. fp32: on CUDA in TF32, unless training is to be
deterministic. fp8: the products of blocks in FP8 on GPUs that support it, the rest in bf16."""

IGNORE_INDEX = -100
"""A target with this value does not count in the loss."""
