# Every target works on a bare checkout: the environment is made on the way, and checked by a stamp afterwards.

PYTHON := .venv/bin/python
PYTHON312 := .venv-py312/bin/python
PYTHON313 := .venv-py313/bin/python
WORKERS ?= 2

.PHONY: demo test test-py312 test-py313 lint format accept build environment environment-py312 environment-py313 clean

# The test workers share the machine's cores: threads that wait must not spin.
test test-py312 accept: export OMP_NUM_THREADS ?= 2
test test-py312 accept: export OMP_WAIT_POLICY ?= PASSIVE

demo: environment  ## compile GPT-2, check it, time it beside eager, then torch.compile; DEMO=quick stops before that
	$(PYTHON) -m benchmarks.demo

test: lint  ## lint, types, all tests
	$(PYTHON) -m pytest -n $(WORKERS)

test-py312: environment-py312  ## the tests under Python 3.12 and the oldest torch
	$(PYTHON312) -m pytest -n $(WORKERS) -m "not gpu"

test-py313: environment-py313  ## under Python 3.13, the tests that need no torch
	$(PYTHON313) -m pytest -n $(WORKERS) $$(cat tests/without-torch.txt)

lint: environment  ## ruff and mypy
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy

format: environment  ## let ruff mend what it can
	$(PYTHON) -m ruff check --fix
	$(PYTHON) -m ruff format

accept: environment  ## take the goldens as they come out now; read the diff before committing it
	$(PYTHON) -m pytest -n $(WORKERS) --accept

build: environment  ## a wheel in dist/
	$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

environment:
	@.ci/environment .venv 3.11 constraints.txt dev

environment-py312:
	@.ci/environment .venv-py312 3.12 constraints-py312.txt test

environment-py313:
	@.ci/environment .venv-py313 3.13 constraints-py313.txt

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
