# Everything runs in .venv, which the first target that needs it creates from the pinned versions.
# vLLM needs other versions than the trainer: it has .venv-vllm, with pins of its own.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV := .venv-vllm
# Environments of frameworks, with a few packages on top of those of .venv.
FRAMEWORKS := verl skyrl tinker swift
OLD_TRL := 0.29.0 1.0.0 1.14.0
# One more than CI's two cores: tests that start programs wait for a fifth of their time. A fourth
# worker made a whole run no shorter.
PYTEST_WORKERS ?= 3

export HF_HUB_OFFLINE := 1
# Tests start many programs. Where this is set, each compiles all modules again, which doubles the
# time that vLLM takes to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-triton venv venv-vllm $(FRAMEWORKS:%=venv-%) venv-trl compile-tests check faults bench bench-causes controller-test evidence publish fuzz kills planted planted-preflight planted-runs planted-mechanisms pictures probe-grid docs large-dump \
	constraints clean

demo: venv  ## train a run with a planted fault, watch and treat it, write a report
	$(BIN)/grpodoctor demo --dir demo --again

test: venv venv-vllm venv-verl venv-skyrl venv-tinker  ## all tests except the slow ones
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder

test-slow: venv venv-vllm $(FRAMEWORKS:%=venv-%) venv-trl  ## long tests, and all properties with ten times the examples
	$(BIN)/python -m pytest -m 'slow or hypothesis' --hypothesis-profile thorough -n 0

venv: $(VENV)/.installed  ## create the environment

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("grpodoctor needs Python 3.11 to 3.13; run: make PYTHON=python3.11" if not (3, 11) <= sys.version_info[:2] <= (3, 13) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt pip hatchling editables
	$(BIN)/python -m pip install -q --no-compile -c constraints.txt --no-build-isolation --group dev -e '.[torch]'
	touch $@

venv-vllm: $(VLLM_VENV)/.installed  ## create the environment of vLLM for the CPU

# Installed from the pins alone: a fresh resolution of vLLM would install CUDA builds of torchvision
# and other packages, which fail next to a CPU build of torch. No environment is compiled, because
# tests import few of the modules: pip compiles them one by one, for as long as it installs them.
$(VLLM_VENV)/.installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install -q --no-compile --no-deps -r constraints-vllm.txt
	$(VLLM_VENV)/bin/python -m pip install -q --no-compile --no-deps --no-build-isolation -e .
	touch $@

venv-trl: $(OLD_TRL:%=.venv-trl/%/.installed)  ## install older versions of TRL, for test-slow

# Packages without dependencies, which PYTHONPATH puts before those of .venv.
.venv-trl/%/.installed: $(VENV)/.installed
	$(BIN)/python -m pip install -q --no-deps --target $(@D) trl==$*
	touch $@

$(FRAMEWORKS:%=venv-%): venv-%: .venv-%/.installed  ## create the environment of a framework

# Small packages from the pins alone; torch, transformers and ray are those of .venv.
$(FRAMEWORKS:%=.venv-%/.installed): .venv-%/.installed: $(VENV)/.installed constraints-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install -q --no-compile --no-deps -r constraints-$*.txt
	packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
		echo "import site; site.addsitedir('$$packages')" \
		> $$(.venv-$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth
	touch $@

test-triton: venv  ## the Triton kernels, on a GPU or else in Triton's interpreter
	$(PYTHON) -m venv .venv-triton
	.venv-triton/bin/python -m pip install -q --no-deps triton==3.9.0
	packages=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
		echo "import site; site.addsitedir('$$packages')" \
		> $$(.venv-triton/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth
	.venv-triton/bin/python -m pytest -n 0 tests/measure/test_hidden_triton.py

faults: venv  ## let every system call of recording and reading fail once; print the outcomes; 20 minutes
	$(BIN)/python -m tests.faults

compile-tests: venv  ## so that not each worker of `make test` compiles all tests anew
	$(BIN)/python -m pytest --collect-only -n 0 -q >/dev/null

check: venv  ## lint, format, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv  ## print every figure that README and docs quote
	$(BIN)/python -m tests.benchmarks

bench-causes: venv  ## plant faults in nine model families, print whether the probe names them
	$(BIN)/python tests/benchmarks/bench_unseen_causes.py

controller-test: venv  ## print how often the doctor keeps treatments with and without effect; 20 minutes
	$(BIN)/python tests/benchmarks/bench_treatment_test.py
	$(BIN)/python tests/benchmarks/bench_treatment_runs.py

planted: venv  ## train runs with planted causes, print whether check names them; an hour
	$(BIN)/python tests/benchmarks/planted_causes.py

fuzz: venv  ## feed damaged files, odd command lines and partial logs to every reader, command and rule
	$(BIN)/python -m tests.fuzz --inputs 100000
	$(BIN)/python -m tests.fuzz.command_lines --count 1000
	$(BIN)/python -m tests.fuzz.metric_subsets --count 1000
	$(BIN)/python -m tests.fuzz.odd_tables --count 1000

planted-runs: venv  ## simulate runs with planted causes in every log format, print whether check names them
	$(BIN)/python -m tests.benchmarks.planted_runs --seed $(SEED)

planted-mechanisms: venv  ## train small policies with mechanisms that break runs, print whether check names them
	$(BIN)/python -m tests.benchmarks.planted_mechanisms --seed $(SEED)

planted-preflight: venv  ## print which planted faults a preflight names, and alarms on healthy sets
	$(BIN)/python -m tests.benchmarks.planted_preflight

kills: venv  ## kill 100 trainings, writers and both at random moments; compare what resumes
	$(BIN)/python -m tests.kills --kills 100

pictures: venv  ## capture the terminal pictures of the README; needs tmux and chromium
	$(BIN)/python -m tests.benchmarks.pictures

probe-grid: venv venv-vllm  ## run the grid of docs/probe-results.md: vLLM against real learners, half an hour
	$(BIN)/python -m tests.benchmarks.probe_grid

SEED ?= 1
TRIALS ?= trials
evidence: venv  ## train all trials and the healthy runs in TRIALS (directory), publish them; hours
	$(BIN)/grpodoctor trials --dir $(TRIALS)
	$(BIN)/grpodoctor trials --healthy --dir $(TRIALS)
	$(MAKE) publish TRIALS=$(TRIALS)

publish: venv  ## add the finished runs in TRIALS to the published ones, regenerate docs/evidence.md
	$(BIN)/python -m grpodoctor.trials.evidence.publishing $(TRIALS)
	$(BIN)/grpodoctor trials --published --output-format markdown > docs/evidence.md

docs: venv  ## regenerate docs/recipes.md from docstrings and docs/evidence.md from the published runs
	$(BIN)/grpodoctor recipe --output-format markdown > docs/recipes.md
	$(BIN)/grpodoctor trials --published --output-format markdown > docs/evidence.md

large-dump: venv  ## read a rollout dump of 5 GB; print steps, responses and peak memory in MB
	dump=$$(mktemp -d) && trap 'rm -rf "$$dump"' EXIT && \
	$(BIN)/python -m tests.runs.rollout_dumps.large "$$dump" 5000 10

constraints: venv venv-vllm  ## pin the installed versions
	$(BIN)/python -m pip freeze --exclude-editable --all | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | sort -f > constraints.txt
	$(VLLM_VENV)/bin/python -m pip freeze --exclude-editable --all | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | sort -f > constraints-vllm.txt

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(FRAMEWORKS:%=.venv-%) .venv-triton build dist demo probe-grid .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
