"""Data: text to token shards (`prepare`), token shards to batches (`loader`).

    text ─ sources ─► pieces ─ tokenizer ─► shards ─ dataset ─► loader ─► (B, T) tokens

Only `loader` imports torch, and only the tokenizers and formats that need the packages of
`spherelm[data]` import them.
"""
