"""The audit fails on a known vulnerability, and says loudly where it could not ask."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
KNOWN = {"name": "jinja2", "version": "3.1.2", "vulns": []}
BAD = {**KNOWN, "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.6"]}]}
SKIPPED = {"name": "torch", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([KNOWN], 0, "audited 1 packages: 0 known vulnerabilities"),
        ([KNOWN, BAD], 1, "jinja2 3.1.2: PYSEC-1, fixed in 3.1.6"),
        ([BAD, SKIPPED], 1, "NOT AUDITED: torch"),
        ([SKIPPED], 0, "NOT AUDITED: no vulnerability service could be asked (not found)"),
        (None, 0, "NOT AUDITED: no vulnerability service could be asked (no network)"),
    ],
)
def test_what_the_audit_says(packages, status, said, tmp_path):
    answer = "" if packages is None else json.dumps({"dependencies": packages})
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{answer}'\necho no network >&2\n")
    program.chmod(0o755)
    words = [sys.executable, REPO / ".ci" / "audit.py", program, "requirements.lock"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert said in done.stdout


def test_the_lock_has_exact_versions_of_what_pyproject_asks_for():
    lines = (REPO / "requirements.lock").read_text().splitlines()[1:]
    names = {line.split("==")[0] for line in lines}
    assert all(line.count("==") == 1 for line in lines)
    assert {"torch", "torch-geometric", "numpy", "safetensors", "pytest", "ruff"} <= names
    for line in (REPO / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or line in lines
