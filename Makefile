# quietlane's two commands: `make tune` runs the main job here, `make test` passes the tests.
# Each makes what it needs (.venv, the CPU engine) if it is not there, and does nothing twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CPU_ENGINE := .sglang-cpu
MODELS := .models

# What `make tune` searches: the CPU space wherever it is not told otherwise. On a box with GPUs:
#   make tune SPACE=nextn TRIALS=60
SPACE ?= cpu
TRIALS ?= 5
STORAGE ?= sqlite:///quietlane.db

# The two environments are made side by side.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --jobs=2
endif

export QUIETLANE_CPU_ENGINE := $(CURDIR)/$(CPU_ENGINE)/bin/python
export QUIETLANE_TINYMTP := $(CURDIR)/$(MODELS)/tinymtp

.PHONY: tune test lint engine fast-test clean

tune: $(VENV)/.complete $(if $(filter cpu,$(SPACE)),engine)
	$(BIN)/quietlane tune $(SPACE) --trials $(TRIALS) --storage $(STORAGE)

test: $(VENV)/.complete engine
	$(BIN)/pip check
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest tests

fast-test: $(VENV)/.complete
	$(BIN)/python -m pytest tests -m "not real and not slow"

lint: $(VENV)/.complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The real SGLang for a machine without a GPU, in an environment of its own, and the small model that it serves.
# QUIETLANE_TORCH_INDEX names an index that has CPU builds of torch, where the default one would bring CUDA.
# The installer needs nothing but Python, so that both environments are made at the same time.
engine:
	$(PYTHON) -m engine.cpu.prepare --venv $(CPU_ENGINE) --models $(MODELS) >/dev/null

$(VENV)/.complete: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) and "quietlane needs Python 3.11 to 3.13: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,postgres]'
	touch $@

clean:
	rm -rf $(VENV) $(CPU_ENGINE)
