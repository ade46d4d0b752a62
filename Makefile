# make demo   an audit on handwritten digits: what plain, shuffled and summed updates give away, with a report
# make test   everything that must hold; make test-long adds what takes many minutes

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-long check format clean

demo: $(VENV)/.core
	$(BIN)/croupier audit --fast

test: check
	$(BIN)/python -m pytest -n 2 --cov=croupier --cov-report=
	$(BIN)/python -m coverage report --fail-under=90 --include='src/croupier/core/*,src/croupier/release/*,src/croupier/aggregate/*,src/croupier/place/*'

test-long: check
	$(BIN)/python -m pytest -n 2 -m 'long or not long'

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
	rm -rf $(VENV) runs audits reproductions .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
