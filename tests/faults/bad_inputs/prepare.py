"""What is peculiar to `prepare`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import PREPARE, row

ROWS = (
    row("prepare --out new", says="there is no input"),
    row("prepare text.txt", says="--out must be given"),
    row(f"{PREPARE} --tokenizer bytes --train-tokenizer 300", says="cannot be given together"),
    row(f"{PREPARE} --train-tokenizer 3", says="--train-tokenizer must be at least 257"),
    row(f"{PREPARE} --train-tokenizer -5", says="--train-tokenizer must be"),
    row(f"{PREPARE} --train-tokenizer {10**30}", says="--train-tokenizer must be"),
    row(f"{PREPARE} --val text.txt --val-fraction 0.1", says="cannot be given together"),
    row(f"{PREPARE} --val text.txt", says="text.txt is in --val and among the inputs"),
    row("prepare books --val books/../books/one.txt --out new", says="leave it out of one of them"),
    row("prepare books ./books/*.txt --out new", says="is named twice; name each input once"),
    row(f"{PREPARE} --val books books", says="is named twice; name each input once"),
    row("prepare list.jsonl --out new", says='it must be an object, such as {"text": "..."}'),
    row("prepare words.jsonl --out new", says="line 2 is not JSON; each line must be an object"),
    row(f"{PREPARE} --val nowhere.txt", says="cannot read nowhere.txt"),
    row(f"{PREPARE} --val nothing.txt", says="there is no text in nothing.txt"),
    row(f"{PREPARE} --val-fraction 1", says="--val-fraction must be"),
    row("prepare - - --out new", says="stdin (-) can be read once"),
    row("prepare - --train-tokenizer 300 --out new", says="stdin (-) can be read once"),
    row("prepare words.jsonl --field", "", "--out", "new", says="has no text in the field ''"),
    row("prepare odd.bin --tokenizer bytes --out new", says="not a nanoGPT file"),
    row("prepare nothing.bin --tokenizer bytes --out new", says="not a nanoGPT file"),
    row("prepare tokens.bin --tokenizer bytes --out new", says="was not made by tokenizer bytes"),
    row(
        "prepare text.txt --out data --field content",
        says="was begun with --field text, not with --field content",
    ),
    row(f"{PREPARE} --end-of-document STOP --tokenizer bpe/tokenizer", says="has no token 'STOP'"),
)
