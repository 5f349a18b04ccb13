"""What is peculiar to `eval`, `eval length` and `eval tasks`."""

from __future__ import annotations

from tests.faults.bad_inputs.row import EVAL, LENGTH, LONG, TASKS, row

ROWS = (
    row("eval lenght run --books books", says="did you mean `spherelm eval length`?"),
    row("eval", says="eval needs at least one run, checkpoint or exported folder"),
    row("eval run --text nowhere.txt", says="cannot read nowhere.txt"),
    row("eval run --text empty", says="folder empty holds no .txt"),
    row("eval run --text text.txt text.txt", says="text.txt is named twice"),
    row("eval run --text", says="--text needs a value"),
    row("eval run nowhere --text text.txt", says="nowhere does not exist"),
    row("eval run --text binary.txt", says="binary.txt is not UTF-8 text"),
    row("eval run --text nothing.txt", says="the text nothing.txt is empty"),
    row("eval run --text text.txt --data data", says="--text and --data cannot be given together"),
    row("eval", "bpe run", "--device", "cpu", says="reads tokens of bpe-280"),
    row("eval", "bpe run", "--data", "data", says="holds tokens of bytes"),
    row("eval run --data bpe", says="holds tokens of bpe-280"),
    row("eval run --data nanogpt", says="holds tokens of an unknown tokenizer"),
    row("eval run --data", "without val", says="has no val split"),
    row("eval run --data", "data flipped", says="is damaged: its checksum"),
    row("eval", "run without tokenizer", "--text", "text.txt", says="name one with --tokenizer"),
    row("eval run --text text.txt --tokenizer bpe/tokenizer", says="has its own tokenizer"),
    row("eval", "bpe run", "--text", "text.txt", "--tokenizer", "bytes", says="other ids"),
    row("eval run run", says="run is named twice"),
    row(f"{EVAL} --context {2**50}", says="GiB"),
    # eval length
    row("eval length --books books", says="needs at least one run"),
    row("eval length run", says="--books must be given"),
    row("eval length run run --books books --lengths 64", says="run is named twice"),
    row("eval length run --books nowhere --lengths 64", says="nowhere holds no books"),
    row("eval length run --books empty --lengths 64", says="empty holds no books"),
    row("eval length run --books short --lengths 64", says="no book in short has 65 tokens"),
    row("eval length run --books", "bad books", "--lengths", "8", says="is not a text in UTF-8"),
    row(
        "eval length run --books books --lengths 0 64",
        says="--lengths must be a whole number of at least 1",
    ),
    row("eval length run --books books --lengths 60 64", says="must divide the longest"),
    row("eval length run", "bpe run", "--books", "books", says="use --metric bits-per-byte"),
    row(f"{LENGTH} --out text.txt", says="text.txt is a file; --out must be a folder"),
    row(f"{LENGTH} --out text.txt/below", says="which is a file"),
    row(f"{LENGTH} --out dangling", says="dangling is a link that leads nowhere"),
    row(f"{LENGTH} --out", "", says="out is empty"),
    row(f"{LENGTH} --out", LONG, says="File name too long"),
    # eval tasks
    row("eval tasks run --tasks", "", says="there is no task ''"),
    row("eval tasks run --tasks paper,lambda", says="there is no task 'lambda'"),
    row(f"{TASKS}", says="cannot read the task file tasks/lambada_test.jsonl"),
    *(
        row("eval tasks run --tasks lambada_openai --data", f"tasks {kind}", says=says)
        for kind, says in {
            "words": "line 1 is not a JSON object",
            "list": "line 1 is not a JSON object",
            "deep": "line 1 is not a JSON object",
            "fields": "lacks the field 'text'",
            "type": "text must be a str",
            "nothing": "is empty",
            "binary": "is not a text in UTF-8",
        }.items()
    ),
    row("eval tasks run --tasks wsc273 --data", "tasks wsc", says="a schema has 4 lines"),
    row("eval tasks run --tasks wmt14-fr-en --data", "tasks wmt", says="has 2 lines"),
    row(f"{TASKS} --out text.txt", says="text.txt is a file; --out must be a folder"),
    row(f"{TASKS} --out text.txt/below", says="which is a file"),
)
