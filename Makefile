# Two commands are enough: `make demo` and `make test`. Python 3.11 or newer is all they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes are started by the tests: none compiles what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo up test chaos degraded soak test-compose test-scale test-ui ui-picture bench figures honesty methods lint format types openapi client-types fuzz lock clean test-drills test-hosts hostile test-storage capacity test-redis audit test-processors

help:
	@echo "make demo          start everything, run the main job on real data, leave pictures in out/"
	@echo "make test          the tests (some minutes)"
	@echo "make up            serve on http://127.0.0.1:8000 until Ctrl-C"
	@echo "make setup         the environment in .venv, from the lock file"
	@echo "make lint types    ruff; mypy --strict"
	@echo "make bench         figures beside their goals, side by side with others; a quarter of an hour"
	@echo "make capacity      what everything costs, and what follows for large deployments: docs/scaling.md (half an hour)"
	@echo "make figures       the pictures and numbers of docs/"
	@echo "make honesty       the spread of draws against LLE's own sampling spread (twenty minutes)"
	@echo "make methods       every method on the same data with the same scores: docs/methods.md (a quarter of an hour)"
	@echo "make test-compose  the containers, for real (as root; installs a container engine)"
	@echo "make test-hosts    several machines, made of network namespaces: throughput, faults, a rolling restart (as root)"
	@echo "make test-redis    Redis behind sentinels, as a cluster, managed: masters killed (minutes)"
	@echo "make chaos         processes killed -9 at random under 10,000 requests, and what must hold (minutes)"
	@echo "make test-processors  the engine's fast tests with the kernels of other processors (minutes)"
	@echo "make test-scale    n of 100,000 (minutes)"
	@echo "make test-storage  a cache that is too small, with an object store behind it"
	@echo "make test-drills   upgrades between versions, and backups put back (minutes)"
	@echo "make test-ui       the explorer in the machine's own browser; pictures of it in out/ui/"
	@echo "make ui-picture    the README's picture of the explorer"
	@echo "make openapi       export openapi/openapi.json and docs/settings.md"
	@echo "make client-types the Python client's types, from openapi/openapi.json"
	@echo "make fuzz          every route with whatever its contract allows, and what it does not (minutes)"
	@echo "make degraded      servers, disks and networks in trouble: right answers or 503 (minutes; as root all of it)"
	@echo "make soak          half an hour at ten times the usual load: memory, descriptors, latency; out/soak/"
	@echo "make hostile       every reader of uploads against bodies made to do harm (minutes)"
	@echo "make audit         known vulnerabilities of all that is locked (AUDIT=required: also 1 where nobody can be asked)"
	@echo "make lock          resolve the lock files anew (needs uv)"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "No virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@echo "Compiling (once)" && $(BIN)/python -m glle_engine.posterior.fingerprint
	@touch $(STAMP)

demo: setup
	$(BIN)/python -m demo $(DEMO)

up: setup
	$(BIN)/glle up

# Two at once, a file in one of them, in their order: files of few but long tests are not left for the end. BLAS with one thread each.
test: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-compose: setup
	bash tests/deploy/compose/run

test-hosts: setup
	$(BIN)/python -m qa.hosts $(HOSTS)

test-redis: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m redis qa/redis

# PROCESSORS is passed to pytest.
test-processors: setup
	$(BIN)/python -m qa.processors.__main__ $(PROCESSORS)

test-scale: setup
	$(BIN)/python -m pytest -m scale tests/engine

test-storage: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m storage tests/system

# CHAOS="--requests 300" is the small one.
chaos: setup
	$(BIN)/python -m qa.chaos $(CHAOS)

test-drills: setup
	$(BIN)/python -m pytest -m drill qa/drills

test-ui: $(VENV)/.ui
	$(BIN)/python -m pytest -m ui tests/ui $(UI)

ui-picture: $(VENV)/.ui
	$(BIN)/python -m tests.ui.picture

$(VENV)/.ui: $(STAMP) requirements-ui.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-ui.lock
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m bench $(BENCH)

$(VENV)/.bench: $(STAMP) requirements-bench.lock
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-bench.lock
	@touch $@

capacity: $(VENV)/.bench
	$(BIN)/python -m bench.capacity $(CAPACITY)

figures: setup
	$(BIN)/python -m docs.figures.published
	$(BIN)/python -m docs.figures.frontier
	$(BIN)/python -m docs.figures.adaptive

honesty: setup
	$(BIN)/python -m docs.figures.honesty

methods: setup
	$(BIN)/python -m docs.figures.methods

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup
	$(BIN)/mypy

openapi: setup
	$(BIN)/glle openapi
	$(BIN)/glle settings --write
	$(BIN)/python -m openapi.client_types

client-types: setup
	$(BIN)/python -m openapi.client_types

LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-annotate --quiet

FUZZ ?= --max-examples 100

fuzz: setup
	$(BIN)/python -m qa.fuzz $(FUZZ)

degraded: setup
	$(BIN)/python -m qa.degraded $(DEGRADED)

SOAK ?= --minutes 30

soak: setup
	$(BIN)/python -m qa.soak $(SOAK)

HOSTILE ?= --examples 2000
SEED ?= $(shell date +%s)
MUTANTS ?= --bodies 5000

hostile: setup
	$(BIN)/python -m qa.hostile $(HOSTILE)
	$(BIN)/python -m qa.hostile.mutants --seed $(SEED) $(MUTANTS)

audit: $(VENV)-audit/.installed
	$(VENV)-audit/bin/python -m qa.audit

# Of its own: what audits the environment is no part of it.
$(VENV)-audit/.installed: requirements-audit.lock
	@test -x $(VENV)-audit/bin/python || $(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --require-hashes -r requirements-audit.lock
	@touch $@

lock:
	$(LOCK) --extra service --extra client --extra fast --extra otel --extra demo --extra sklearn \
		--extra tsne --extra sdp --extra pictures --group dev -o requirements.lock
	$(LOCK) --extra service --extra storage --extra fast --extra otel --extra arrow --extra sklearn \
		--extra tsne --extra sdp --extra pictures --group build --constraint requirements.lock -o requirements-service.lock
	$(LOCK) --extra bench --constraint requirements.lock -o requirements-bench.lock
	$(LOCK) --group ui --constraint requirements.lock -o requirements-ui.lock
	$(filter-out pyproject.toml,$(LOCK)) --group audit -o requirements-audit.lock

clean:
	rm -rf $(VENV) $(VENV)-audit out .mypy_cache .ruff_cache .pytest_cache .hypothesis
