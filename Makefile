# make demo: the main job on graphs that come with the package; make test: lint, types, all tests.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: help setup dev demo test lint bench clean

help:
	@echo "make setup | demo | test | lint | bench"

setup: .venv/installed
dev: .venv/installed-dev

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch .venv/installed $@

demo: setup
	$(BIN)/graphglow demo

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest

bench: setup
	$(BIN)/graphglow bench op

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache
