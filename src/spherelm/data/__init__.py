"""Data: text to token shards (`prepare`), token shards to batches (`loader`).

    text ─ sources ─► pieces ─ tokenizer ─► shards ─ dataset ─► loader ─► (B, T) tokens

Only `loader` imports torch; only the tokenizers and formats that need them import the packages of
`spherelm[data]`.
"""
