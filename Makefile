# Everything runs in .venv, which the first target that needs it makes from the pinned versions.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_WORKERS ?= 2

export HF_HUB_OFFLINE := 1

.PHONY: demo test venv check bench large-dump constraints clean

demo: venv  ## train, watch, diagnose and treat a run that falls ill, and leave a report behind
	$(BIN)/grpodoctor demo --dir demo --again

test: venv  ## every test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile

venv: $(VENV)/.installed  ## the environment alone

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("grpodoctor needs Python 3.11 to 3.13; run: make PYTHON=python3.11" if not (3, 11) <= sys.version_info[:2] <= (3, 13) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation --group dev -e '.[torch]'
	touch $@

check: venv  ## lint, format, types and the order of the floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv  ## every figure that README and docs quote, printed
	$(BIN)/python -m tests.benchmarks

large-dump: venv  ## read a rollout dump of 5 GB; prints steps, responses, and the peak of memory in MB
	dump=$$(mktemp -d) && trap 'rm -rf "$$dump"' EXIT && \
	$(BIN)/python -m tests.runs.dumps.large "$$dump" 5000 10

constraints: venv  ## pin what is installed now
	$(BIN)/python -m pip freeze --exclude-editable --all | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | sort -f > constraints.txt

clean:
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
