# Everything a person or CI does here. `make demo` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOOPS := $(VENV)/.compiled
DOCS := $(VENV)/.installed-docs
FUZZ := $(VENV)/.installed-fuzz
SERVICES := $(VENV)/.installed-services
NODE_STAMP := console-web/node_modules/.installed
# Compiled modules are kept: without them every process of a test run compiles what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test test-services browser servers coverage check console console-check fmt fuzz bench docs docs-serve test-long lock java wheel

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(LOOPS)  ## make the environment in .venv (uv is fetched if it is missing)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Hayase needs Python 3.11 or newer; found $$($(PYTHON) --version). Say which with: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@command -v uv >/dev/null || test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@uv="$$(command -v uv || echo $(BIN)/uv)"; export VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_SYSTEM_CERTS=true; \
	  $$uv pip install --quiet --compile-bytecode --requirement requirements.lock && $$uv pip install --quiet --no-deps --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(LOOPS): $(STAMP)
	@$(BIN)/python -m hayase.console.compilation
	@touch $@

java:
	@j="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; command -v $$j >/dev/null || { \
	  echo "Spark needs Java 17 or newer, and there is none here."; \
	  echo "  Debian, Ubuntu: apt-get install openjdk-17-jre-headless     macOS: brew install openjdk@17"; \
	  echo "  or point JAVA_HOME at one"; exit 1; }

demo: $(STAMP) java  ## run the demo: a shop's events, live, for about a minute
	@test -e $(LOOPS) || $(BIN)/python -m hayase.console.compilation --common
	@$(BIN)/hayase demo

test: setup java  ## run the tests
	@$(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder

test-services: $(SERVICES) java browser servers  ## drive the console with a real browser (Chromium), and test with real servers (Kafka, PostgreSQL, object stores, Iceberg): about ten minutes
	@$(BIN)/python -m pytest tests/browser
	@$(BIN)/python -m pytest tests/services

servers: $(SERVICES) java  ## get the servers for test-services that are missing into the user's cache; what cannot be had is said
	@PYTHONPATH=tests $(BIN)/python -m servers

# Without rights to install a browser the tests say how to get one.
browser:
	@command -v chromium google-chrome >/dev/null || test -n "$$HAYASE_CHROMIUM" || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
	  { echo "installing Chromium ..."; apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium >/dev/null; } || true

$(SERVICES): $(STAMP) requirements-services.lock
	@uv="$$(command -v uv || echo $(BIN)/uv)"; export VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_SYSTEM_CERTS=true; \
	  $$uv pip install --quiet --requirement requirements-services.lock
	@touch $@

coverage: setup  ## run the tests that need no JVM, and say which branches they take: at least 90 %
	@$(BIN)/python -m pytest -m "not spark" --numprocesses 2 --no-loadscope-reorder --cov --cov-report term

test-long: setup java  ## rounds of faults by seed (HAYASE_SEEDS=20; HAYASE_SEED=123 repeats one), then the long tests
	@case ",$${HAYASE_ROUNDS:-connectors}," in *,connectors,*) $(MAKE) --silent servers;; esac
	@PYTHONPATH=tests $(BIN)/python -m campaign
	@test -n "$$HAYASE_SEED$$HAYASE_ROUNDS" || { seed="$${HYPOTHESIS_SEED:-$$RANDOM$$RANDOM}"; \
	  echo "hypothesis begins with seed $$seed; HYPOTHESIS_SEED=$$seed make test-long repeats it"; \
	  HAYASE_LONG=1 $(BIN)/python -m pytest --numprocesses 2 --no-loadscope-reorder --hypothesis-seed="$$seed"; }

check: setup console-check  ## lint, types, import rules; the console that is shipped is the one that is built
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

console: $(NODE_STAMP)  ## build the console from console-web/ into the package (Node 20 or newer); commit what it writes
	@cd console-web && npm run --silent test && npm run --silent build -- --logLevel warn

console-check:
	@if ! command -v npm >/dev/null; then \
	  echo "Node is missing: whether the console that is shipped is what console-web/ builds is not checked here"; \
	elif ! $(MAKE) --silent $(NODE_STAMP); then \
	  echo "npm could not install the packages of console-web/: whether the console that is shipped is what it builds is not checked here"; \
	else built="$$(mktemp -d)" && (cd console-web && CONSOLE_OUT="$$built" npm run --silent build -- --logLevel error) && \
	  { diff -r "$$built" src/hayase/serving/console >/dev/null || \
	    { echo "src/hayase/serving/console is not what console-web/ builds; run make console and commit it"; rm -r "$$built"; exit 1; }; } && \
	  rm -r "$$built"; fi

$(NODE_STAMP): console-web/package-lock.json
	@cd console-web && npm install --no-save --silent && touch node_modules/.installed  # not `npm ci`: it asks for packages of all platforms

fuzz: $(FUZZ)  ## fuzz every reader for HAYASE_FUZZ_SECONDS (60) each; TARGETS="csv jq" for some. What is found is kept in tests/corpus
	@$(BIN)/python -c 'import atheris' 2>/dev/null || \
	  { echo "atheris has no package for this machine (Linux on x86-64, Python up to 3.13): nothing can be fuzzed here."; exit 1; }
	@$(BIN)/python tests/fuzz_run.py $(TARGETS)

$(FUZZ): $(STAMP) requirements-fuzz.lock
	@uv="$$(command -v uv || echo $(BIN)/uv)"; export VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_SYSTEM_CERTS=true; \
	  $$uv pip install --quiet --requirement requirements-fuzz.lock
	@touch $@

fmt: setup  ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup servers  ## run every benchmark (an hour or two) and write docs/measurements.md; results go to bench-results/
	@$(BIN)/python -m benchmarks.measurements --measure

wheel: setup  ## build the package into dist/; `pip install dist/*.whl` needs no checkout
	@uv="$$(command -v uv || echo $(BIN)/uv)"; UV_SYSTEM_CERTS=true $$uv build --quiet --wheel --out-dir dist && ls dist/*.whl

docs: $(DOCS)  ## build the guide into site/, strictly
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "the guide is in site/index.html"

docs-serve: $(DOCS)  ## show the guide at http://127.0.0.1:8000, and follow changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(DOCS): $(STAMP) requirements-docs.lock
	@uv="$$(command -v uv || echo $(BIN)/uv)"; export VIRTUAL_ENV=$(CURDIR)/$(VENV) UV_SYSTEM_CERTS=true; \
	  $$uv pip install --quiet --requirement requirements-docs.lock
	@touch $@

lock: setup  ## pin the newest versions that pyproject.toml allows
	@uv="$$(command -v uv || echo $(BIN)/uv)"; \
	  $$uv pip compile --quiet --universal --generate-hashes --no-header --upgrade --group dev pyproject.toml -o requirements.lock && \
	  $$uv pip compile --quiet --universal --generate-hashes --no-header --upgrade --constraint requirements.lock --group docs \
	  -o requirements-docs.lock && \
	  $$uv pip compile --quiet --universal --generate-hashes --no-header --upgrade --constraint requirements.lock --group fuzz \
	  -o requirements-fuzz.lock && \
	  $$uv pip compile --quiet --universal --generate-hashes --no-header --upgrade --constraint requirements.lock --group services \
	  --extra kafka --extra lake --extra postgres --extra traces pyproject.toml -o requirements-services.lock
