# One command per habit; CI calls the same ones. Everything happens in .venv, made from the lock files when missing.
#
#   make demo                 play an outage and its repair; needs Python 3.11 or newer and nothing else
#   make demo CLUSTER=sim     on the simulated API server; CLUSTER=real on a real control plane (Go builds it once)
#   make demo DEMO="--count 85 --outage 60"
#   make test                 everything that this machine can run; says what it skipped
#   make lint types imports   style, types, direction of imports
#   make docs                 the documentation, built strictly into site/
#   make dist                 wheel, sdist and bill of materials, tried in an empty environment
#   make sbom                 the bill of materials alone, into dist/sbom.cdx.json
#   make bench                figures, printed
#   make cluster              a real control plane to try things on, until Ctrl-C

# The first Python on PATH that is new enough. Override: make demo PYTHON=python3.12
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
CLUSTER ?= auto
DEMO ?=
TESTS ?=
# Tests at a time. Most of the time they wait for back-offs, so more than there are cores; JOBS=0 is one by one.
JOBS ?= 3
BENCH ?=

# The tests start hundreds of processes. Without compiled modules each would compile Celery anew, for a second or more.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := remesh watcher workers config tests benchmarks

# The real control plane's own parts need the tests' dependencies; the simulated one needs nothing more.
CACHE := $(or $(REMESH_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/remesh)
REAL_IS_POSSIBLE := $(or $(KUBEBUILDER_ASSETS),$(if $(filter none,$(REMESH_GO)),,$(shell command -v $(or $(REMESH_GO),go) 2>/dev/null)),$(wildcard $(CACHE)/testcluster/*))
DEMO_NEEDS := $(if $(filter real,$(CLUSTER)),$(DEV),$(if $(filter auto,$(CLUSTER)),$(if $(REAL_IS_POSSIBLE),$(DEV),$(RUN)),$(RUN)))

.PHONY: help demo test lint format types imports docs dist sbom bench cluster check venv clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: $(DEMO_NEEDS)
	@$(BIN)/python -m remesh demo --on $(CLUSTER) $(DEMO)

test: $(DEV)
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

lint: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(DEV)
	@$(BIN)/mypy

imports: $(DEV)
	@$(BIN)/lint-imports

check: lint types imports test

docs: $(DEV)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(DEV)
	@.ci/release

sbom: $(DEV)
	@.ci/sbom

bench: $(DEV)
	@$(BIN)/python -m benchmarks $(BENCH)

cluster: $(DEV)
	@$(BIN)/python -m tests.cluster up

venv: $(DEV)

$(RUN): requirements.lock requirements-build.lock pyproject.toml
	@$(call make-venv)
	@echo "Installing the pinned dependencies into $(VENV) (a minute, once) …"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(call install-self)
	@touch $@

$(DEV): requirements-dev.lock requirements-build.lock pyproject.toml
	@$(call make-venv)
	@echo "Installing the pinned dependencies and the tests' into $(VENV) (a minute or two, once) …"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(call install-self)
	@touch $@ $(RUN)

define make-venv
command -v $(PYTHON) >/dev/null 2>&1 || \
	{ echo "remesh: no Python found as '$(PYTHON)'; install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.11"; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "remesh: $(PYTHON) is $$($(PYTHON) -V 2>&1), but Python 3.11 or newer is needed; name one: make PYTHON=python3.11"; exit 1; }; \
test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	echo "Making $(VENV) with $$($(PYTHON) -V) …"; \
	$(PYTHON) -m venv $(VENV) 2>$(VENV).log || { tail -n 3 $(VENV).log; rm -f $(VENV).log; \
		echo "remesh: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install python3-venv"; exit 1; }; \
	rm -f $(VENV).log; }
endef

define install-self
$(PIP) install --require-hashes -r requirements-build.lock && \
$(PIP) install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
endef

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist *.egg-info
