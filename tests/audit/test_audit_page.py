"""The page of an audit: whole, self-contained, safe whatever names it has."""

import re

import pytest
import torch
from small_audits import with_false_edges

import graphglow
from graphglow.audit import MEANINGS
from graphglow.explain import Surroundings, explain_edge
from graphglow.report import is_report
from graphglow.report.explanations import histogram, picture, write_audit

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


def test_a_pair_has_its_neighbours_and_bars():
    around = Surroundings(
        common=["eve"], of_u=["dan", "flo"], of_v=[], edges=[("dan", "eve")], left_out=3
    )
    parts = {"own features": -2.0, "degrees": 0.5}
    why = explain_edge(("ann", "bob"), parts, MEANINGS, around, True)
    drawn = picture(why)
    assert [mark.name for mark in drawn.marks] == ["ann", "bob", "eve", "dan", "flo"]
    assert len(drawn.lines) == 2 + 2 + 1
    assert (why.score, why.probability) == (-1.5, pytest.approx(0.1824, abs=1e-4))
    assert [(part.name, length) for part, length in drawn.bars] == [
        ("degrees", 12.5),
        ("own features", 50),
    ]
    assert why.answer == (
        "18% likely to be a real edge. Most speaks for it: degrees (+0.5); against: own features "
        "(-2.0)."
    )


def test_the_histogram_counts_every_edge():
    bars = histogram([0.0, 0.01, 0.5, 1.0])
    counts = [int(bar["says"].split()[0]) for bar in bars]
    assert sum(counts) == 4
    assert counts[0] == 2
