# The two commands of the README: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-all check bench figures format constraints clean
.DEFAULT_GOAL := test

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prolip needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing prolip into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report,test]'
	@touch $@

demo: $(STAMP)  ## train something small, look at it: runs/demo
	@$(BIN)/prolip demo

check: $(STAMP)
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy

test: check  ## style, types, and the quick tests
	@HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 -m "not slow and not hub" --durations=5

test-slow: $(STAMP)  ## what takes longer
	@HF_HUB_OFFLINE=1 $(BIN)/pytest -n 2 -m "slow and not hub" --durations=5

test-all: test test-slow  ## every test that this machine can run

bench: $(STAMP)  ## the table of docs/performance.md
	@$(BIN)/prolip bench measures --compiled

figures: $(STAMP)  ## the figures of the docs
	@$(BIN)/prolip report toy --out docs/figures/toy-inclusion

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

constraints: ## resolve all extras together, anew
	@$(PYTHON) tools/resolve_constraints.py

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache
