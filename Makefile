# make demo: the main job on graphs that come with the package; make test: lint, types, quick tests.
PYTHON ?= python3
BIN := .venv/bin
# On the Python that the lock was made on pip installs exactly the versions that the tests last passed
# with, on another one those of constraints.txt (a CPU build of torch, the linters) and else the newest.
LOCKED := $(shell $(PYTHON) -c "import re, sys; \
	print(re.search(r'Python (\S+):', open('requirements.lock').read())[1] == '%d.%d' % sys.version_info[:2])")
CONSTRAINTS := $(if $(filter True,$(LOCKED)),requirements.lock,constraints.txt)
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest -n auto --dist loadfile
.PHONY: help setup dev demo test test-slow test-all lint docs wheel lock census clean

help:
	@echo "make demo | test | test-slow | test-all | lint | docs | wheel | lock | census | clean"

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

# What a contributor runs before each commit; test-slow is the rest: Ray, browser, kills, docs.
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

# Write down the versions that are installed, once the tests have passed with them.
lock: dev
	@$(BIN)/python -c "import sys; print('# What the tests last passed with, on Python %d.%d: made by \`make lock\`.' \
		% sys.version_info[:2])" > requirements.lock
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//' >> requirements.lock

# How large the house is: lines and files per folder, start-up, settings.
census: dev
	$(BIN)/python .ci/census.py

clean:
	rm -rf .venv dist runs/wheel .pytest_cache .mypy_cache .ruff_cache
