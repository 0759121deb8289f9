"""The page in Chromium, with the network off: it draws, sorts and turns dark, and says no error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_chromium import visit
from synthetic_demo import RESULT
from synthetic_rows import (
    CLASSES,
    HOSTILE,
    paper_table_rows,
    row,
    sweep_rows,
    table_rows,
    write_rows,
)

import graphglow
from graphglow.lab.runs.rows import read_rows
from graphglow.report import write_report
from graphglow.report.results import write_results

pytestmark = pytest.mark.slow
REPO = Path(__file__).parents[2]
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
VISITS: dict[str, dict[str, Any]] = {
    "light": DESKTOP,
    "dark": DESKTOP | {"color_scheme": "dark"},
    "phone": PHONE | {"device_scale_factor": 2},
}
FIRST = "table.sortable:not(.verdict):not(.standing) >> nth=0"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, transfer: graphglow.TransferResult) -> str:
    """A page with everything: tables, curves, a hostile row and a hostile transfer."""
    folder = tmp_path_factory.mktemp("page")
    rows = [*table_rows(seeds=3, targets=("reed98", "cora", "citeseer")), *sweep_rows(seeds=2)]
    rows += paper_table_rows(seeds=2)
    rows += [row(experiment=HOSTILE, cell="1", label=HOSTILE, method=HOSTILE, target=HOSTILE)]
    rows += [row(experiment=HOSTILE, cell="2", label="GCN", method="gcn", target=HOSTILE)]
    files = [read_rows(write_rows(folder / "synthetic.jsonl", rows))]
    given = [(folder / "hostile.safetensors", transfer)]
    write_results(files, given, folder / "page.html", title="Synthetic rows, for tests only")
    return (folder / "page.html").as_uri()


@pytest.fixture
def fresh(browser: Any, address: str) -> Iterator[Any]:
    """The page on a desktop, as it opens."""
    wrong: list[str] = []
    page = visit(browser, address, wrong, **DESKTOP)
    yield page
    page.context.close()
    assert wrong == []


@pytest.fixture(scope="module", params=VISITS)
def drawn(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Any]:
    """The page with every chart drawn, on each of the screens."""
    wrong: list[str] = []
    page = visit(browser, address, wrong, **VISITS[request.param])
    page.name = request.param
    for plot in page.locator(".plot").all():  # as a reader who scrolls
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
    page.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
    yield page
    page.context.close()
    assert wrong == []


def column(page: Any, number: int) -> list[str]:
    found: list[str] = page.locator(f"{FIRST} >> tbody tr > :nth-child({number})").all_inner_texts()
    return found


def test_every_chart_is_drawn_offline(drawn: Any) -> None:
    assert drawn.locator(".plot").count() >= 12
    assert drawn.locator(".plot .js-line").count() > 0
    assert drawn.evaluate("typeof hacked") == "undefined"


def test_no_button_sends_data_away(drawn: Any) -> None:
    titles = drawn.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title || b.ariaLabel)"
    )
    assert ("Pan" in titles) == (drawn.name != "phone")  # there are none on a phone
    assert not [t for t in titles if t and ("hare" in t or "loud" in t or "lotly" in t)]


def test_names_in_charts_are_text(drawn: Any) -> None:
    said = drawn.evaluate("[...document.querySelectorAll('.plot text')].map(t => t.textContent)")
    assert CLASSES[1] in said  # in a legend, tags and all
    assert drawn.locator(".plot img, .plot b").count() == 0


def test_the_page_never_scrolls_sideways(drawn: Any) -> None:
    for summary in drawn.locator("details > summary").all():
        summary.click()
    width = VISITS[drawn.name]["viewport"]["width"]
    assert drawn.evaluate("document.documentElement.scrollWidth") == width
    if drawn.name == "phone":  # the table does, in its frame
        assert drawn.locator(".sticky >> nth=0").evaluate("e => e.scrollWidth > e.clientWidth")
    for summary in drawn.locator("details > summary").all():
        summary.click()


def test_a_screenshot_is_kept(drawn: Any) -> None:
    """In ``artifacts/``, a folder that git ignores."""
    folder = REPO / "artifacts"
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    drawn.locator(".bar").evaluate("bar => { bar.style.position = 'static'; }")
    path = folder / f"report-{drawn.name}.png"
    drawn.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 50_000


def test_headers_sort_by_mouse_and_keyboard(fresh: Any) -> None:
    given = column(fresh, 1)
    head = fresh.locator(f"{FIRST} >> thead th >> nth=1")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    falling = [float(text.split()[0]) for text in column(fresh, 2)]
    assert falling == sorted(falling, reverse=True)
    head.locator("button").focus()
    fresh.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    rising = [float(text.split()[0]) for text in column(fresh, 2)]
    assert rising == falling[::-1]
    fresh.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "none"
    assert column(fresh, 1) == given
    names = fresh.locator(f"{FIRST} >> thead th >> nth=0")
    names.locator("button").click()
    assert column(fresh, 1) == sorted(given, key=str.lower)
    head.locator("button").click()
    assert names.get_attribute("aria-sort") == "none"  # one column at a time


def test_verdicts_sort_by_the_difference(fresh: Any) -> None:
    table = fresh.locator("table.verdict >> nth=1")  # of the paper's table
    table.locator("thead button >> nth=2").click()
    said = table.locator("tbody td:nth-child(3) > span").all_inner_texts()
    signed = [float(text.replace("\u2212", "-")) for text in said]
    assert len(signed) >= 4
    assert signed == sorted(signed, reverse=True)


def test_a_table_of_seven_graphs_fits_on_a_desktop(drawn: Any) -> None:
    frames = drawn.locator(".card:has(> table.dense)").all()
    assert len(frames) >= 2
    for frame in frames:
        if drawn.name != "phone":
            assert frame.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert drawn.locator(".card:has(> table.dense) sup.alone").count() > 0


def test_toggles_show_and_hide(fresh: Any) -> None:
    for name, first in (("paper", True), ("std", True), ("runs", False)):
        part = fresh.locator(f"{FIRST} >> td .{name} >> nth=0")
        assert part.is_visible() == first
        fresh.locator(f"[data-shows={name}]").focus()
        fresh.keyboard.press("Space")
        assert part.is_visible() != first


def test_the_theme_follows_the_system_and_the_button(fresh: Any) -> None:
    def colours() -> tuple[str, str]:
        """Of the page's ground, and of the first chart's axis text."""
        return (
            fresh.evaluate("getComputedStyle(document.body).backgroundColor"),
            fresh.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill"),
        )

    fresh.locator(".plot >> nth=0").scroll_into_view_if_needed()
    fresh.locator(".plot .xtick text >> nth=0").wait_for()
    button = fresh.locator("#theme")
    light = colours()
    fresh.emulate_media(color_scheme="dark")
    fresh.locator("#theme[aria-pressed=true]").wait_for()
    dark = colours()
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    button.click()
    assert colours() == light
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert colours() == dark


def test_links_lead_somewhere_and_regions_have_names(fresh: Any) -> None:
    nameless = fresh.evaluate(
        """[...document.querySelectorAll('[role=region], [role=img], button, nav')]
           .filter(e => !(e.getAttribute('aria-label') || e.textContent).trim()).length"""
    )
    assert nameless == 0
    for link in fresh.locator("nav a").all():
        assert fresh.locator(str(link.get_attribute("href"))).count() == 1


@pytest.mark.parametrize("screen", VISITS)
def test_the_demo_page_opens_offline_on_every_screen(
    browser: Any, tmp_path: Path, screen: str
) -> None:
    wrong: list[str] = []
    write_report(RESULT, tmp_path / "demo.html")
    page = visit(browser, (tmp_path / "demo.html").as_uri(), wrong, **VISITS[screen])
    width = VISITS[screen]["viewport"]["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("svg.accuracy rect.ours").count() == 1
    drawings = [drawing.bounding_box() for drawing in page.locator("svg").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in drawings)
    (red, *_), ink = (
        page.evaluate(f"getComputedStyle(document.body).{part}.match(/[0-9]+/g).map(Number)")
        for part in ("backgroundColor", "color")
    )
    assert (red < 100 < ink[0]) if screen == "dark" else (red > 200 > ink[0])
    page.context.close()
    assert wrong == []
