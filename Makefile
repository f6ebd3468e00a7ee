# Everything runs in .venv, which the first target that needs it makes from the pinned versions.
# vLLM and the trainer do not want the same versions: it has .venv-vllm, from its own pins.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV := .venv-vllm
PYTEST_WORKERS ?= 2

export HF_HUB_OFFLINE := 1

.PHONY: demo test test-slow venv venv-vllm check bench probe-grid docs large-dump constraints clean

demo: venv  ## train, watch, diagnose and treat a run that falls ill, and leave a report behind
	$(BIN)/grpodoctor demo --dir demo --again

test: venv venv-vllm  ## every test but the slow ones
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile

test-slow: venv venv-vllm  ## what takes a minute or more of real engines
	$(BIN)/python -m pytest -m slow -n 0

venv: $(VENV)/.installed  ## the environment alone

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("grpodoctor needs Python 3.11 to 3.13; run: make PYTHON=python3.11" if not (3, 11) <= sys.version_info[:2] <= (3, 13) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation --group dev -e '.[torch]'
	touch $@

venv-vllm: $(VLLM_VENV)/.installed  ## the environment of vLLM, on the CPU

# The pins are the whole of it: resolved anew, vLLM would bring CUDA builds of torchvision and others,
# which fail beside a CPU build of torch.
$(VLLM_VENV)/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install -q --no-deps -r constraints-vllm.txt
	$(VLLM_VENV)/bin/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

check: venv  ## lint, format, types and the order of the floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv  ## every figure that README and docs quote, printed
	$(BIN)/python -m tests.benchmarks

probe-grid: venv venv-vllm  ## real vLLM against real learners, the grid of docs/probe.md; about half an hour
	$(BIN)/python -m tests.benchmarks.probe_grid

docs: venv  ## write docs/formulary.md anew from the variants' own pages
	$(BIN)/grpodoctor formulary --output-format markdown > docs/formulary.md

large-dump: venv  ## read a rollout dump of 5 GB; prints steps, responses, and the peak of memory in MB
	dump=$$(mktemp -d) && trap 'rm -rf "$$dump"' EXIT && \
	$(BIN)/python -m tests.runs.rollout_dumps.large "$$dump" 5000 10

constraints: venv venv-vllm  ## pin what is installed now
	$(BIN)/python -m pip freeze --exclude-editable --all | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | sort -f > constraints.txt
	$(VLLM_VENV)/bin/python -m pip freeze --exclude-editable --all | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | sort -f > constraints-vllm.txt

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist demo probe-grid .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
