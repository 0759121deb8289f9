import datetime
import decimal
import re

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graphs.node_features import encode_columns, encode_features


def test_numbers_are_standardised_and_a_missing_one_is_the_mean():
    x = encode_features(pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [5, 5, 5]}), "t")
    assert x.tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    nullable = pd.DataFrame({"a": pd.array([1, 3, None], dtype="Int64"), "b": [np.nan] * 3})
    assert torch.equal(encode_features(nullable, "t"), x)


def test_text_and_booleans_are_one_hot_and_a_missing_one_is_zero():
    frame = pd.DataFrame(
        {
            "s": ["b", None, "a"],
            "c": pd.Categorical([1, 2, 1]),
            "f": [True, False, True],
        }
    )
    x = encode_features(frame, "t")
    assert x.dtype == torch.float32
    assert x.tolist() == [[0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf], "column 'a' of t must be finite; got inf in row 2"),
        ([1.0, 1e200], "column 'a' of t must be below 1e+100; got 1e+200 in row 2"),
        ([[1], [2]], "must hold numbers, dates, text or booleans; got list in row 1"),
        (["x", ["y"]], "must hold numbers, dates, text or booleans; got list in row 2"),
        ([b"x", b"y"], "must hold numbers, dates, text or booleans; got bytes in row 1"),
        (["1", "2", "x"], "must be numbers in every filled cell, as most are; got 'x' in row 3"),
        (["1", "x", None], "must be numbers in every filled cell, as most are; got 'x' in row 2"),
        (
            ["2024-01-31", "2024-02-30"],
            "must be dates in every filled cell, as most are; got '2024-02",
        ),
        (["2024-01-31", "soon"], "must be dates in every filled cell, as most are; got 'soon' in"),
        ([3, 3], "t must have a feature column that differs between rows; got the same value"),
        ([None, None], "t must have a feature column that differs between rows; got the same"),
    ],
)
def test_columns_that_are_no_features(column, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encode_features(pd.DataFrame({"a": column}), "t")


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
        assert encode_features(frame, "t").shape == (len(texts), 1 + len(set(texts)))
        return
    with pytest.warns(InputWarning, match=f"column 'a' of t is left out: {reason} are names or"):
        assert encode_features(frame, "t").shape == (len(texts), 1)


def test_nothing_but_names():
    frame = pd.DataFrame({"a": [f"name {i}" for i in range(21)]})
    with (
        pytest.warns(InputWarning),
        pytest.raises(InputError, match="at least one feature column; got none but a"),
    ):
        encode_features(frame, "t")


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
    x, columns = encode_columns(pd.DataFrame({"a": dates}), "t")
    assert x.tolist() == [[-1.0], [1.0], [0.0]]
    assert columns == [{"name": "a", "mean": 19724.0, "scale": 1.0, "date": "iso"}]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["10%", "30%"], "is read as numbers: '10%' as 0.1"),
        (["1,000", "3,000"], "is read as numbers: '1,000' as 1000"),
        (["1", "3,000"], "is read as numbers: '3,000' as 3000"),
        (["0,5", "1,5"], "is read as numbers: '0,5' as 0.5"),
        (["13/01/2021", "15/01/2021"], "is read as dates: '13/01/2021' as 2021-01-13"),
        (["01.02.2021", "03.02.2021"], "is read as dates: '01.02.2021' as 2021-02-01"),
    ],
)
def test_numbers_and_dates_that_are_not_written_plainly_are_said(cells, said):
    with pytest.warns(InputWarning, match=re.escape(f"column 'a' of t {said}")):
        x, _ = encode_columns(pd.DataFrame({"a": cells}), "t")
    assert x.tolist() == [[-1.0], [1.0]]


def test_dates_whose_day_cannot_be_told_are_left_out():
    frame = pd.DataFrame({"a": ["01/03/2021", "02/03/2021"], "b": [1, 3]})
    said = "column 'a' of t is left out: in '01/03/2021' day and month cannot be told apart"
    with pytest.warns(InputWarning, match=re.escape(said)):
        x, columns = encode_columns(frame, "t")
    assert x.tolist() == [[-1.0], [1.0]]
    assert [column["name"] for column in columns] == ["b"]


def test_what_new_rows_must_know_is_kept():
    frame = pd.DataFrame({"a": ["0,5", "1,5"], "b": ["13/01/2021", "15/01/2021"]})
    with pytest.warns(InputWarning):
        _, (a, b) = encode_columns(frame, "t")
    assert (a["decimal"], b["date"]) == (",", "dmy")


def test_decimal_commas_and_decimals():
    x = encode_features(pd.DataFrame({"a": ["0,5", "1,5"]}), "t", decimal=",")
    assert x.tolist() == [[-1.0], [1.0]]
    exact = [decimal.Decimal("0.5"), decimal.Decimal("1.5")]
    assert torch.equal(encode_features(pd.DataFrame({"a": exact}), "t"), x)


def test_a_very_sparse_column_and_a_constant_that_rounds():
    values = np.full(1000, np.nan)
    values[[3, 500]] = 1.0, 3.0
    frame = pd.DataFrame({"a": values, "b": [0.1] * 1000})
    x, columns = encode_columns(frame, "t")
    assert x.nonzero().tolist() == [[3, 0], [500, 0]]
    assert columns[1]["scale"] == 0.0


def test_how_it_was_made_makes_it_again():
    frame = pd.DataFrame(
        {"s": ["b", "", "a", "b"], "n": [1.0, 2.0, np.nan, 6.0], "f": [True, False, True, True]}
    )
    x, columns = encode_columns([frame[["s"]], frame[["n", "f"]]], "t")
    assert [c["name"] for c in columns] == ["s", "n", "f"]
    assert columns[0]["categories"] == ["a", "b"]
    again = (frame["n"].fillna(columns[1]["mean"]) - columns[1]["mean"]) / columns[1]["scale"]
    np.testing.assert_allclose(x[:, 2], again, rtol=1e-6)
    assert x[:, :2].tolist() == [[0, 1], [0, 0], [1, 0], [0, 1]]


def test_no_columns():
    with pytest.raises(InputError, match="t must have at least one feature column; got none"):
        encode_features(pd.DataFrame(index=range(3)), "t")
