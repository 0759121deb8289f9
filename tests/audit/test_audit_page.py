"""The page of an audit: whole, self-contained, safe whatever names it has."""

import re

import pytest
import torch
from small_audits import with_false_edges

import graphglow
from graphglow.audit import MEANINGS
from graphglow.explain import Explanation, Surroundings, by_evidence, pro_and_con
from graphglow.report import is_report
from graphglow.report.explanations import layout, write_audit

HOSTILE = "<img src=x onerror=hacked()>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    torch.set_num_threads(1)
    data, _ = with_false_edges()
    data.node_id = [f"{HOSTILE} {i}" for i in range(120)]
    data.name = "hostile </title>"
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    write_audit(graphglow.audit(data), path)
    return path


def test_the_page_loads_nothing_and_escapes_names(page):
    text = page.read_text()
    assert is_report(page)
    assert "<img" not in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#)', text)
    assert text.count('<article class="card pair">') == 16
    assert "more likely false than real" in text
    assert text.index('id="suspects"') < text.index('id="shares"')
    assert all(meaning in text for meaning in MEANINGS.values())


def test_a_pair_has_its_neighbours_and_bars(tmp_path):
    parts = {"own features": -2.0, "degrees": 0.5}
    around = Surroundings(["eve"], of_u=["dan", "flo"], of_v=[], edges=[("dan", "eve")], left_out=3)
    why = Explanation(
        title="A pair",
        answer=pro_and_con(parts),
        score=-1.5,
        probability=0.18,
        contributions=by_evidence(parts, MEANINGS),
        facts={"u": "ann", "v": "bob", "input_edge": True},
        surroundings=around,
    )
    marks, lines = layout(why)
    assert [mark.name for mark in marks] == ["ann", "bob", "eve", "dan", "flo"]
    assert len(lines) == 2 + 2 + 1
    assert why.answer == "Most speaks for it: degrees (+0.5); against: own features (-2.0)."
    why.write(tmp_path / "why.html")
    text = (tmp_path / "why.html").read_text()
    assert re.findall(r'class="(for|against)" style="width: ([0-9.]+)%', text) == [
        ("for", "12.5"),
        ("against", "50.0"),
    ]


def test_the_histogram_counts_every_edge(page, damaged_audit):
    bars = re.findall(r"<title>([0-9,]+) edges between", page.read_text())
    assert len(bars) == 20
    assert sum(map(int, bars)) == damaged_audit[0].edges.shape[1]
