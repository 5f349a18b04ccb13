"""What people get wrong, as data: command lines, and calls of the public API.

Each row is refused in one line on stderr with its exit status, and nothing on the disk changes. A
row names things of `tests.faults.sandbox`, the working directory. Rows are made from kinds of
mistakes and the places where they can be made; what is peculiar to a verb is written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LONG = "n" * 300
"""A name longer than any file system takes."""


@dataclass(frozen=True)
class BadInput:
    """A command line, and what is said of it."""

    argv: tuple[str, ...]
    says: str
    """A part of the line."""
    status: int = 2

    @property
    def id(self) -> str:
        words = (word if len(word) <= 40 else f"{word[:37]}..." for word in self.argv)
        return " ".join(words).encode("ascii", "backslashreplace").decode()


def row(command: str, *words: str, says: str, status: int = 2) -> BadInput:
    """`command` is split at spaces; `words` are taken as they are."""
    return BadInput((*command.split(), *words), says, status)


TRAIN = "train --preset debug --data data --device cpu --out new"
START = "train --init-from run --data data --device cpu --out new"
COMPARE = "compare --preset debug --data data --device cpu --out new"
PREPARE = "prepare text.txt --out new"
EVAL = "eval run --text text.txt --device cpu"
LENGTH = "eval length run --books books --lengths 64 --device cpu"
TASKS = "eval tasks run --tasks lambada_openai --data tasks --device cpu"  # which are not there
GENERATE = "generate run --prompt a --max-new-tokens 1 --device cpu"
EXPORT = "export run --out new"
IMPORT = "import hf --out new"
INFO = "info --preset debug"
STEP = "bench step --device cpu --sizes debug"
KERNELS = "bench kernels --device cpu"
DECODE = "bench decode --device cpu --size debug"
BENCH_DATA = "bench data"
COMMANDS = (
    *(TRAIN, COMPARE, PREPARE, EVAL, LENGTH, TASKS, GENERATE, EXPORT, IMPORT, INFO),
    *(STEP, KERNELS, DECODE, BENCH_DATA),
)
"""A good command for each verb, which a mistake is added to. None of them is ever carried out."""

# ------------------------------------------------------------------ kinds of mistakes, by place

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
    "text.txt": "text.txt does not exist; give a run",
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
    "text.txt": "data folder text.txt does not exist",
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

# ------------------------------------------------------------------ what is peculiar to a verb

PECULIAR = (
    row("", "", says="there is no verb ''"),
    row("trian", says="did you mean 'train'?"),
    row("[red]", says="there is no verb '[red]'"),
    row("", "\x1b[31mtrain", says=r"there is no verb '\x1b[31mtrain'"),
    row("--verbose", says="there is no verb '--verbose'"),
    # train
    row("train", says="--out must be given"),
    row("train --out", says="--out needs a value"),
    row("train --out a --out b", says="--out is given 2 times"),
    row("train --out new --preset", says="--preset needs a value"),
    row("train --out new --preset", "", says="--preset is empty"),
    row("train --out new --preset=", says="--preset is empty"),
    row("train --out new --preset debug --preset nano", says="--preset is given 2 times"),
    row("train --out new --preset=debug --preset=debug", says="--preset is given 2 times"),
    row("train --out new --preset debgu", says="did you mean 'ngpt-debug'?"),
    row("train --out new --preset gpt-", says="unknown preset 'gpt-'"),
    row("train --out new --preset [bold]", says="unknown preset '[bold]'"),
    row("train --out new --config configs/key.toml --config x", says="--config is given 2 times"),
    row("train --out new --config", "", says="--config is empty"),
    row("train --out new --resume sometimes", says="--resume"),
    row("train --out new words", says="words"),
    row(f"{TRAIN} --model.d-model 15", says="model.n_heads must divide model.d_model"),
    row(f"{TRAIN} --model.d-model 12", says="must be even"),
    row(f"{TRAIN} --model.n-kv-heads 3", says="model.n_kv_heads must divide model.n_heads"),
    row(f"{TRAIN} --model.vocab-size 30", says="model.vocab_size is 30"),
    row(f"{TRAIN} --model.context 100000", says="too few for one context"),
    row(f"{TRAIN} --optim.weight-decay 0.1", says="optim.weight_decay must be 0 for nGPT"),
    row(f"{TRAIN} --optim.warmup-steps 50", says="optim.warmup_steps must be below train.steps"),
    row(f"{TRAIN} --parallel.tensor 2", says="start several with torchrun"),
    row(f"{TRAIN} --train.device cuda:99", says="train.device is cuda"),
    row(f"{TRAIN} --model.qk-norm=false", says="did you mean --model.no-qk-norm?"),
    row(f"{TRAIN} --train.wandb-project p", says="train.wandb_project needs a login"),
    row(f"{TRAIN} --train.attention flash --data.within-documents", says="cannot stay inside"),
    row("train --preset gpt-debug --data data --out new --model.qk-norm", says="GPT's is --model"),
    row(
        "train --preset debug --data nanogpt --out new --data.within-documents --device cpu",
        says="data.within_documents needs to know where documents start",
    ),
    row("train --preset debug --out run --data data --device cpu", says="already holds a run"),
    row(
        "train --preset debug --out full --data data --resume auto",
        says="full holds mine.txt, which",
    ),
    row("train --out", "run list", "--resume", "auto", "--device", "cpu", says="is damaged"),
    row(f"{TRAIN} --model.d-model {2**40} --model.n-heads 1", says="GiB"),
    row(f"{TRAIN} --model.vocab-size {2**40}", says="GiB"),
    row(f"{TRAIN} --model.d-mlp {2**40}", says="GiB"),
    row(f"{EVAL} --context {2**50}", says="GiB"),
    row(f"{GENERATE} --max-new-tokens {2**50}", says="GiB"),
    row(f"{KERNELS} --tokens {2**50}", says="GiB"),
    row(f"{KERNELS} --d-model {2**50}", says="GiB"),
    # train --init-from
    row(f"{START} --model.d-model 64", says="model.d_model = 64: its weights have 32; leave it"),
    row(f"{START} --model.n-layers 7", says="model.n_layers = 7"),
    row(f"{START} --model.vocab-size 300", says="model.vocab_size = 300"),
    row(f"{START} --model.s-z.init 3", says="model.s_z.init = 3.0"),
    row(f"{START} --model.arch gpt", says="model.arch = gpt"),
    row(f"{START} --preset gpt-debug", says="name a preset that starts with ngpt-"),
    row(f"{START} --config configs/key.toml", says="unknown key model.d_modle"),
    row("train --init-from run --data bpe --out new", says="--tokenizer run/tokenizer`"),
    row("train --init-from hf --data bpe --out new", says="--tokenizer hf`"),
    row("train --init-from run --data nanogpt --out new", says="an unknown tokenizer"),
    row("train --data data --out new --init-from", "run without tokenizer", says="no tokenizer"),
    row("train --init-from run --data data --out run --force", says="is an input, too"),
    row("train --init-from hf --data data --out run", says="already holds a run"),
    row(
        "train --init-from hf --data data --out run --resume auto",
        says="run did not begin with a model",
    ),
    row(f"{START} --init-from hf", says="--init-from is given 2 times"),
    # compare
    row("compare", says="--out must be given"),
    row("compare --out new --preset gpt-nano", says="--preset must be a size for both models"),
    row("compare --out new --preset ngpt", says="--preset must be a size for both models"),
    row("compare --out new --preset", "", says="--preset is empty"),
    row("compare --out new --preset debug --preset nano", says="--preset is given 2 times"),
    row("compare --out new --preset nanno", says="unknown preset"),
    # prepare
    row("prepare --out new", says="there is no input"),
    row("prepare text.txt", says="--out must be given"),
    row(f"{PREPARE} --tokenizer bytes --train-tokenizer 300", says="cannot be given together"),
    row(f"{PREPARE} --train-tokenizer 3", says="--train-tokenizer must be at least 257"),
    row(f"{PREPARE} --train-tokenizer -5", says="--train-tokenizer must be"),
    row(f"{PREPARE} --train-tokenizer {10**30}", says="--train-tokenizer must be"),
    row(f"{PREPARE} --val text.txt --val-fraction 0.1", says="cannot be given together"),
    row(f"{PREPARE} --val nowhere.txt", says="cannot read nowhere.txt"),
    row(f"{PREPARE} --val nothing.txt", says="there is no text in nothing.txt"),
    row(f"{PREPARE} --val-fraction 1", says="--val-fraction must be"),
    row("prepare - - --out new", says="stdin (-) can be read once"),
    row("prepare - --train-tokenizer 300 --out new", says="stdin (-) can be read once"),
    row("prepare words.jsonl --field", "", "--out", "new", says="has no text in the field ''"),
    row("prepare odd.bin --tokenizer bytes --out new", says="not a nanoGPT file"),
    row("prepare nothing.bin --tokenizer bytes --out new", says="not a nanoGPT file"),
    row("prepare tokens.bin --tokenizer bytes --out new", says="was not made by tokenizer bytes"),
    row("prepare text.txt --out data --field content", says="was begun with"),
    row(f"{PREPARE} --end-of-document STOP --tokenizer bpe/tokenizer", says="has no token 'STOP'"),
    # eval
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
    row("eval run --text text.txt --tokenizer bpe/tokenizer", says="has a tokenizer of its own"),
    row("eval", "bpe run", "--text", "text.txt", "--tokenizer", "bytes", says="other ids"),
    row("eval run run", says="run is named twice"),
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
    row(f"{LENGTH} --out text.txt/below", says="cannot write text.txt/below: Not a directory"),
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
    row(f"{TASKS} --out text.txt/below", says="cannot write text.txt/below: Not a directory"),
    # generate
    row("generate", says="RUN must be given ("),
    row("export", says="--out and RUN must"),
    row("import --out new", says="FOLDER must be given ("),
    row("generate run --prompts nowhere.txt", says="cannot read prompts from nowhere.txt"),
    row("generate run --prompts books", says="cannot read prompts from books"),
    row("generate run --prompts binary.txt", says="cannot read prompts from binary.txt"),
    row("generate run --prompts nothing.txt", says="nothing.txt is empty"),
    row("generate run --prompts", "", says="prompts is empty"),
    row("generate run --prompt a --prompts text.txt", says="cannot be given together"),
    row("generate run --prompt a --prompt-file text.txt", says="cannot be given together"),
    row("generate run --prompts text.txt --prompt-file text.txt", says="cannot be given together"),
    row("generate run --prompt-file nowhere.txt", says="cannot read a prompt from nowhere.txt"),
    row("generate run --prompt-file books", says="cannot read a prompt from books"),
    row("generate run --prompt-file binary.txt", says="cannot read a prompt from binary.txt"),
    row("generate run --prompt-file", "", says="--prompt-file is empty"),
    row(f"{GENERATE} --stop", "", says="a stop string is empty"),
    row(f"{GENERATE} --top-p 1.5", says="top_p"),
    row(f"{GENERATE} --max-new-tokens -1", says="max_new_tokens must be"),
    row(f"{GENERATE} --max-new-tokens {10**30}", says="max_new_tokens must be"),
    row(f"{GENERATE} --max-new-tokens few", says="--max-new-tokens"),
    row(f"{GENERATE} --min-p 2", says="min_p"),
    row(f"{GENERATE} --repetition-penalty 0", says="repetition_penalty"),
    row("generate", "run without tokenizer", says="name one with --tokenizer"),
    row("generate run --tokenizer bpe/tokenizer", says="has a tokenizer of its own"),
    # export and import
    row("export run", says="--out must be given"),
    row("export gpt --fold --out new", says="--fold is for nGPT"),
    row("export run --out .", says="--out"),
    row("export run --out ..", says="--out"),
    row("export run --out /", says="--out"),
    row("export", "run without tokenizer", "--out", "new", says="name one with --tokenizer"),
    row("import hf", says="--out must be given"),
    row("import hf --out .", says="--out"),
    row("import hf --out ..", says="--out"),
    row("import run --out new", says="run is already spherelm's own"),
    row("import folded --out new", says="folded export"),
    *(
        row("import", name, "--out", "new", says=says)
        for name, says in NO_MODELS.items()
        if not name.startswith("run")
    ),
    # bench and info
    row("bench stpe", says="did you mean 'step'?"),
    row("bench", "", says="there is no benchmark ''"),
    row(f"{KERNELS} --d-model 8", says="--d-model must be a multiple of 64"),
    row("bench step --archs", says="--archs"),
    row("bench step --sizes ngpt-debug --device cpu", says="unknown preset"),
    row("bench decode --size", "", "--device", "cpu", says="unknown preset"),
    row("bench data --text nowhere.txt", says="cannot read nowhere.txt"),
    row("bench data --tokenizer tokenizers/nowhere.json", says="does not exist"),
    row("report run", says="--out must be given"),
    row("report --out new", says="report needs at least one run"),
    row("report run run --out new", says="run is named twice"),
    row("report nowhere --out new", says="nowhere does not exist; give run directories"),
    row("report hf --out new", says="hf holds no run (config.toml)"),
    row("report text.txt --out new", says="text.txt does not exist"),
    row("report run --out run", says="is an input, too"),
    row("report run --out full", says="full holds mine.txt, which"),
    row("report run --out data", says="data was written by `spherelm prepare`"),
    row("report run --out text.txt", says="text.txt"),
    row("report run --out", "", says="out is empty"),
    row("report --out new", "", says="is empty; name a file or folder"),
    row("report run --out new", says="metrics.jsonl"),  # its only line lacks what a step has
    row("report --out new " + " ".join(f"r{n}" for n in range(13)), says="at most 12 runs"),
    row("presets --device zzz --time", says="--device"),
    row("presets nano", says="one word too many"),
    row("presets --tiem", says="did you mean --time?"),
    row("info", says="--preset must be given"),
    row("info --preset", "", says="unknown preset ''"),
    row("info --preset nanno", says="did you mean"),
    row("info --world-size 2 x", says="--world-size"),
    row("info --preset debug --world-size 0 2", says="--world-size must be"),
)


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
    for command in ("train --preset debug --data data --device cpu --out new", INFO):
        for name, says in NO_CONFIGS.items():
            yield row(command, "--config", name, says=says)
    for name, says in NO_INPUTS.items():
        yield row("prepare", name, "--out", "new", says=says)


def rows() -> dict[BadInput, bool]:
    """The whole table: each row once, and whether it is tried every day.

    Of those made from kinds and places every third is; all of them are in `make test-slow`.
    """
    every_third = {bad: number % 3 == 0 for number, bad in enumerate(made())}
    return every_third | dict.fromkeys(PECULIAR, True)
