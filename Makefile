# make demo       an audit on handwritten digits: what plain, shuffled and summed updates give away, with a report
# make check      style, types, and a test of every part and law: about two minutes
# make test       everything that must hold: about ten minutes; make test-long adds every combination of cases
# make docs       writes what the docs take from the parts: lists in docs/description.md, docs/croupier.schema.json
# make site       the docs as pages to read from disk: site/index.html

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Coverage is counted of the rooms that a guarantee rests on, and of no others: to watch lines takes time.
ROOMS = core encode release aggregate privacy mpc agree place engine audit
COUNTED = $(foreach room,$(ROOMS),--cov=croupier.$(room))

.PHONY: demo check style types fast test gate test-long docs site format clean

demo: $(VENV)/.core
	$(BIN)/croupier audit --fast

# One thread each: tests run two at a time (or beside mypy), and threads that wait for a core burn what others need.
fast gate test-long: export OMP_NUM_THREADS = 1
# Tests start hundreds of processes: each would compile the whole package anew where bytecode is not kept.
unexport PYTHONDONTWRITEBYTECODE

check: style
	$(MAKE) --no-print-directory --jobs 2 --output-sync types fast

# Types are checked beside the tests: one process of its own while two run tests.
test: style
	$(MAKE) --no-print-directory --jobs 2 --output-sync types gate

gate: $(VENV)/.dev
	$(BIN)/python -m pytest --tier test -n 2 --dist worksteal --durations 30 --durations-min 2 $(COUNTED) --cov-report=
	$(BIN)/python -m coverage report --fail-under=90

test-long: style types
	$(BIN)/python -m pytest --tier long -n 2 --dist worksteal --durations 30 --durations-min 2

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

fast: $(VENV)/.dev
	$(BIN)/python -m pytest --tier fast -n 2 --dist worksteal

docs: $(VENV)/.dev
	$(BIN)/python -m tools.describe

# A newer generator announces itself, loudly, in every build: nothing that a reader can act on.
site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(VENV)/.core $@

clean:
	rm -rf $(VENV) site runs audits reproductions .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
