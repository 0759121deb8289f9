"""The page of an audit: whole, self-contained, safe whatever names it has."""

import re
import shutil

import pytest
import torch
from small_audits import with_false_edges

import graphglow
from graphglow.explain import Surroundings, explain_edge
from graphglow.report.audit import histogram, write_audit
from graphglow.report.page import is_report
from graphglow.report.pair import picture

HOSTILE = "<img src=x onerror=hacked()>"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


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
    assert "edges look false" in text


def test_a_pair_has_its_neighbours_and_bars():
    around = Surroundings(
        common=["eve"], of_u=["dan", "flo"], of_v=[], edges=[("dan", "eve")], left_out=3
    )
    why = explain_edge(("ann", "bob"), {"own features": -2.0, "degrees": 0.5}, around, True)
    drawn = picture(why)
    assert [mark.name for mark in drawn.marks] == ["ann", "bob", "eve", "dan", "flo"]
    assert len(drawn.lines) == 2 + 2 + 1
    assert (why.score, why.probability) == (-1.5, pytest.approx(0.1824, abs=1e-4))
    assert [(bar.name, bar.length) for bar in drawn.bars] == [
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


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (apt-get install chromium)")
def test_it_reads_on_a_phone_and_in_the_dark_with_the_network_off(page, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright (the dev extra)")
    wrong: list[str] = []
    grounds = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, scheme in ((1280, "light"), (390, "light"), (390, "dark")):
            context = browser.new_context(
                offline=True, viewport={"width": width, "height": 844}, color_scheme=scheme
            )
            shown = context.new_page()
            shown.on("console", lambda message: wrong.append(message.text))
            shown.on("pageerror", lambda error: wrong.append(str(error)))
            shown.on("request", lambda r: None if r.url == page.as_uri() else wrong.append(r.url))
            shown.goto(page.as_uri())
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            assert shown.locator(".pair svg circle").count() > 32
            box = shown.locator(".pair svg").first.bounding_box()
            assert box is not None
            assert box["width"] > 200
            grounds.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
            shown.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
        browser.close()
    assert wrong == []
    assert grounds[0] == grounds[1] != grounds[2]
