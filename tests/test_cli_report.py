"""``graphglow report`` through the command line's one entry point."""

import pytest

import graphglow
from graphglow.report import is_report
from tiny_graphs import small_data


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "small.safetensors"
    graphglow.transfer(small_data(), epochs=2, hidden=8, device="cpu").save(path)
    return path


def test_transfers_make_one_page_which_a_later_one_replaces(run, saved, tmp_path):
    out = tmp_path / "page.html"
    words = ["report", saved, saved, "--out", out]
    facts = run(*words, "--json").json
    assert facts == {"command": "report", "out": str(out), "transfers": ["small-0"]}
    assert is_report(out)
    assert run(*words).status == 0
    out.write_text("not ours")
    assert "--overwrite" in run(*words).refuses()


def test_what_is_no_transfer_is_refused(run, tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}")
    out = tmp_path / "page.html"
    run("report", tmp_path / "rows.jsonl", "--out", out).refuses()
    assert "at least one" in run("report", "--out", out).refuses()
    assert not out.exists()
