"""Every page: self-contained, without scripts, safe whatever names it shows, fit for any screen."""

import pytest
from hostile import CLASSES, NODE, hostile_graph
from in_chromium import visit
from parsed_page import Page
from synthetic_demo import RESULT

import graphglow
from graphglow.report import amount, is_report
from graphglow.report.explanations import write_audit
from graphglow.report.results import training_lines, write_report, write_transfers
from tiny_graphs import learner

KINDS = ("pair", "prediction", "transfers", "audit", "demo")


@pytest.fixture(scope="module")
def transfers():
    data = hostile_graph()
    config = graphglow.PaperConfig(epochs=3, num_pivots=12, refinements=2, device="cpu")
    one = graphglow.transfer(data, epochs=3, hidden=8, device="cpu")
    return [("one.safetensors", one), ("two", graphglow.transfer(data, learner(), config))]


@pytest.fixture(scope="module")
def explanations():
    data = hostile_graph()
    prediction = graphglow.predict(data, device="cpu")
    return {
        "pair": graphglow.explain_pair(data, NODE.format(3), NODE.format(4), device="cpu"),
        "prediction": prediction.explain(NODE.format(3)),
    }


@pytest.fixture(scope="module")
def pages(transfers, explanations, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    paths = {kind: folder / f"{kind}.html" for kind in KINDS}
    for kind, why in explanations.items():
        why.write(paths[kind])
    write_transfers(transfers, paths["transfers"], title=CLASSES[0])
    write_audit(graphglow.audit(hostile_graph(), device="cpu"), paths["audit"])
    write_report(RESULT, paths["demo"])
    return paths


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_loads_nothing_runs_nothing_and_escapes_names(pages, kind):
    text = pages[kind].read_text()
    parsed = Page(text)
    assert is_report(pages[kind])
    assert all(link.startswith("#") for link in parsed.loads)
    assert not {"script", "link", "iframe", "img", "b"} & set(parsed.seen)
    assert "script-src 'none'" in text
    assert parsed.scopeless == 0
    assert not any(word in text for word in ("url(", "@import"))


@pytest.mark.parametrize("kind", ["pair", "prediction"])
def test_an_explanation_has_every_number(pages, explanations, kind):
    why, text = explanations[kind], Page(pages[kind].read_text()).text
    assert why.title in text
    assert why.answer in text
    for one in why.contributions:
        assert str(one["name"]) in text
        assert amount(one["contribution"]) in text
    assert amount(why.score) in text


def test_transfers_have_their_facts_and_edges(pages, transfers):
    text = Page(pages["transfers"].read_text()).text
    for path, result in transfers:
        assert path in text
        assert result.verdict in text
        assert f"{result.test_accuracy:.3g}" in text
    learned = transfers[0][1].refined_graph(16, self_loops=False)
    low, high = learned.edge_index.sort(0).values
    assert str(len((low * 60 + high).unique())) in text  # pairs of the learned graph


def test_lines_of_a_training_are_in_the_frame(transfers):
    history = transfers[0][1].history
    found = training_lines(history, history[1])
    assert (found["best"], found["at"]) == (2, 320)
    for points in found["lines"].values():
        places = [tuple(map(float, point.split(","))) for point in points.split()]
        assert len(places) == len(history)
        assert all(0 <= x <= 640 and 0 <= y <= 160 for x, y in places)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_it_reads_on_every_screen_with_the_network_off(browser, pages, kind, width, scheme):
    wrong = []
    size = {"width": width, "height": 844}
    shown = visit(browser, pages[kind].as_uri(), wrong, viewport=size, color_scheme=scheme)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    red = shown.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0]")
    assert (int(red) < 100) == (scheme == "dark")
    for drawing in shown.locator("svg").all():
        box = drawing.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    shown.context.close()
    assert wrong == []
