"""The operations that a model is made of, and the choice between their implementations.

    interface    what each operation computes, and its shapes
    reference    all of them in plain PyTorch: the specification, and what runs on a CPU
    packed       the same over packed matrices, for the compiler
    triton/      kernels with their own backward, for CUDA
    fp8/         the products of blocks in FP8, plain and with kernels
    attention    softmax(q kᵀ) v by cuDNN, FlashAttention or PyTorch; flash4 wraps FlashAttention 4
    choose       the only place that decides between them, when a model is built or moved

There is no global switch: models with different operations can live in one process.
"""
