"""The page of an audit: its cards, shares and bars."""

import re

from graphglow.audit import MEANINGS
from graphglow.explain import Explanation, Surroundings, by_evidence, pro_and_con
from graphglow.report.explanations import layout, write_audit


def test_the_page_shows_suspects_first_and_counts_every_edge(damaged_audit, tmp_path):
    audit, _ = damaged_audit
    write_audit(audit, tmp_path / "audit.html")
    text = (tmp_path / "audit.html").read_text()
    assert text.count('<article class="card pair">') == 16
    assert "more likely false than real" in text
    assert text.index('id="suspects"') < text.index('id="shares"')
    assert all(meaning in text for meaning in MEANINGS.values())
    bars = re.findall(r"<title>([0-9,]+) edges between", text)
    assert len(bars) == 20
    assert sum(map(int, bars)) == audit.edges.shape[1]


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
