"""The operations as Triton kernels, each with its own backward."""
