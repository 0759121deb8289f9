"""The page of one decision: whole, self-contained, and safe whatever names it shows."""

import json
import re
import sys

import pytest
from in_chromium import visit
from parsed_page import Page
from synthetic_rows import CLASSES, NODE

from graphglow.errors import InputError
from graphglow.report.explanation import bar_chart, summary, write_explanation
from graphglow.report.page import is_report
from graphglow.training import transfer
from tiny_graphs import small_data

go = pytest.importorskip("plotly.graph_objects", reason="needs plotly (the report extra)")


@pytest.fixture(scope="module")
def why(transfer):
    return transfer.explain(NODE.format(3))


@pytest.fixture(scope="module")
def page(why, tmp_path_factory):
    path = tmp_path_factory.mktemp("why") / "why.html"
    write_explanation(why, path)
    return path


def test_the_page_is_whole_and_loads_nothing(page):
    text = page.read_text()
    parsed = Page(text)
    assert all(link.startswith("#") for link in parsed.loads)
    assert parsed.scopeless == 0
    assert is_report(page)
    assert "What speaks for node <img src=x onerror=hacked()> 3 being" in parsed.text
    assert text.count("<script") == 3


def test_the_numbers_are_those_of_the_explanation(page, why):
    parsed = Page(page.read_text())
    assert f"{why.score:.4f}" in parsed.text
    for one in why.contributions:
        assert str(one.id) in parsed.text
    figures = re.search(r'id="figures">(.*?)</script>', page.read_text(), re.DOTALL).group(1)
    charts = json.loads(figures)
    bars = charts["chart-1"]["data"]
    assert [bar["name"] for bar in bars] == ["by the input graph", "by the learned graph"]
    for chart in charts.values():
        go.Figure(chart)  # a property that it does not know is an error


def test_bars_hold_every_part_of_the_sum(why):
    given, learned = (sum(bar["x"]) for bar in bar_chart(why).figure["data"])
    assert given == pytest.approx(why.input_total)
    assert learned == pytest.approx(why.latent_total)


def test_the_summary_says_the_class_and_the_shares(transfer):
    for node in range(0, 60, 7):
        why = transfer.explain(NODE.format(node))
        said = summary(why)
        assert why.predicted in said
        assert ("not known" in said) == (why.label is None)
    lead = transfer.explain(NODE.format(1), label=CLASSES[2], against=CLASSES[0])
    assert f"plain rather than {CLASSES[0]}" in summary(lead)


def test_an_explanation_of_a_node_that_hears_itself_alone(transfer, tmp_path):
    write_explanation(transfer.explain(NODE.format(2), 1), tmp_path / "why.html")
    assert (tmp_path / "why.html").is_file()


def test_plotly_is_asked_for_in_one_sentence(why, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InputError, match=r"graphglow\[report\]"):
        write_explanation(why, tmp_path / "why.html")
    assert not list(tmp_path.iterdir())


def test_the_suffix_says_what_is_written(why, tmp_path):
    write_explanation(why, tmp_path / "why.csv")
    assert (tmp_path / "why.csv").read_text().startswith("node,id,label")
    with pytest.raises(InputError, match=r"must be \.html, \.htm, \.csv or \.parquet; got"):
        write_explanation(why, tmp_path / "why.txt")
    with pytest.raises(InputError, match=r"must be \.csv or \.parquet"):
        why.write(tmp_path / "why.html")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_it_draws_in_a_browser_with_the_network_off(browser, page, width):
    wrong = []
    shown = visit(browser, page.as_uri(), wrong, viewport={"width": width, "height": 900})
    for plot in shown.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.click("#theme")
    shown.click("table.sortable >> nth=0 >> button >> nth=5")
    shown.context.close()
    assert wrong == []


def test_explanations_have_a_plot():
    go = pytest.importorskip("plotly.graph_objects")
    made = transfer(small_data(), epochs=2, hidden=8, device="cpu")
    why = made.explain(3, top_k=4)
    figure = why.plot()
    assert isinstance(figure, go.Figure)
    assert len(figure.data) == 2  # by the input graph, by the learned one
    assert sum(map(sum, (bar.x for bar in figure.data))) == pytest.approx(
        why.input_total + why.latent_total, abs=1e-6
    )
    pair = made.explain_pair(3, 4)
    (bars,) = pair.plot().data
    assert dict(zip(bars.y, bars.x, strict=True)) == pair.contributions
