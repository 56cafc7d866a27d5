# Two commands on a fresh machine: `make demo` and `make test`. Both set everything up in .venv.
# PYTHON picks the interpreter for .venv; PYTEST_ARGS adds to the test run.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The suite waits on processes more than it computes: more workers than cores.
TEST_WORKERS ?= 4
PYTEST_ARGS ?=

# Pins reach build requirements, too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export UV_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

# Start-up time matters to every job and every command: keep compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

# mkdocs-material prints a page about its successor at every build.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help setup demo test lint format bench soak docs clean

help:
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(READY) ## make .venv with everything the other targets need

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): set PYTHON=/path/to/python3.10+"; exit 1; }
	@if command -v uv >/dev/null; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q -e '.[dev]'; \
	fi
	@touch $@

demo: setup ## train the demo trainer on the local platform
	@$(BIN)/python examples/demo.py

test: setup ## run the tests; installs nothing outside .venv
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

soak: setup ## the full counts of the random suites (many minutes)
	TAO_SOAK=1 $(BIN)/python -m pytest -m soak -s $(PYTEST_ARGS)

lint: setup ## formatting, style, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## apply the formatter
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure; figures in the documentation come from here
	$(BIN)/python -m bench

docs: setup ## write the generated parts of the documentation, build the site
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict

clean: ## remove everything that make made
	rm -rf $(VENV) build dist site .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
