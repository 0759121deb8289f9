"""Which rows of a cell are summed up: those with the settings of its newest."""

import time

import pytest
from small_cells import cell, rows, run

from graphglow.experiments.cell_rows import of_newest_settings, same_settings

GLOW = {
    "experiment": "e", "cell": "graphglow/cora", "method": "graphglow", "target": "cora",
    "split": "public", "sources": ["a", "b"], "damage": None, "seed": 0,
    "config": {"epochs": 500, "seed": 0}, "pretraining": {"epochs": 80, "seed": 0},
}  # fmt: skip


def changed(**parts):
    return GLOW | {
        name: GLOW[name] | value if isinstance(GLOW[name], dict) else value
        for name, value in parts.items()
    }


@pytest.mark.parametrize(
    "parts",
    [
        {"seed": 1, "config": {"seed": 1}, "pretraining": {"seed": 1}},
        {"config": {"device": "cuda"}, "pretraining": {"device": "cuda"}},
        {"config": {"capture": False}, "pretraining": {"capture": False}},
        {"config": {"backend": "triton"}, "pretraining": {"backend": "chunked"}},
        {"config": {"dropout": 0.5}, "pretraining": {"learner": {"num_heads": 4}}},  # the defaults
        {"config": {"weight_decay": 5e-4, "teleport": 0.1, "steps": 10.0}},  # equal numbers
        {"sources": ["b", "a"]},
        {"device": "cuda", "runs_at_once": 5, "processes": 2, "provenance": {"commit": "b"}},
        {"timed": False, "threads": 1, "copied_from": "other", "observe_every": 5},
    ],
    ids=str,
)
def test_what_runs_of_one_cell_may_differ_in(parts):
    other = GLOW | parts if not parts.keys() & GLOW.keys() else changed(**parts)
    assert same_settings(other) == same_settings(GLOW)


@pytest.mark.parametrize(
    "parts",
    [
        {"config": {"epochs": 3}},
        {"config": {"patience": 100}},
        {"config": {"precision": "bfloat16"}},
        {"config": {"objective": {"entropy": 0.5}}},
        {"pretraining": {"epochs": 3}},
        {"pretraining": {"learner": {"delta": "exp"}}},
        {"sources": ["a"]},
        {"split": "random seed 0"},
    ],
    ids=str,
)
def test_what_makes_another_setting(parts):
    assert same_settings(changed(**parts)) != same_settings(GLOW)


def test_damage_and_no_pretraining_are_other_settings_too():
    for name, value in (("damage", {"kind": "delete", "ratio": 0.1}), ("pretraining", None)):
        assert same_settings(GLOW | {name: value}) != same_settings(GLOW)


def test_rows_of_others_and_nested_ones_are_compared_as_they_are():
    theirs = {"method": "mine", "config": {"width": 3}}
    assert same_settings(theirs) == same_settings(theirs | {"config": {"width": 3, "seed": 1}})
    assert same_settings(theirs) != same_settings(theirs | {"config": {"width": 4}})
    lists, objects = [], {}
    for _ in range(200_000):
        lists, objects = [lists], {"width": objects}
    assert same_settings(theirs | {"config": {"width": lists}}) == ""
    assert same_settings(theirs | {"config": objects}) == ""


def test_a_short_run_does_not_mix_with_long_ones(tmp_path):
    out = tmp_path / "rows.jsonl"
    run([cell(), cell("mlp")], out, seeds=3, epochs=4)
    assert of_newest_settings(rows(out)) == ([0, 1, 2, 3, 4, 5], {})
    run([cell()], out, seeds=1, epochs=2)
    places, left_out = of_newest_settings(rows(out))
    assert [rows(out)[at]["cell"].split("/")[0] for at in places] == ["mlp"] * 3 + ["gcn"]
    assert rows(out)[places[-1]]["epochs"] == 2
    assert left_out == {("tiny", cell().key): 2}
    assert run([cell()], out, seeds=3, epochs=4).made == 0  # seed 0 is taken back
    places, left_out = of_newest_settings(rows(out))
    assert [rows(out)[at]["epochs"] for at in places] == [4] * 6
    assert left_out == {}


def test_it_is_fast():
    many = [changed(config={"seed": s}) | {"seed": s} for s in range(3000)]
    began = time.process_time()
    assert of_newest_settings(many) == ([*range(3000)], {})
    assert time.process_time() - began < 3  # 0.1 s on a core of its own
