"""What is peculiar to the benchmarks."""

from __future__ import annotations

from tests.faults.bad_inputs.row import KERNELS, row

ROWS = (
    row("bench step --device cpu --sizes gpt-nano", says="'gpt-nano'; did you mean 'nano'?"),
    row("bench decode --device cpu --size nanno", says="'nanno'; did you mean 'nano'?"),
    row("bench stpe", says="did you mean 'step'?"),
    row("bench", "", says="there is no benchmark ''"),
    row(f"{KERNELS} --d-model 8", says="--d-model must be a multiple of 64"),
    row(f"{KERNELS} --tokens 2047", says="--tokens must be a multiple of 1024, or below it"),
    row("bench step --archs", says="--archs"),
    row("bench step --sizes ngpt-debug --device cpu", says="unknown preset"),
    row("bench decode --size", "", "--device", "cpu", says="unknown preset"),
    row("bench data --text nowhere.txt", says="cannot read nowhere.txt"),
    row("bench data --tokenizer tokenizers/nowhere.json", says="does not exist"),
    row(f"{KERNELS} --tokens {2**50}", says="GiB"),
    row(f"{KERNELS} --d-model {2**50}", says="GiB"),
)
