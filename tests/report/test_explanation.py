"""The page of an explanation: self-contained, complete, and safe whatever names it shows."""

import pytest
import torch
from in_chromium import visit
from parsed_page import Page
from synthetic_rows import CLASSES, NODE

import graphglow
from graphglow.report import is_report
from graphglow.report.page import amount


@pytest.fixture(scope="module")
def explanations():
    """One of each kind, of a graph with hostile names."""
    torch.set_num_threads(1)
    data = graphglow.synthetic_graph(num_nodes=60, num_classes=3, num_features=8, seed=0)
    data.node_id = [NODE.format(i) for i in range(60)]
    data.class_names = CLASSES
    data.name = "hostile </title>"
    result = graphglow.transfer(data, epochs=2, hidden=8, device="cpu")
    return {
        "node": result.explain(NODE.format(3)),
        "pair": result.explain_pair(NODE.format(3), NODE.format(4)),
        "prediction": graphglow.predict(data, device="cpu").explain(NODE.format(3)),
    }


KINDS = ("node", "pair", "prediction")


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_loads_nothing_runs_nothing_and_has_every_number(explanations, kind, tmp_path):
    why, path = explanations[kind], tmp_path / "why.html"
    why.write(path)
    text = path.read_text()
    parsed = Page(text)
    assert all(link.startswith("#") for link in parsed.loads)
    assert "<script" not in text
    assert "<img" not in text
    assert "script-src 'none'" in text
    assert is_report(path)
    assert why.title in parsed.text
    assert why.summary() in parsed.text
    for one in why.contributions:
        assert str(one.name) in parsed.text
        assert amount(one.value) in parsed.text
    assert amount(why.score) in parsed.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_in_a_browser_with_the_network_off(
    browser, explanations, kind, tmp_path, width, scheme
):
    wrong = []
    explanations[kind].write(tmp_path / "why.html")
    size = {"width": width, "height": 900}
    uri = (tmp_path / "why.html").as_uri()
    shown = visit(browser, uri, wrong, viewport=size, color_scheme=scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    bars = shown.locator(".bars i")
    assert max(bars.nth(i).bounding_box()["width"] for i in range(bars.count())) > 20
    shown.context.close()
    assert wrong == []
