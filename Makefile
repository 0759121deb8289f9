# make demo: the main job on graphs that come with the package; make test: lint, types, all tests.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: help setup dev demo test lint docs wheel bench clean

help:
	@echo "make setup | demo | test | lint | docs | wheel | bench"

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

docs: dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open runs/site_html/index.html"

# Build wheel and sdist, install the wheel into an environment of its own, and use it there.
wheel: dev
	rm -rf dist runs/wheel
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv runs/wheel
	runs/wheel/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd runs/wheel && bin/graphglow --version && bin/python -W ignore ../../tests/use_the_wheel.py

bench: setup
	$(BIN)/graphglow bench op

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache
