import itertools
import re

import pytest

from graphglow.report.frame import OURS, SERIES, chart_text, series_styles, unique_names
from graphglow.report.page import FOLDER

PAIRS = re.findall(
    r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", (FOLDER / "style.css").read_text()
)
THEMES = {
    theme: {name: colours[at] for name, *colours in PAIRS}
    for at, theme in enumerate(("light", "dark"))
}


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("text", ["ink", "soft", "glow", "up", "down"])
@pytest.mark.parametrize("ground", ["page", "card", "wash", "halo"])
def test_text_has_the_contrast_of_level_aa(theme: str, text: str, ground: str) -> None:
    assert contrast(THEMES[theme][text], THEMES[theme][ground]) >= 4.5


@pytest.mark.parametrize("colour", [OURS, *SERIES])
@pytest.mark.parametrize("theme", THEMES)
def test_marks_can_be_seen_in_both_themes(colour: str, theme: str) -> None:
    assert contrast(colour, THEMES[theme]["card"]) >= 3


def test_many_names_all_look_different() -> None:
    names = [f"m{i}" for i in range(40)]
    styles = series_styles(["ours", *names, "ours too"], ["ours", "ours too"])
    assert styles["ours"].colour == styles["ours too"].colour == OURS
    for one, other in itertools.combinations(styles.values(), 2):
        assert one != other


def test_text_of_charts_is_cut_and_has_no_tags() -> None:
    assert chart_text("<b>a & b</b>\n c") == "&lt;b&gt;a &amp; b&lt;/b&gt; c"
    assert chart_text("a" * 100, 10) == "a" * 9 + "\u2026"


def test_names_of_an_axis_are_unique() -> None:
    assert unique_names(["a", "b", "a", "a"]) == ["a", "b", "a #2", "a #3"]
