# Every target sets up what it needs by itself; `make help` lists them.
#
# Two environments: .venv has everything (tests, checkers, build tools); .make/run has only what
# running stoker needs, so that `make demo` is quick from nothing and proves the runtime list.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tests and demo start many processes; without compiled modules each would compile all of stoker anew.
unexport PYTHONDONTWRITEBYTECODE

# The oldest supported release first: what works there works on the later ones.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
RUN := .make/run
RUN_STAMP := $(RUN)/.complete

# One limit for a whole run of the tests, so that a hang is a failure with a name.
SESSION_S := 900
PYTEST := $(BIN)/python -m pytest --session-timeout=$(SESSION_S)
# Most tests with real processes wait much of the time. Three at once take a quarter less, and find more tests that race.
BESIDE := -n 2 --dist worksteal
CHECKED := src tests examples benchmarks
SEED ?=
SEED_OPTION := $(if $(SEED),--seed $(SEED))
ROUNDS ?= 200
VERSIONS := 3.12 3.13

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z.-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

.PHONY: .venv
.venv: $(STAMP) ## everything in .venv: stoker (editable), tests, checkers, build tools

.PHONY: demo
demo: ## digest the standard library through kills of a worker and of the broker
	@if [ ! -e $(STAMP) ]; then $(MAKE) $(RUN_STAMP); fi
	@if [ -e $(STAMP) ]; then $(BIN)/stoker demo; else $(RUN)/bin/stoker demo; fi

.PHONY: test
test: $(STAMP) ## all tests, real processes, kills and faults included
	$(PYTEST) $(BESIDE) $(SEED_OPTION)

.PHONY: check
check: lint types fast ## lint, formats, types, fast tests: before every commit

.PHONY: lint
lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

.PHONY: types
types: $(STAMP) ## mypy and pyright, both strict
	$(BIN)/mypy
	$(BIN)/pyright

.PHONY: fast
fast: $(STAMP) ## the tests without real processes
	$(PYTEST) $(BESIDE) -m "not slow" $(SEED_OPTION)

.PHONY: slow
slow: $(STAMP) ## only the tests with real processes, real kills and real waits
	$(PYTEST) $(BESIDE) -m slow $(SEED_OPTION)

.PHONY: rounds
rounds: $(STAMP) ## the random kills, ROUNDS=200 times each
	$(BIN)/python -m pytest tests/integration -m slow --timeout=3600 --rounds $(ROUNDS) $(SEED_OPTION)

.PHONY: faults
faults: $(STAMP) ## what goes wrong, a little of each: kills, power cuts, full disks, hostile peers
	PYTHONPATH=tests $(PYTEST) $(BESIDE) -p support.proof.verdict tests/faults $(SEED_OPTION)

.PHONY: proof
proof: $(STAMP) ## the same at length, in pieces that resume; MINUTES=60 ONLY="a b"
	PYTHONPATH=tests $(BIN)/python -m support.proof $(if $(MINUTES),--minutes $(MINUTES)) $(ONLY)

.PHONY: proof-table
proof-table: $(STAMP) ## what the long runs have done so far, into docs/guarantees.md
	PYTHONPATH=tests $(BIN)/python -m support.proof --table

.PHONY: sim
sim: $(STAMP) ## the seeded simulation; SEED=n replays a run
	$(PYTEST) tests/simulation $(SEED_OPTION)

.PHONY: thorough
thorough: $(STAMP) ## the property tests with many more examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests/properties --timeout=3600 $(SEED_OPTION)

.PHONY: coverage
coverage: $(STAMP) ## branch coverage of the fast tests; proto and broker/core in full
	$(BIN)/coverage run -m pytest -m "not slow" -q
	$(BIN)/coverage report --skip-covered --show-missing

.PHONY: bench
bench: $(STAMP) ## throughput, latency and memory beside their floors; on a quiet machine
	$(BIN)/python benchmarks/run.py

.PHONY: test-versions
test-versions: ## the fast tests with every other supported Python that is found
	@failed=; for version in $(VERSIONS); do $(MAKE) test-with VERSION=$$version || failed+=" $$version"; done; \
	if [ -n "$$failed" ]; then echo "test-versions: failed with$$failed" >&2; exit 1; fi

.PHONY: test-with
test-with: # VERSION=3.12, found on the path or among pyenv's; said and left out when absent
	@python=$$(command -v python$(VERSION) || true); \
	for found in $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(VERSION).*/bin/python; do \
		if [ -x "$$found" ]; then python=$$found; fi; done; \
	if ! "$${python:-false}" -c 'import venv' 2>/dev/null; then \
		echo "test-versions: no Python $(VERSION) here, left out"; exit 0; fi; \
	if [ ! -e .make/$(VERSION)/.complete ]; then \
		"$$python" -m venv .make/$(VERSION); \
		.make/$(VERSION)/bin/python -m pip install --quiet --upgrade "pip>=25.1"; \
		.make/$(VERSION)/bin/python -m pip install --quiet --editable . --group test --group build; \
		touch .make/$(VERSION)/.complete; fi; \
	.make/$(VERSION)/bin/python -m pytest -m "not slow" -q

.PHONY: clean
clean: ## remove environments, caches and build results
	rm -rf $(VENV) .make dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: python
python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "stoker needs Python 3.11 or later with venv and ensurepip; none was found." >&2; \
		echo "On Debian: apt-get install python3-venv. Or name one: make PYTHON=/path/to/python3 ..." >&2; \
		exit 1; fi

# Groups of dependencies (PEP 735) need pip 25.1; the one in a fresh environment may be older. The
# checkers' node comes as a wheel, so neither a system node nor a download of one is needed.
$(STAMP): pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group test --group lint --group build
	@touch $@

$(RUN_STAMP): pyproject.toml | python
	$(PYTHON) -m venv $(RUN)
	$(RUN)/bin/python -m pip install --quiet --editable .
	@touch $@
