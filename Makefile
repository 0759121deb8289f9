# make demo: the main job on graphs that come with the package; make test: lint, types, all tests.
PYTHON ?= python3
BIN := .venv/bin
# What pip may install; requirements.lock has the exact versions that the tests last passed with.
CONSTRAINTS ?= constraints.txt
.PHONY: help setup dev demo test lint docs wheel pythons lock audit bench clean

help:
	@echo "make setup | demo | test | lint | docs | wheel | pythons | lock | audit | bench"

setup: .venv/installed
dev: .venv/installed-dev

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml $(CONSTRAINTS) | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e .
	@touch $@

.venv/installed-dev: pyproject.toml $(CONSTRAINTS) | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e ".[dev]"
	@touch .venv/installed $@

demo: setup
	$(BIN)/graphglow demo

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n auto --dist loadfile

docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open runs/site_html/index.html"

# Build wheel and sdist, install the wheel into an environment of its own, and use it there.
wheel: dev
	rm -rf dist runs/wheel
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv runs/wheel
	runs/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) dist/*.whl
	cd runs/wheel && bin/graphglow --version && bin/python -W ignore ../../tests/use_the_wheel.py

# The same on every Python from 3.10 on that is here; those that are not are named.
pythons: dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) .ci/pythons.py dist/*.whl

# Write down the versions that are installed, once the tests have passed with them.
lock: dev
	$(BIN)/python .ci/lock.py requirements.lock

# Fails if a locked version is known to be vulnerable; says so where no service can be asked.
audit:
	$(PYTHON) -m venv runs/audit
	-runs/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(PYTHON) .ci/audit.py runs/audit/bin/pip-audit requirements.lock

bench: setup
	$(BIN)/graphglow bench op

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache
