import itertools

import pytest

from graphglow.report.theme import OURS, SERIES, THEMES, series_styles


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
