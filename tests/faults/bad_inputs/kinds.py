"""Rows made from kinds of mistakes and the places where they can be made."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.bad_inputs.row import (
    BENCH_DATA,
    COMMANDS,
    COMPARE,
    DECODE,
    EVAL,
    EXPORT,
    GENERATE,
    IMPORT,
    INFO,
    KERNELS,
    LENGTH,
    LONG,
    PREPARE,
    STEP,
    TASKS,
    TRAIN,
    BadInput,
    row,
)

WHOLE_NUMBERS: tuple[tuple[str, str], ...] = (
    *((TRAIN, f"--train.{n}") for n in ("steps", "batch-size", "micro-batch-size", "log-every")),
    *((TRAIN, f"--train.{n}") for n in ("eval-sequences", "keep-last")),
    *((TRAIN, f"--model.{n}") for n in ("vocab-size", "d-model", "n-layers", "n-heads")),
    *((TRAIN, f"--model.{n}") for n in ("n-kv-heads", "d-mlp", "context")),
    *((TRAIN, f"--parallel.{n}") for n in ("tensor", "replicate")),
    *((COMPARE, f"--train.{n}") for n in ("steps", "batch-size", "eval-sequences")),
    *((PREPARE, f"--{n}") for n in ("shard-tokens", "workers")),
    *((EVAL, f"--{n}") for n in ("context", "batch-size")),
    (LENGTH, "--limit"),
    *((TASKS, f"--{n}") for n in ("limit", "batch-size")),
    (GENERATE, "--top-k"),
    (INFO, "--world-size"),
    *((STEP, f"--{n}") for n in ("repeats", "tokens")),
    *((KERNELS, f"--{n}") for n in ("repeats", "tokens", "d-model")),
    *((DECODE, f"--{n}") for n in ("repeats", "batch", "prompt", "prompts", "new")),
    *((BENCH_DATA, f"--{n}") for n in ("rounds", "workers")),
)
NOT_WHOLE_NUMBERS = ("0", "-1", "1.5", "many", "9" * 30)

NUMBERS: tuple[tuple[str, str], ...] = (
    *((TRAIN, f"--optim.{n}") for n in ("lr", "final-lr", "weight-decay", "beta1", "beta2")),
    *((TRAIN, f"--optim.{n}") for n in ("eps", "grad-clip")),
    *((TRAIN, f"--model.{n}") for n in ("rope-base", "s-z.init", "alpha-attn.scale")),
    *((COMPARE, f"--{n}") for n in ("gpt-lr", "ngpt-lr")),
    (PREPARE, "--val-fraction"),
    *((GENERATE, f"--{n}") for n in ("temperature", "top-p", "min-p", "repetition-penalty")),
    (BENCH_DATA, "--seconds"),
)
NOT_NUMBERS = ("nan", "inf", "-1", "much")

SEEDS = ((TRAIN, "--train.seed"), (TRAIN, "--seed"), (COMPARE, "--seed"), (GENERATE, "--seed"))
NOT_SEEDS = ("-1", "0.5", "x", str(2**64), "9" * 30)

CHOICES: tuple[tuple[str, str], ...] = (
    *((TRAIN, f"--model.{n}") for n in ("arch", "update", "s-z.mode")),
    *((TRAIN, f"--train.{n}") for n in ("precision", "attention", "weight-storage", "device")),
    (TRAIN, "--resume"),
    *((COMPARE, flag) for flag in ("--resume", "--train.precision", "--device")),
    (PREPARE, "--dtype"),
    *((EVAL, flag) for flag in ("--dtype", "--device")),
    *((LENGTH, flag) for flag in ("--dtype", "--device", "--metric")),
    *((TASKS, flag) for flag in ("--dtype", "--tasks")),
    *((GENERATE, flag) for flag in ("--dtype", "--device")),
    (EXPORT, "--to"),
    *((STEP, flag) for flag in ("--sizes", "--archs", "--modes", "--attention", "--device")),
    (KERNELS, "--device"),
    *((DECODE, flag) for flag in ("--size", "--archs", "--modes", "--device")),
)

MODELS = {
    EVAL: "eval {} --text text.txt --device cpu",
    LENGTH: "eval length {} --books books --lengths 64 --device cpu",
    TASKS: "eval tasks {} --tasks wsc273 --device cpu",
    GENERATE: "generate {} --device cpu",
    EXPORT: "export {} --out new",
    TRAIN: "train --init-from {} --data data --device cpu --out new",
}
NO_MODELS = {
    "nowhere": "nowhere does not exist",
    "text.txt": "text.txt is a file; give a",
    "text.txt/below": "does not exist",
    "empty": "empty holds no model",
    "data": "data holds no model",
    "": "is empty; ",
    "dangling": "dangling does not exist",
    "loop": "loop",
    LONG: "File name too long",
    "new\nline": "new line does not exist",
    "[red]folder": "[red]folder holds no model",
    "run without checkpoint": "has no finished checkpoint yet",
    "run list": "is damaged",
    "run deep": "is damaged",
    "run words": "is damaged",
    "run torn": "is damaged",
    "run/checkpoints": "holds no model",
    "hf list": "is damaged: the checksum of config.json",
    "hf deep": "is damaged",
    "hf words": "is damaged: the checksum of config.json",
    "hf torn": "is damaged: the checksum of model.safetensors does not match",
    "hf bare": "model.safetensors is missing",
}

NO_FOLDERS_TO_MAKE = {
    "text.txt": "text.txt",
    "text.txt/below": "text.txt",
    "full": "full holds mine.txt, which",
    LONG: "File name too long",
    "dangling": "dangling",
    "": "out is empty",
}
OUTS = (TRAIN, COMPARE, PREPARE, EXPORT, IMPORT)

NO_DATA = {
    "nowhere": "data folder nowhere does not exist",
    "text.txt": "text.txt is a file; make tokens of its text with `spherelm prepare`",
    "empty": "empty holds no tokens",
    "run": "run holds no tokens",
    "data list": "dataset.json",
    "data object": "dataset.json",
    "data number": "dataset.json",
    "data deep": "dataset.json",
    "data binary": "dataset.json",
    "data version": "dataset.json",
    "data half": "is not complete; run the same `spherelm prepare` again",
    "data short": "train-00000.tokens is damaged",
    LONG: "File name too long",
}
DATAS = {
    TRAIN: "train --preset debug --device cpu --out new --data",
    COMPARE: "compare --preset debug --device cpu --out new --data",
    EVAL: "eval run --device cpu --data",
    INFO: "info --preset debug --data",
}

NO_TOKENIZERS = {
    "tokenizers/nowhere.json": "tokenizer tokenizers/nowhere.json does not exist",
    "tokenizers/nowhere": "tokenizer tokenizers/nowhere does not exist",
    "/nowhere/at/all": "tokenizer /nowhere/at/all does not exist",
    "a/b/c": "tokenizer a/b/c does not exist",
    "text.txt/below": "tokenizer text.txt/below does not exist",
    "tokenizer": "did you mean 'tokenizers'?",
    "two words": "tokenizer two words does not exist",
    "tokenizers/words.json": "is not a tokenizer of `tokenizers`",
    "tokenizers/list.json": "is not a tokenizer of `tokenizers`",
    "tokenizers/deep.json": "is not a tokenizer of `tokenizers`",
    "tokenizers/binary.json": "is not JSON",
    "tokenizers/bad.model": "is not a SentencePiece model",
    "tokenizers/nowhere.model": "nowhere.model",
    "tokenizers/encoder.json": "are not GPT-2's BPE",
    "tokenizers/endless.json": "name the one it uses with --end-of-document",
    "tokenizers/empty": "holds no tokenizer",
    "tokenizers/torn": "spherelm-tokenizer.json is damaged",
    "": "a tokenizer is named by a word or a path",
    LONG: "too long",
}

NO_CONFIGS = {
    "configs/nowhere.toml": "cannot read the config configs/nowhere.toml",
    "configs": "cannot read the config configs",
    "configs/words.toml": "words.toml is not TOML",
    "configs/open.toml": "open.toml is not TOML",
    "configs/binary.toml": "binary.toml is not TOML",
    "configs/deep.toml": "nested too deep",
    "configs/tables.toml": "nested too deep",
    "configs/twice.toml": "twice.toml is not TOML",
    "configs/digits.toml": "digits.toml is not TOML",
    "configs/key.toml": "unknown key model.d_modle; did you mean 'd_model'?",
    "configs/section.toml": "unknown key modle; did you mean 'model'?",
    "configs/type.toml": "model.d_model must be a whole number",
    "configs/table.toml": "train.steps must be a whole number",
    "configs/number.toml": "model must be a table",
    "configs/bool.toml": "train.steps must be a whole number",
    "configs/float.toml": "train.steps must be a whole number",
    "configs/nan.toml": "optim.lr must be a finite number",
    "configs/date.toml": "train.steps must be a whole number",
    "configs/huge.toml": "train.steps must be a whole number of at most",
    "configs/path.toml": "data.path must be a folder",
    "configs/scale.toml": "model.s_z must be a table",
    "configs/mode.toml": "model.s_z.mode must be one of",
    LONG: "too long",
}

NO_INPUTS = {
    "nowhere.txt": "cannot read nowhere.txt",
    "nowhere/*.txt": "no file matches nowhere/*.txt",
    "empty": "folder empty holds no",
    "no texts": "folder no texts holds no",
    "nothing.txt": "there is no text in nothing.txt",
    "binary.txt": "binary.txt is not UTF-8 text",
    "latin.txt": "latin.txt is not UTF-8 text",
    "torn.txt.gz": "cannot read torn.txt.gz",
    "not.txt.gz": "cannot read not.txt.gz",
    "not.txt.xz": "cannot read not.txt.xz",
    "not.txt.bz2": "cannot read not.txt.bz2",
    "not.parquet": "not.parquet is not a Parquet file",
    "tokens.bin": "name the tokenizer that made them",
    "words.jsonl": "words.jsonl line 2 is not JSON",
    "list.jsonl": "list.jsonl line 1 has no text",
    "number.jsonl": "number.jsonl line 1 has no text",
    "other.jsonl": "there are: content",
    "deep.jsonl": "deep.jsonl line 1 is not JSON",
    "digits.jsonl": "digits.jsonl line 1 is not JSON",
    "dangling": "cannot read dangling",
    "loop": "cannot read loop",
    "hf:": "names no dataset",
    "": "inputs is empty",
    LONG: "File name too long",
}


def made() -> Iterator[BadInput]:
    """The rows of kinds of mistakes and places."""
    for command in COMMANDS:
        verb = command.split(" ", 1)[0]
        yield row(f"{command} --zzz 3", says="--zzz")
        yield row(command, "--zzz=\x1b[31m", says="--zzz")
        yield row(verb, "\udcff", says=r"'\udcff' is not UTF-8")
        if command != KERNELS:
            yield row(command, "--json", "yes", says="yes")
    for command, flag in WHOLE_NUMBERS:
        name = flag.rpartition(".")[2].removeprefix("--")
        for value in NOT_WHOLE_NUMBERS:
            yield row(command, flag, value, says=name)
    for command, flag in NUMBERS:
        name = flag.rpartition(".")[2].removeprefix("--")
        for value in NOT_NUMBERS:
            yield row(command, flag, value, says=name)
    for command, flag in SEEDS:
        for value in NOT_SEEDS:
            yield row(command, flag, value, says="seed")
    for command, flag in CHOICES:
        for value in ("zzz", "", "[bold]"):
            yield row(command, flag, value, says="")
    for template in MODELS.values():
        for name, says in NO_MODELS.items():
            if name == "hf bare" and "tasks" in template:
                continue  # weights are looked for after the questions, which are not here
            before, after = template.split("{}")
            yield row(before, name, *after.split(), says=says)
    for command in OUTS:
        for name, says in NO_FOLDERS_TO_MAKE.items():
            yield BadInput((*command.removesuffix("new").split(), name), says)
    for command in DATAS.values():
        for name, says in NO_DATA.items():
            yield row(command, name, says=says)
    for command in (PREPARE, EVAL, GENERATE, EXPORT):
        for name, says in NO_TOKENIZERS.items():
            yield row(command, "--tokenizer", name, says=says)
    for command in (TRAIN, INFO):
        for name, says in NO_CONFIGS.items():
            yield row(command, "--config", name, says=says)
    for name, says in NO_INPUTS.items():
        yield row("prepare", name, "--out", "new", says=says)
