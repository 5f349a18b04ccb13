# Two commands on a bare machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install test lint types unit test-slow demo docs format clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv with everything in it

# Reinstalled only when the files that say what to install have changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "spherelm needs Python 3.10 or newer; try: make install PYTHON=python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), once: some gigabytes, some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

test: lint types unit ## lint, types and tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

test-slow: $(STAMP) ## the tests that take minutes, and every trial of docs/reliability.md: an hour
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow
	SPHERELM_ALL_TRIALS=1 OMP_NUM_THREADS=1 $(BIN)/pytest tests/faults tests/distributed/test_ranks.py

demo: $(STAMP) ## train GPT and nGPT side by side: about three minutes on two cores
	$(BIN)/spherelm compare --out runs/demo --force

docs: $(STAMP) ## build the documentation as a site, build/site/index.html
	$(BIN)/sphinx-build -q -E -W --keep-going -b html docs build/site
	@echo "open build/site/index.html"

format: $(STAMP) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and what tools left behind
	rm -rf $(VENV) build/site .mypy_cache .ruff_cache .pytest_cache
