# Every task a person runs. `make help` lists them; each does its own set-up and does no work twice.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON   ?= python3
VENV     := .venv
BIN      := $(VENV)/bin
CLUSTER  ?=
SCENARIO ?= prefix-cache
MODEL    ?= random
M        ?=
ARGS     ?=

export CLUSTER MODEL

.PHONY: help setup demo test bench bench-verdict bench-aa bench-scale lint format crd lock cluster-up cluster-down cluster-status clean

help: ## list the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'
	@echo
	@echo "  M=<area>            make test: one area only (path mirror verdict answers operator marks surfaces replay)"
	@echo "  ARGS='-k name'      make test: more options for pytest; make bench: names of benches, --quick"
	@echo "  SCENARIO=dropper    make demo: the candidate that must Fail (default: prefix-cache, which must Pass)"
	@echo "  MODEL=smollm2       make demo: a small model with real text, at a lower rate"
	@echo "  CLUSTER=local|kind|existing   which Kubernetes (default: kind where a Docker engine runs, else local)"

setup: $(VENV)/.ready ## the virtual environment with locked dependencies

$(VENV)/.ready: locks/dev.txt pyproject.toml
	@echo "[setup] virtual environment from locks/dev.txt (about a minute) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r locks/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

demo: setup ## the main job, start to verdict, on an embedded cluster
	@$(BIN)/python -m examples.demo --scenario $(SCENARIO) --model $(MODEL)

test: setup ## all checks and tests (M=<area> for one area)
ifeq ($(M),)
	@$(MAKE) --no-print-directory lint
	@# Built before anything is timed: on a fresh machine these take longer than a test may.
	@$(BIN)/python -m tests.cluster images
	@$(BIN)/python -m tests.cluster tools envoy-gateway kube-router epp lws >/dev/null
	@$(BIN)/pytest -n 2 --no-loadscope-reorder $(ARGS)
else
	@$(BIN)/pytest -m $(M) $(ARGS)
endif

bench: setup ## costs as ratios, into docs/benchmarks.md (ARGS='pipeline rewrite' for some)
	@$(BIN)/python -m tests.bench $(ARGS)

bench-verdict: setup ## how often the verdict errs and how many pairs it takes, into docs/benchmarks-verdict.md
	@$(BIN)/python -m tests.bench.verdict $(ARGS)

bench-aa: setup ## the verdict on known truths, on a cluster with a real engine, into docs/benchmarks-aa.md
	@$(BIN)/python -m tests.bench.aa $(ARGS)

bench-scale: setup ## one operator and 200 runs, on a cluster with simulated nodes, into docs/benchmarks-scale.md
	@$(BIN)/python -m tests.bench.scale $(ARGS)

lint: setup ## format, lint, types, layers
	@echo "[lint] ruff format, ruff, mypy --strict, import-linter"
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --verbose >.import-linter.log 2>&1 || { cat .import-linter.log; exit 1; }; rm -f .import-linter.log

format: setup ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

crd: setup ## write crds/ from the pydantic models
	@$(BIN)/python -m shadowrun_operator.api.crd

lock: ## make the lock files anew (needs uv)
	@for extra in mirror capture operator; do \
	  uv pip compile pyproject.toml --extra $$extra --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o locks/$$extra.txt; done
	@uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q -o locks/dev.txt

cluster-up: ## a real Kubernetes on this machine
	@$(PYTHON) -m tests.cluster up

cluster-down: ## end it and leave nothing behind
	@$(PYTHON) -m tests.cluster down

cluster-status: ## what is up
	@$(PYTHON) -m tests.cluster status

clean: cluster-down ## remove what was made here
	@rm -rf $(VENV) .bench .cluster .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
