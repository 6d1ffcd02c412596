# Every target needs Python 3.11 to 3.13 with its venv module (python3, or PYTHON=python3.12); packages go to .venv,
# nothing else is touched.

PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)
INSTALLED := .venv/.installed
DOCS_TOOLS := .venv/.docs-installed
# Tests start many processes, which would compile the package each time.
unexport PYTHONDONTWRITEBYTECODE

# Whole files go to a worker, which computes their fixtures once. More than four workers would only compute more of them.
# In the order of their names, so that the longest (of whole runs) begin first, and the last ones are short.
PARALLEL := --numprocesses=logical --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-nightly test-faults check bench bench-gpu peers lock audit sbom digests docs results cast report-picture notebooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## install icalib and its tools into .venv, once

$(BIN)/python:
	$(PYTHON) -m venv .venv

# torch comes first, by itself: pip then takes the build that this machine offers (a CPU wheel where there is one),
# and the second command finds the requirement met. Python compiles what is imported, which is a small part of it all.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --no-compile $(TORCH)
	$(BIN)/pip install --no-compile -c constraints.txt -e '.[dev]'
	touch $@

$(DOCS_TOOLS): $(INSTALLED)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

demo: venv ## what few labels and self-training are worth on a simulated support desk, in minutes
	$(BIN)/icalib demo

test: venv ## the tests to run after every change, and the examples in docstrings
	$(BIN)/pytest --doctest-modules icalib
	$(BIN)/pytest $(PARALLEL)

test-slow: venv ## what needs a real Ray or half a minute, one of each kind: methods, ZeRO, kills, a sweep, jobs, a graph, notebooks
	$(BIN)/pytest $(PARALLEL) -m 'slow and not nightly'

test-nightly: venv ## the others of each kind, and what takes minutes each: nodes that die, object stores, whole notebooks
	$(BIN)/pytest -m nightly

test-faults: venv ## damages, kills, refusing disks and fuzzed input, and what became of them; FAULTS='--minutes 60 --seed 2'
	$(BIN)/python tests/faults/campaign.py $(FAULTS)

check: venv ## format, lint, types and import layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: venv ## speed and memory beside other tools, as ratios
	$(BIN)/pip install --quiet -c constraints.txt 'sentence-transformers[train]'
	$(BIN)/python benchmarks/bench.py

bench-gpu: venv ## the tests that need a GPU, and what BERT-base does on it: scoring, ZeRO 1 to 3, shared GPUs
	$(BIN)/pip install --quiet -c constraints.txt 'sentence-transformers[train]'
	$(BIN)/python benchmarks/gpu.py

peers: venv ## sentence-transformers' rankers on the same pools; PEERS='pools/mine --labelled 0.03', see benchmarks/peers.py
	$(BIN)/pip install --quiet -c constraints.txt 'sentence-transformers[train]'
	$(BIN)/python benchmarks/peers.py $(PEERS)

lock: venv ## cluster/requirements.lock: SHA-256 of what the image installs from PyPI, in the versions of constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[audit]'
	$(BIN)/python cluster/lock.py

audit: venv ## known vulnerabilities of what the lock pins; asks PyPI
	$(BIN)/pip install --quiet -c constraints.txt -e '.[audit]'
	$(BIN)/pip-audit --requirement cluster/requirements.lock --require-hashes --disable-pip

sbom: venv ## bill of materials of .venv in build/sbom.cdx.json (CycloneDX); the image has its own
	mkdir -p build
	$(BIN)/python cluster/sbom.py > build/sbom.cdx.json

digests: venv ## digests of small runs of every method, to digests.json: see CONTRIBUTING.md
	$(BIN)/python tests/digests.py digests.json

# The variable silences what Material says about its successor; mkdocs.yml makes warnings errors.
docs: $(DOCS_TOOLS) ## the documentation as a site in build/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "To read it: $(BIN)/python -m http.server --directory build/site"

results: $(DOCS_TOOLS) ## write the tables and pictures of docs/ from docs/results/*.yaml
	$(BIN)/python docs/results.py
	$(BIN)/python docs/pictures.py

cast: $(DOCS_TOOLS) ## record the terminal of the quick start anew, in minutes
	$(BIN)/python docs/cast.py

report-picture: ## the picture of docs/reports.md anew, of a demo's report; needs Chromium
	$(BIN)/python docs/report_picture.py runs/demo/report.html

notebooks: $(DOCS_TOOLS) ## execute the notebooks of examples/ and store what they print
	$(BIN)/python examples/execute.py

clean: ## remove caches and build products; .venv and runs stay, but for the benchmarks' pools
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache runs/benchmarks
	find icalib tests -name __pycache__ -type d -prune -exec rm -rf {} +
