import sys
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError
from parsed_page import Page

from graphglow.errors import InputError
from graphglow.experiments.demo import NewEdge, Refined, Row
from graphglow.experiments.structure_metrics import GraphFacts
from graphglow.report import is_report, write_report
from graphglow.report.demo import verdicts

HOSTILE = "<script>alert('x')</script>\"'&"


def row(target: str, method: str, accuracy: float | None, seed: int = 0) -> Row:
    return Row(target, method, seed, "random seed 0", accuracy, 0.5, 1.25)


def written(path: Path, rows: list[Row], **more: object) -> Page:
    write_report(rows, path, **more)  # type: ignore[arg-type]
    return Page(path.read_text(encoding="utf-8"))


REFINED = Refined(
    HOSTILE, 10, 3, GraphFacts(20, 0.25), GraphFacts(30, None), [NewEdge(HOSTILE, "b", 0.5, None)]
)
ROWS = [
    row("wine", "graphglow", 0.9),
    row("wine", "graphglow", 1.0, seed=1),
    row("wine", "gcn", 0.96),
    row("wine", "gcn", 0.96, seed=1),
    row("other", "graphglow", None),
]


def test_page_is_well_formed_and_bold_is_the_best_mean(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", ROWS, title="A title", refined=REFINED)
    assert page.strong == ["96.0 %"]
    assert "95.0 %" in page.text
    assert "A title" in page.text
    assert page.seen.count("caption") == page.seen.count("table") == 4


def test_page_needs_no_network_and_no_scripts(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", ROWS, refined=REFINED)
    assert page.loads == ["#content"]
    assert page.scopeless == 0
    assert not {"script", "link", "iframe", "img"} & set(page.seen)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert "@import" not in text
    assert "light-dark(" in text
    assert "script-src 'none'" in text


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = written(
        tmp_path / "page.html",
        [row(HOSTILE, HOSTILE, 0.5)],
        title=HOSTILE,
        pretraining={"sources": [HOSTILE], "seed": 0, "val_accuracy": 0.5, "seconds": 1.0},
        settings={HOSTILE: {HOSTILE: HOSTILE}},
        versions={HOSTILE: HOSTILE},
        refined=REFINED,
    )
    assert "script" not in page.seen
    assert page.text.count(HOSTILE) >= 10


def test_page_without_extras(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", [row("wine", "unheard-of", None)])
    assert "unheard-of" in page.text
    assert page.strong == []


def test_only_reports_are_recognised(tmp_path: Path) -> None:
    write_report(ROWS, tmp_path / "page.html")
    (tmp_path / "other.html").write_text("<html></html>")
    assert is_report(tmp_path / "page.html")
    assert not is_report(tmp_path / "other.html")
    assert not is_report(tmp_path)
    assert not is_report(tmp_path / "absent")


def test_failure_keeps_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(UndefinedError):
        write_report(ROWS, path, pretraining={"seed": 0})  # a page that cannot be made
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match="folder"):
        write_report(ROWS, tmp_path)


def test_verdicts_say_who_is_ahead_whoever_it_is() -> None:
    assert verdicts(ROWS) == [
        "graphglow against gcn: mean accuracy higher on 0, equal on 0, lower on 1 of 1 targets."
    ]
    tie = [row("wine", "graphglow", 26 / 27), row("wine", "gcn", float(np.float32(26 / 27)))]
    assert "equal on 1" in verdicts(tie)[0]
    assert verdicts([row("wine", "gcn", 0.5)]) == []


def test_the_demo_does_not_need_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    write_report(ROWS, tmp_path / "demo.html")
    assert is_report(tmp_path / "demo.html")


def test_the_evidence_learner_is_set_beside_its_own_controls() -> None:
    scores = {"evidence": 0.9, "evidence-untrained": 0.8, "graphglow": 0.7, "gcn": 0.9}
    rows = [Row("wine", method, 0, "own", score, score, 0.1) for method, score in scores.items()]
    assert verdicts(rows) == [
        "evidence against evidence-untrained: mean accuracy higher on 1, equal on 0, lower on 0 "
        "of 1 targets.",
        "evidence against gcn: mean accuracy higher on 0, equal on 1, lower on 0 of 1 targets.",
        "graphglow against gcn: mean accuracy higher on 0, equal on 0, lower on 1 of 1 targets.",
    ]
