from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from parsed_page import Page
from synthetic_demo import RESULT, refined, row

from graphglow.demo import DemoResult, Neighbourhood, Node
from graphglow.errors import InputError
from graphglow.report import is_report, write_report
from graphglow.report.demo import headline, write_picture

HOSTILE = "<script>alert('x')</script>\"'&"
SVG = "{http://www.w3.org/2000/svg}"
TEXT = {HOSTILE: HOSTILE}
NAMED = DemoResult(TEXT, [row(HOSTILE, "gcn", 0.5)], TEXT, TEXT, refined(HOSTILE), 1.0)


def written(path: Path, result: DemoResult = RESULT, **more: str) -> Page:
    write_report(result, path, **more)
    return Page(path.read_text(encoding="utf-8"))


def test_page_is_well_formed_and_bold_is_the_best_mean(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", title="A title")
    assert page.strong == ["96.0 %"]
    assert "95.0 %" in page.text
    assert "A title" in page.text
    assert page.seen.count("caption") == page.seen.count("table") == 2
    assert "Of the injected edges 50.0 % are dropped, of the graph's own 12.5 %" in page.text
    assert page.seen.count("svg") == 3  # bars of a target, before, after
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    before, after = text.split("<h3>Before</h3>")[1].split("<h3>After</h3>")
    assert (before.count("<line"), before.count("gone")) == (3, 0)
    after = after.split("</svg>")[0]
    assert [after.count(kind) for kind in ("<line", " gone", " new")] == [4, 2, 1]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", NAMED, title=HOSTILE)
    assert "script" not in page.seen
    assert page.text.count(HOSTILE) >= 10


def test_page_without_extras(tmp_path: Path) -> None:
    page = written(
        tmp_path / "page.html",
        replace(
            RESULT,
            rows=[],
            settings={},
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
    nowhere = Neighbourhood([Node(0, 9)], [], [], [])  # a class that has no name
    with pytest.raises(IndexError):
        write_report(replace(RESULT, refined=replace(RESULT.refined, around=nowhere)), path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match="folder"):
        write_report(RESULT, tmp_path)


def test_the_headline_says_who_is_ahead_whoever_it_is() -> None:
    over = "predict over the best of GCN, a bag of five and logistic regression:"
    assert headline(RESULT) == [
        f"{over} \u22121.0 points on wine; beyond chance on 0 of 1 targets."
    ]
    steady = [row("a", "gcn", 0.5 + 0.1 * s, s) for s in range(3)]
    steady += [row("a", "untrained", 0.6 + 0.1 * s, s) for s in range(3)]
    steady += [row("a", "predict", 0.6 + 0.101 * s, s) for s in range(3)]
    assert headline(replace(RESULT, rows=steady)) == [
        f"{over} +10.1 points on a; beyond chance on 1 of 1 targets.",
        "predict over the same network never trained: +0.1 points on a; beyond chance on 0 of 1 "
        "targets.",
    ]
    assert headline(replace(RESULT, rows=steady[:3])) == []


def test_the_picture_is_a_small_drawing_with_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "before_after.svg"
    write_picture(replace(RESULT, refined=refined(HOSTILE)), path)
    assert path.stat().st_size < 60_000
    root = ElementTree.parse(path).getroot()
    words = " ".join(root.itertext())
    for number in ("25.0 %", "75.0 %", "96.0 %", "95.0 %"):
        assert number in words
    assert HOSTILE in words
    assert len(root.findall(f".//{SVG}line")) == 3 + 4
    assert "prefers-color-scheme: dark" in words
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "style", "rect", "g", "line", "circle", "text")
    }


def test_the_picture_of_the_docs_is_one_of_these() -> None:
    path = Path(__file__).parents[2] / "docs" / "pictures" / "before_after.svg"
    assert path.stat().st_size < 60_000
    assert "After: " in " ".join(ElementTree.parse(path).getroot().itertext())
