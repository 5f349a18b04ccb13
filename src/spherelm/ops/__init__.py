"""The operations that a model is made of, and the only choice between their implementations.

    interface    what each operation computes, and its shapes
    reference    all of them in plain PyTorch: the specification, and what runs on a CPU
    packed       the same over packed matrices, for the compiler
    triton/      kernels with their own backward, for CUDA
    fp8/         the products of blocks in eight bits, plain and with kernels
    attention    softmax(q kᵀ) v by cuDNN, FlashAttention or PyTorch; flash4: an operator of its own
    choose       the only place that decides between them, when a model is built or moved

Two models with different operations live in one process: nothing here is switched by a global.
"""
