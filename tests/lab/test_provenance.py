import sys

import pytest
import torch

from graphglow.lab.provenance import provenance


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/home/x/.venv/bin/graphglow", "audit", "op"], "graphglow audit op"),
        (["/src/graphglow/__main__.py", "transfer", "--seed", "3"], "graphglow transfer --seed 3"),
        (["graphglow", "audit", "--data-root", "/home/x/data"], "graphglow audit --data-root data"),
        (
            ["graphglow", "audit", "--out", "results/a.jsonl"],
            "graphglow audit --out results/a.jsonl",
        ),
    ],
)
def test_the_command_names_no_machine_paths(monkeypatch, argv, command):
    monkeypatch.setattr(sys, "argv", argv)
    assert provenance()["command"] == command


def test_scripts_are_named_with_their_interpreter(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/transfer_accuracy.py", "--seeds", "3"])
    assert provenance()["command"].endswith(" benchmarks/transfer_accuracy.py --seeds 3")


def test_machine_and_versions(monkeypatch):
    monkeypatch.setenv("GRAPHGLOW_COMMIT", "abc1234")
    found = provenance()
    assert found["commit"] == "abc1234"
    assert found["machine"]["cores"] >= 1
    assert found["versions"]["torch"] == torch.__version__
