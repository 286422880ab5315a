# Every target sets up what it needs where .venv is absent. Stamp files in .venv say what is installed.
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
VENV := .venv
BIN := $(VENV)/bin
FULL := $(VENV)/.installed-full
BASE := $(VENV)/.installed-bench
# A full installation serves the bench as well.
BENCH := $(if $(wildcard $(FULL)),$(FULL),$(BASE))
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable

.PHONY: help setup bench test check format digests clean

help:
	@echo "make setup    .venv with everything: agents, plots, dev"
	@echo "make bench    compare schedulers on the default scenario, results in bench-out/ (needs no torch)"
	@echo "make test     run the tests"
	@echo "make check    formatting, lint, types, directions of imports"
	@echo "make format   format and fix what can be fixed"
	@echo "make digests  renew the digests of results that tests compare with (then name the change in CHANGELOG.md)"

setup: $(FULL)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing cacheenv with agents, plots and dev tools into $(VENV) (a few minutes) ..." >&2
	$(INSTALL) '.[agents,plots,dev]'
	@touch $(FULL) $(BASE)

$(BASE): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing cacheenv with plots into $(VENV) ..." >&2
	$(INSTALL) '.[plots]'
	@touch $(BASE)

bench: $(BENCH)
	$(BIN)/cacheenv bench --jobs $(JOBS) --out bench-out

test: $(FULL)
	$(BIN)/python -m pytest -n $(JOBS)

check: $(FULL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(FULL)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

digests: $(FULL)
	$(BIN)/python tests/equality/digests.py --renew

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
