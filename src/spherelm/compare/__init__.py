"""GPT beside nGPT on the same tokens: the demo."""
