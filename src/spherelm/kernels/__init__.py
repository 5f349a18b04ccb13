"""The operations a block is made of. `reference` says in plain PyTorch what each one computes."""

from spherelm.kernels.reference import (
    linear_cross_entropy,
    normalize,
    qk_on_sphere,
    residual_lerp,
    residual_riemannian,
    residual_slerp,
    rms_norm,
    rotate,
    swiglu,
)

__all__ = [
    "linear_cross_entropy",
    "normalize",
    "qk_on_sphere",
    "residual_lerp",
    "residual_riemannian",
    "residual_slerp",
    "rms_norm",
    "rotate",
    "swiglu",
]
