"""Cells as people write them, as features and classes."""

import datetime
import decimal
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graph import features
from graphglow.graph.features import encode_labels, numbers_of


def encode_columns(frame):
    return features.encode_columns(frame, "t")


def encode_features(frame):
    return encode_columns(frame)[0]


def test_numbers_are_standardised_and_a_missing_one_is_the_mean():
    x = encode_features(pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [5, 5, 5]}))
    assert x.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    nullable = pd.DataFrame({"a": pd.array([1, 3, None], dtype="Int64"), "b": [np.nan] * 3})
    assert torch.equal(encode_features(nullable), x)


def test_text_and_booleans_are_one_hot_and_a_missing_one_is_zero():
    frame = pd.DataFrame(
        {
            "s": ["b", None, "a"],
            "c": pd.Categorical([1, 2, 1]),
            "f": [True, False, True],
        }
    )
    x = encode_features(frame)
    assert x.dtype == torch.float32
    assert x.tolist() == [[0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf], "column 'a' of t must be finite and below 1e+38; got inf"),
        ([1.0, 1e200], "below 1e+38; got 1e+200"),
        ([[1], [2]], "must be numbers, dates, text or booleans; got list"),
        (["x", ["y"]], "must be numbers, dates, text or booleans; got list"),
        ([b"x", b"y"], "must be numbers, dates, text or booleans; got bytes"),
        (["1", "2", "x"], "must be numbers in every filled cell; got 'x'"),
        (["1", "x", None], "must be numbers in every filled cell; got 'x'"),
        (["2024-01-31", "2024-02-30"], "must be dates in every filled cell; got '2024-02"),
        (["2024-01-31", "soon"], "must be dates in every filled cell; got 'soon'"),
        (["13/03/2021", "03/13/2021"], "must be dates in every filled cell; got '03/13/2021'"),
        ([3, 3], "t must have a feature column that differs between rows; got the same value"),
        ([None, None], "t must have a feature column that differs between rows; got the same"),
    ],
)
@pytest.mark.filterwarnings("ignore::graphglow.errors.InputWarning")
def test_columns_that_are_no_features(column, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encode_features(pd.DataFrame({"a": column}))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([f"name {i}" for i in range(21)], "21 different texts in 21 filled cells"),
        ([f"name {i}" for i in range(25)] * 2, None),  # each twice: half as many as cells
        ([f"name {i}" for i in range(1001)] * 3, "1001 different texts in 3003 filled cells"),
        ([f"name {i}" for i in range(20)], None),
    ],
)
def test_names_are_no_categories(texts, reason):
    frame = pd.DataFrame({"a": texts, "f": np.arange(len(texts))})
    if reason is None:
        assert encode_features(frame).shape == (len(texts), 1 + len(set(texts)))
        return
    with pytest.warns(InputWarning, match=f"column 'a' of t is left out: {reason} are names or"):
        assert encode_features(frame).shape == (len(texts), 1)


def test_nothing_but_names():
    frame = pd.DataFrame({"a": [f"name {i}" for i in range(21)]})
    with pytest.warns(InputWarning):
        assert encode_features(frame).shape == (21, 0)


@pytest.mark.parametrize(
    "dates",
    [
        ["2024-01-01", "2024-01-03", ""],
        ["2024-01-01T00:00:00Z", "2024-01-03 00:00", None],
        pd.to_datetime(["2024-01-01", "2024-01-03", None]),
        pd.to_datetime(["2024-01-01", "2024-01-03", None]).tz_localize("UTC"),
        [datetime.date(2024, 1, 1), datetime.date(2024, 1, 3), None],
    ],
)
def test_dates_are_days(dates):
    x, columns = encode_columns(pd.DataFrame({"a": dates}))
    assert x.tolist() == [[-1.0], [1.0], [0.0]]
    assert columns == [{"name": "a", "mean": 19724.0, "scale": 1.0, "date": "ISO8601"}]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["13/01/2021", "15/01/2021"], "%d/%m/%Y"),
        (["01/13/2021", "01/15/2021"], "%m/%d/%Y"),
        (["13.1.2021 9:30", "15.1.2021 9:30"], "%d.%m.%Y %H:%M"),
        (["3 May 2021", "5 May 2021"], "%d %B %Y"),
        (["05.01.2021", "31.01.2021"], "%d.%m.%Y$"),  # whichever comes first
        (["31.01.2021", "05.02.2021"], "%d.%m.%Y$"),
        (["05/01/2021", "07/01/2021"], r"%m/%d/%Y \(all can be read with the day first, too\)"),
    ],
)
def test_a_format_that_is_guessed_is_said_and_kept(cells, said):
    with pytest.warns(InputWarning, match=f"column 'a' of t is read as dates by the format {said}"):
        x, (column,) = encode_columns(pd.DataFrame({"a": cells}))
    assert x.tolist() == [[-1.0], [1.0]]
    assert column["date"] == said.split(" \\")[0].rstrip("$")


def test_exact_decimals():
    exact = [decimal.Decimal("0.5"), decimal.Decimal("1.5")]
    assert encode_features(pd.DataFrame({"a": exact})).tolist() == [[-1.0], [1.0]]


def test_a_very_sparse_column_and_a_constant_that_rounds():
    values = np.full(1000, np.nan)
    values[[3, 500]] = 1.0, 3.0
    frame = pd.DataFrame({"a": values, "b": [0.1] * 1000})
    x, columns = encode_columns(frame)
    assert x.nonzero().tolist() == [[3, 0], [500, 0]]
    assert columns[1]["scale"] == 0.0


def test_how_it_was_made_makes_it_again():
    frame = pd.DataFrame(
        {"s": ["b", "", "a", "b"], "n": [1.0, 2.0, np.nan, 6.0], "f": [True, False, True, True]}
    )
    x, columns = encode_columns(frame)
    assert [c["name"] for c in columns] == ["s", "n", "f"]
    assert columns[0]["categories"] == ["a", "b"]
    again = (frame["n"].fillna(columns[1]["mean"]) - columns[1]["mean"]) / columns[1]["scale"]
    np.testing.assert_allclose(x[:, 2], again, rtol=1e-6)
    assert x[:, :2].tolist() == [[0, 1], [0, 0], [1, 0], [0, 1]]


def test_no_columns():
    assert encode_features(pd.DataFrame(index=range(3))).shape == (3, 0)


NONE = math.nan


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "-2.5", "", "1e3"], [1, -2.5, NONE, 1000]),
        (["12%", "0.12", "7.5 %", "NA"], [0.12, 0.12, 0.075, NONE]),
        (["1,000", "-2", "1,234,567.5"], [1000, -2, 1234567.5]),
    ],
)
def test_numbers(cells, values):
    assert numbers_of(pd.Series(cells), "c").tolist() == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("cell", ["1,5", "a,b", "x%", "3 men", "$5", "1,00"])
def test_what_is_no_number(cell):
    with pytest.raises(InputError, match="c must be numbers in every filled cell; got"):
        numbers_of(pd.Series([cell]), "c")


def days(*date: int) -> float:
    return float((datetime.date(*date) - datetime.date(1970, 1, 1)).days)


@pytest.mark.parametrize(
    ("cells", "date", "values"),
    [
        (["2021-03-01", "", "1960-01-01"], "ISO8601", [days(2021, 3, 1), NONE, days(1960, 1, 1)]),
        (["2021-03-01T12:00", "9999-12-31"], "ISO8601", [days(2021, 3, 1) + 0.5, 2932896]),
        (["2021/3/1", ""], "ISO8601", [days(2021, 3, 1), NONE]),
        (["01/03/2021", "13/04/2021"], "%d/%m/%Y", [days(2021, 3, 1), days(2021, 4, 13)]),
    ],
)
def test_dates(cells, date, values):
    assert numbers_of(pd.Series(cells), "c", date).tolist() == pytest.approx(values, nan_ok=True)


@pytest.mark.parametrize("cell", ["soon", "1/2", "01/03.2021", "1/2/21", "2021-3-1x"])
def test_what_is_no_date(cell):
    _, columns = encode_columns(pd.DataFrame({"a": [cell, "other"]}))
    assert columns == [{"name": "a", "categories": sorted([cell, "other"])}]


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        (["b", "a", "", "b"], [1, 0, -1, 1], ["a", "b"]),
        (["b ", " a", None, float("nan")], [1, 0, -1, -1], ["a", "b"]),
        ([0, 1, -1, 2], [0, 1, -1, 2], ["0", "1", "2"]),
        (["0", "1", "", "-1"], [0, 1, -1, -1], ["0", "1"]),
        ([0.0, 1.0, np.nan], [0, 1, -1], ["0", "1"]),  # integers with blanks, as pandas keeps them
        ([2019, 2021, 2019], [0, 1, 0], ["2019", "2021"]),
        ([1, 2, 1], [0, 1, 0], ["1", "2"]),
        ([True, False, True], [1, 0, 1], ["False", "True"]),
        (["1", "a", "b"], [0, 1, 2], ["1", "a", "b"]),  # most are text
        (["NA", "a", "null", "b"], [-1, 0, -1, 1], ["a", "b"]),
        (
            ["9007199254740992", "9007199254740993"],
            [0, 1],
            ["9007199254740992", "9007199254740993"],
        ),
        (["", None], [-1, -1], []),
    ],
)
def test_labels_as_people_write_them(labels, y, names):
    got, class_names = encode_labels(labels, "labels")
    assert got.tolist() == y
    assert class_names == names


@pytest.mark.parametrize("bad", [2**70, 0.5, -2, float("inf")])
def test_numbers_that_are_no_classes(bad):
    rule = "l of f must be text, or whole numbers from 0 (-1 or blank for unlabelled); got"
    with pytest.raises(InputError, match=re.escape(f"{rule} '{bad}'")):
        encode_labels([0, 1, bad], "l of f")


def test_numbers_and_text():
    with pytest.raises(InputError, match=r"l of f must be text, or whole numbers .*; got '3\+'"):
        encode_labels([1, 2, "", "3+"], "l of f")
