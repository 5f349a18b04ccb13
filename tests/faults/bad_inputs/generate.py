"""What is peculiar to `generate`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import GENERATE, row

ROWS = (
    row("generate", says="RUN must be given ("),
    row("generate . --prompt a", says=". holds no model itself; give a run in it: "),
    row("generate data --prompt a", says="holds no model, but what `spherelm prepare` wrote"),
    row("generate run Once upon", says="'Once' is one word too many: it belongs to no option; did"),
    row("generate --model run --prompt a", says="no option --model; RUN is given by itself"),
    row("generate run --prompts nowhere.txt", says="cannot read prompts from nowhere.txt"),
    row("generate run --prompts books", says="cannot read prompts from books"),
    row("generate run --prompts binary.txt", says="binary.txt is not UTF-8 text"),
    row("generate run --prompts nothing.txt", says="nothing.txt is empty"),
    row("generate run --prompts", "", says="prompts is empty"),
    row("generate run --prompt a --prompts text.txt", says="cannot be given together"),
    row("generate run --prompt a --prompt-file text.txt", says="cannot be given together"),
    row("generate run --prompts text.txt --prompt-file text.txt", says="cannot be given together"),
    row("generate run --prompt-file nowhere.txt", says="from nowhere.txt: No such file"),
    row("generate run --prompt-file books", says="cannot read a prompt from books"),
    row("generate run --prompt-file binary.txt", says="binary.txt is not UTF-8 text"),
    row("generate run --prompt-file", "", says="--prompt-file is empty"),
    row(f"{GENERATE} --stop", "", says="a stop string is empty"),
    row(f"{GENERATE} --top-p 1.5", says="--top-p must be"),
    row(f"{GENERATE} --max-new-tokens -1", says="--max-new-tokens must be"),
    row(f"{GENERATE} --max-new-tokens {10**30}", says="--max-new-tokens must be"),
    row(f"{GENERATE} --max-new-tokens few", says="--max-new-tokens"),
    row(f"{GENERATE} --min-p 2", says="--min-p must be"),
    row(f"{GENERATE} --repetition-penalty 0", says="--repetition-penalty must be"),
    row("generate", "run without tokenizer", says="name one with --tokenizer"),
    row("generate run --tokenizer bpe/tokenizer", says="has its own tokenizer"),
    row(f"{GENERATE} --max-new-tokens {2**50}", says="GiB"),
)
