# make demo: the main job on graphs that come with the package; make test: lint, types, quick tests.
PYTHON ?= python3
BIN := .venv/bin
# What pip may install: on the Python that the lock was made on exactly the versions that the tests last
# passed with, on another one those of constraints.txt (a CPU build of torch, the linters) and else the newest.
LOCKED := $(shell $(PYTHON) -c "import re, sys; \
	print(re.search(r'Python (\S+):', open('requirements.lock').read())[1] == '%d.%d' % sys.version_info[:2])")
CONSTRAINTS := $(if $(filter True,$(LOCKED)),requirements.lock,constraints.txt)
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest -n auto --dist loadfile
.PHONY: help setup dev demo test test-all test-slow lint docs wheel pythons lock newest audit census clean

help:
	@echo "make demo | test | test-all | lint | docs | wheel | newest | lock | census | pythons | audit | clean"

setup: .venv/installed
dev: .venv/installed-dev

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml $(CONSTRAINTS) | .venv/bin/python
	$(BIN)/python $(PIP) -c $(CONSTRAINTS) -e .
	@touch $@

.venv/installed-dev: pyproject.toml $(CONSTRAINTS) | .venv/bin/python
	$(BIN)/python $(PIP) -c $(CONSTRAINTS) -e ".[dev]"
	@touch .venv/installed $@

demo: setup
	$(BIN)/graphglow demo

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What a contributor runs before each commit; test-slow is the rest: Ray, browser, kills, fuzz, docs.
test: lint
	$(PYTEST) -m "not slow"

test-slow: dev
	$(PYTEST) -m slow

test-all: lint
	$(PYTEST)

docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open runs/site_html/index.html"

# Build wheel and sdist, install the wheel into an environment of its own, and use it there.
wheel: dev
	rm -rf dist runs/wheel
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv runs/wheel
	runs/wheel/bin/python $(PIP) -c $(CONSTRAINTS) dist/*.whl
	cd runs/wheel && bin/graphglow --version && bin/python -W ignore ../../tests/use_the_wheel.py

# The same on every Python from 3.10 on that is here; those that are not are named.
pythons: dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) .ci/pythons.py dist/*.whl

# Against drift, once a week: the newest of everything (torch as constraints.txt has it, or TORCH=torch) in an
# environment of its own, and the quick tests in it. What it finds is mended, then `make lock` writes the versions down.
TORCH ?= $(shell grep ^torch== constraints.txt)
newest:
	rm -rf runs/newest
	$(PYTHON) -m venv runs/newest
	runs/newest/bin/python $(PIP) --upgrade "$(TORCH)" -e ".[dev]"
	runs/newest/bin/python .ci/lock.py runs/newest/versions.txt
	-diff requirements.lock runs/newest/versions.txt
	runs/newest/bin/mypy
	runs/newest/bin/pytest -n auto --dist loadfile -m "not slow"

# Write down the versions that are installed, once the tests have passed with them.
lock: dev
	$(BIN)/python .ci/lock.py requirements.lock

# Fails if a locked version is known to be vulnerable; says so where no service can be asked.
audit:
	$(PYTHON) -m venv runs/audit
	-runs/audit/bin/python $(PIP) pip-audit
	$(PYTHON) .ci/audit.py runs/audit/bin/pip-audit requirements.lock

# How large the house is: lines and files per folder, what a transfer enters and imports, start-up, settings.
census: dev
	$(BIN)/python .ci/census.py


clean:
	rm -rf .venv dist runs/newest runs/wheel runs/audit .pytest_cache .mypy_cache .ruff_cache
