from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from parsed_page import Page
from synthetic_demo import REFINED, RESULT, compared

from graphglow.demo import DemoResult
from graphglow.errors import InputError
from graphglow.report import is_report
from graphglow.report.results import headline, write_report

HOSTILE = "<script>alert('x')</script>\"'&"
TEXT = {HOSTILE: HOSTILE}
NAMED = DemoResult(
    {HOSTILE: replace(compared(("gcn", 0.5, None)), how=HOSTILE)}, TEXT, REFINED, 1.0
)


def written(path: Path, result: DemoResult = RESULT, **more: str) -> Page:
    write_report(result, path, **more)
    return Page(path.read_text(encoding="utf-8"))


def test_page_is_well_formed_and_bold_is_the_best_mean(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", title="A title")
    assert page.strong == ["96.0 %"]
    assert "95.0 %" in page.text
    assert "A title" in page.text
    assert page.seen.count("caption") == page.seen.count("table") == 1
    assert "Of the injected edges 50.0 % are dropped, of the graph's own 12.5 %" in page.text
    assert page.seen.count("svg") == 1  # bars of a target


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", NAMED, title=HOSTILE)
    assert "script" not in page.seen
    assert page.text.count(HOSTILE) >= 6


def test_page_without_extras(tmp_path: Path) -> None:
    page = written(
        tmp_path / "page.html",
        replace(
            RESULT,
            comparisons={},
            refined=replace(RESULT.refined, dropped_injected=None, audit_auc=None),
        ),
    )
    assert "injected" not in page.text
    assert page.strong == []


def test_only_reports_are_recognised(tmp_path: Path) -> None:
    write_report(RESULT, tmp_path / "page.html")
    (tmp_path / "other.html").write_text("<html></html>")
    assert is_report(tmp_path / "page.html")
    assert not is_report(tmp_path / "other.html")
    assert not is_report(tmp_path)
    assert not is_report(tmp_path / "absent")


def test_failure_keeps_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(UndefinedError):
        write_report(replace(RESULT, refined=None), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match="folder"):
        write_report(RESULT, tmp_path)


def test_the_headline_says_who_is_ahead_whoever_it_is() -> None:
    assert headline(RESULT) == ["wine: predict 95.0% (lower, p = 0.01), GCN 96.0% (highest)"]
    ahead = compared(("predict", 0.9, None), ("logistic", 0.8, 0.2), ("gcn", 0.7, 0.01))
    assert headline(replace(RESULT, comparisons={"a": ahead})) == [
        "a: predict 90.0% (highest), logistic regression 80.0% (level)"
    ]
    assert headline(replace(RESULT, comparisons={})) == []
