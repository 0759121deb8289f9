"""A pair as a page: hostile ids stay text, the numbers are there, and it opens in a browser."""

import pytest
import torch
from in_chromium import visit
from parsed_page import Page
from synthetic_rows import CLASSES, NODE

import graphglow
from graphglow.errors import InputError
from graphglow.report import is_report, write_explanation, write_pair_explanation
from graphglow.report.page import amount


@pytest.fixture(scope="module")
def data():
    torch.set_num_threads(1)
    data = graphglow.synthetic_graph(num_nodes=60, num_classes=3, num_features=8, seed=0)
    data.node_id = [NODE.format(i) for i in range(60)]
    data.class_names = CLASSES
    data.name = "hostile </title>"
    return data


@pytest.fixture(scope="module")
def why(data):
    u, v = data.edge_index[:, 0].tolist()
    return graphglow.explain_pair(data, NODE.format(u), NODE.format(v), device="cpu")


@pytest.fixture(scope="module")
def page(why, tmp_path_factory):
    path = tmp_path_factory.mktemp("pair") / "why.html"
    write_pair_explanation(why, path)
    return path


def test_the_page_loads_nothing_and_runs_nothing(page, why):
    text = page.read_text()
    parsed = Page(text)
    assert all(link.startswith("#") for link in parsed.loads)
    assert "<script" not in text
    assert is_report(page)
    assert f"What speaks for {why.u} and {why.v} being of one class" in parsed.text
    assert why.summary() in parsed.text


def test_the_page_has_every_contribution_and_their_sum(page, why):
    text = Page(page.read_text()).text
    for name, value in why.contributions.items():
        assert name in text
        assert amount(value) in text
    assert amount(sum(why.contributions.values())) in text


def test_the_suffix_says_what_is_written(why, tmp_path):
    write_pair_explanation(why, tmp_path / "why.csv")
    assert (tmp_path / "why.csv").read_text().startswith("evidence,contribution,about")
    with pytest.raises(InputError, match=r"must be \.html, \.htm, \.csv or \.parquet; got"):
        write_pair_explanation(why, tmp_path / "why.txt")


def test_a_nodes_page_says_why_refined_edges_are_there(data, tmp_path):
    result = graphglow.transfer(
        data, config=graphglow.TransferConfig(epochs=2, hidden=8, device="cpu")
    )
    node = NODE.format(int(result.edge_index[0, 0]))
    why = result.explain(node, 60)
    write_explanation(why, tmp_path / "why.html")
    text = Page((tmp_path / "why.html").read_text()).text
    assert "Why the refined graph joins them" in text
    told = [one for one in why.contributions if one.evidence_for]
    assert told
    assert all(one.evidence_for in text for one in told)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_in_a_browser_with_the_network_off(browser, page, width, scheme):
    wrong = []
    size = {"width": width, "height": 900}
    shown = visit(browser, page.as_uri(), wrong, viewport=size, color_scheme=scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.locator(".pair svg circle").count() >= 2
    bars = shown.locator(".bars i")
    assert max(bars.nth(i).bounding_box()["width"] for i in range(bars.count())) > 20
    shown.click("summary")
    assert shown.locator("details dd").first.is_visible()
    shown.context.close()
    assert wrong == []
