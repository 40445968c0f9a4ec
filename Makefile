# A newcomer needs two commands, `make demo` and `make test`, and Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := glle/types.py
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes, which share compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo up test coverage test-ui test-compose lint docs bench believe generate wheels lock clean

help:
	@echo "make demo          run the main job on real data; leaves pictures in out/"
	@echo "make test          run the tests (some minutes)"
	@echo "make coverage      run the tests and print the lines that they reach, by file"
	@echo "make up            serve on http://127.0.0.1:8000 until Ctrl-C"
	@echo "make setup         create .venv for developers, from requirements/dev.lock"
	@echo "make lint          ruff, mypy --strict, import contracts, types of the page (NPM=required fails without npm)"
	@echo "make test-ui       run the explorer's tests in the browser of this machine"
	@echo "make test-compose  build and test the containers (as root; installs a container engine)"
	@echo "make docs          build the documentation site in out/site/"
	@echo "make bench         measure speed beside goals and peers (a quarter of an hour)"
	@echo "make believe       compare audits with other samples and with peers (an hour)"
	@echo "make generate      write openapi.json, the client's types and the generated pages"
	@echo "make wheels        build the wheels in out/wheels; the engine's carries compiled code"
	@echo "make lock          resolve requirements/*.lock again"
	@echo "make -C qa         list the programs that test a whole deployment"

setup: $(STAMP) $(TYPES)

# The client's types, which are not committed.
glle/types.py: openapi/openapi.json openapi/client_types.py | $(VENV)/.demo
	$(BIN)/python -m openapi.client_types

# Install a lock file with uv, from the index that pip is configured for, or else with pip.
define install
	@index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
	echo "Installing $(1)"; \
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1) || \
		{ echo "uv cannot install $(1), for example because it does not know the package index of this machine;" \
			"installing with pip, which takes some minutes"; \
		$(BIN)/python -m pip install --quiet --require-hashes -r $(1); }
endef

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is required: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "Creating a virtual environment failed; on Debian: apt-get install python3-venv"; exit 1; }

# What `make demo` and `make up` need. The versions are those of requirements/dev.lock.
$(VENV)/.demo: requirements/install.lock requirements/demo.lock pyproject.toml deploy/server/pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/install.lock
	$(call install,requirements/demo.lock)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable . --editable deploy/server
	$(BIN)/python -m glle_engine.posterior.fingerprint
	@touch $@

$(STAMP): $(VENV)/.demo requirements/dev.lock
	$(call install,requirements/dev.lock)
	@touch $@

# The tests of the pages, in what `make demo` installs.
$(VENV)/.pages: $(VENV)/.demo requirements/pages.lock $(TYPES)
	$(call install,requirements/pages.lock)
	@touch $@

demo: $(VENV)/.demo $(TYPES)
	$(BIN)/python -m demo $(DEMO)

up: $(VENV)/.demo $(TYPES)
	$(BIN)/glle up

# Four processes for two cores, because half of the time is waiting; a file at a time, in the order of tests/conftest.py.
# The tests that share a running service run in one process, and begin first. BLAS has one thread.
test: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder

# Lines that the tests reach in their process, in workers and in services; those of compiled code are not counted.
coverage: setup
	rm -rf out/coverage
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 4 --dist loadgroup --no-loadscope-reorder
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-ui: setup $(VENV)/.ui
	$(BIN)/python -m pytest -m ui tests/ui $(UI)

test-compose: setup
	bash tests/deploy/compose/run

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy
	$(BIN)/python -m qa.inputs.clients.page

docs: setup $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup $(VENV)/.bench
	$(BIN)/python -m bench $(BENCH)

believe: setup
	$(BIN)/python -m docs.figures.believe

generate: setup
	$(BIN)/python -m openapi.contract
	$(BIN)/python -m docs.figures.settings
	$(BIN)/python -m docs.figures.reference

# Three wheels: of the engine for the kind of processor and the Python of this machine, and for any, and of the server.
wheels: export NUMBA_CACHE_DIR := $(CURDIR)/glle_engine/compiled
wheels: $(VENV)/.demo
	$(BIN)/python -m glle_engine.posterior.fingerprint
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir out/wheels .
	rm -rf glle_engine/compiled
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir out/wheels . ./deploy/server

# Extras of some targets: .venv/.ui, .venv/.bench and .venv/.docs correspond to requirements/ui.lock and so on.
$(VENV)/.%: $(STAMP) requirements/%.lock
	$(call install,requirements/$*.lock)
	@touch $@

LOCK := $(VENV)-audit/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-emit-package glle --quiet
# The server depends on `glle[client]` of the same version, which uv reads from the checkout.
SERVER := pyproject.toml deploy/server/pyproject.toml --extra client --extra sklearn --extra umap

lock:
	$(MAKE) --no-print-directory -C qa ../$(VENV)-audit/.installed
	$(LOCK) $(SERVER) --extra excel --extra pacmap --extra notebook --group image --group dev --group demo \
		-o requirements/dev.lock
	$(LOCK) $(SERVER) --extra arrow --extra excel --group demo \
		--constraint requirements/dev.lock -o requirements/demo.lock
	$(LOCK) $(SERVER) --extra arrow --extra excel --group image \
		--constraint requirements/dev.lock -o requirements/server.lock
	$(LOCK) --group build --constraint requirements/dev.lock -o requirements/build.lock
	$(LOCK) pyproject.toml --group bench --constraint requirements/dev.lock -o requirements/bench.lock
	$(LOCK) pyproject.toml --group ui --constraint requirements/dev.lock -o requirements/ui.lock
	$(LOCK) --group pages --constraint requirements/dev.lock -o requirements/pages.lock
	$(LOCK) pyproject.toml --group docs --constraint requirements/dev.lock -o requirements/docs.lock
	$(LOCK) pyproject.toml --group clients --constraint requirements/dev.lock -o requirements/clients.lock
	$(LOCK) --group install -o requirements/install.lock
	$(LOCK) --group audit --constraint requirements/install.lock -o requirements/audit.lock

clean:
	rm -rf $(VENV) $(VENV)-audit $(VENV)-pages out glle_engine/compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis
