"""The model: GPT and nGPT as the two columns of the paper's Table 1."""
