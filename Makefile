# The two commands of the README: `make demo` and `make test`. Both install what they need into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Some machines forbid bytecode by their environment: every process that a test starts would compile prolip anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-slow test-all check bench fuzz chaos reproduce figures docs map format constraints dist clean
.DEFAULT_GOAL := help

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prolip needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { rm -rf $(VENV); echo "no virtual environment: install Python's venv module (Debian: apt install python3-venv)"; exit 1; }
	@echo "Installing prolip into $(VENV), once ..."
	@$(BIN)/python -m pip install --constraint constraints.txt --editable '.[report,data,search,ray,app,onnx,photos,lora,integrations,logging,test,test-more,docs]'
	@touch $@

demo: $(STAMP)  ## train something small, look at it: runs/demo
	@$(BIN)/prolip demo --claims reproduction/table.json

check: $(STAMP)
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check .
	@$(BIN)/mypy

test: check  ## style, types, and the quick tests
	@HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "not slow" -rs --durations=5

test-slow: $(STAMP)  ## what takes longer
	@HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -m "$(or $(MARK),slow)" --durations=5

test-all: test test-slow  ## every test that this machine can run

# A benchmark's records replace its earlier ones in RECORDS; AGAINST may be the same file.
BENCH_FILES = --json $(or $(RECORDS),runs/bench.json) $(if $(AGAINST),--against $(AGAINST))
bench: $(STAMP)  ## the tables of docs/performance.md, search.md, traversal.md and scale.md (needs 8 GiB; with a C++ compiler also torch.compile); RECORDS=FILE, AGAINST=FILE of an earlier run
	@mkdir -p runs
	@$(BIN)/python -m benchmarks measures $(if $(shell command -v c++),--compiled) $(BENCH_FILES)
	@$(BIN)/python -m benchmarks towers $(BENCH_FILES)
	@$(BIN)/python -m benchmarks data $(BENCH_FILES)
	@$(BIN)/python -m benchmarks train $(BENCH_FILES)
	@$(BIN)/python -m benchmarks checkpoints $(BENCH_FILES)
	@$(BIN)/python -m benchmarks evaluate --repeats 5 $(BENCH_FILES)
	@$(BIN)/python -m benchmarks search $(BENCH_FILES)
	@$(BIN)/python -m benchmarks traverse $(BENCH_FILES)
	@$(BIN)/python -m benchmarks scale --photos 512 --repeats 5 $(BENCH_FILES)
	@$(BIN)/python -m benchmarks startup $(BENCH_FILES)
	@$(BIN)/python -m benchmarks open-search $(BENCH_FILES)
	@$(BIN)/python -m benchmarks threads $(BENCH_FILES)
	@$(BIN)/python -m benchmarks growth --figure runs/growth.png $(BENCH_FILES)

fuzz: $(STAMP)  ## damaged inputs of every kind, COUNT of each (100): anything but a clear error is a finding
	@HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m fuzzing --count $(or $(COUNT),100) --seed $(or $(SEED),0)

chaos: $(STAMP)  ## kills and faults at file operations of train, embed, index and filter, COUNT of each (25)
	@HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m chaos --count $(or $(COUNT),25) --seed $(or $(SEED),0)

reproduce: $(STAMP)  ## the paper's claims in miniature, each with controls and a verdict (hours; finished cells are kept)
	@$(BIN)/python -m reproduction --docs docs/miniature.md

figures: $(STAMP)  ## the figures of the docs
	@$(BIN)/prolip report toy --out docs/figures/toy-inclusion
	@$(BIN)/prolip report scenes --out docs/figures/scenes
	@$(BIN)/python tools/readme_picture.py docs/figures/photographs
	@$(BIN)/python tools/guide_figures.py docs/figures

docs: $(STAMP)  ## the documentation as a site, built without a network: site/index.html
	@$(BIN)/python tools/make_notebooks.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

map: $(STAMP)  ## the map of the source tree in docs/architecture.md
	@$(BIN)/python tools/architecture_map.py

format: $(STAMP)  ## put the code into shape
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

constraints:  ## resolve all extras together, anew
	@$(PYTHON) tools/resolve_constraints.py

dist: $(STAMP)  ## sdist and wheel in dist/, tried in an empty environment outside the checkout
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	@rm -rf dist && $(BIN)/python -m build --outdir dist .
	@$(BIN)/python tools/try_wheel.py dist/prolip-*.whl

clean:  ## back to a fresh checkout
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
