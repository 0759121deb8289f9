"""Columns as features, labels as classes."""

import datetime
import decimal
import re

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError, InputWarning
from graphglow.graph.features import encode_alike, encode_columns, encode_labels


def encode(frame, **given):
    return encode_columns(frame, "t", **given)


def test_numbers_are_standardised_and_blanks_are_the_mean():
    x, columns = encode(pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [7, 7, 7]}))
    assert x.dtype == torch.float32
    assert x.tolist() == [[-1, 0], [1, 0], [0, 0]]
    assert columns == [
        {"name": "a", "mean": 2.0, "scale": 1.0},
        {"name": "b", "mean": 7.0, "scale": 0.0},
    ]


def test_text_booleans_and_categories_are_one_hot():
    frame = pd.DataFrame(
        {"s": ["b", None, "a"], "c": pd.Categorical([1, 2, 1]), "f": [True, False, True]}
    )
    assert encode(frame)[0].tolist() == [[0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 1]]


@pytest.mark.parametrize("cells", [["1", "-2.5", "", "1e3"], [1, "-2.5", None, "1e3"]])
def test_text_that_is_numbers(cells):
    _, (facts,) = encode(pd.DataFrame({"a": cells}))
    assert facts["mean"] == pytest.approx((1 - 2.5 + 1000) / 3)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.inf], "Column 'a' of t has a number that is too large in row 2 ('inf'). Clean"),
        ([1.0, 1e200], "a number that is too large in row 2 ('1e+200')"),
        (["1", "2", "x"], "has text among numbers in row 3 ('x')"),
        (["1", "x", None], "has text among numbers in row 2 ('x')"),
        (["2024-01-31", "2024-02-30"], "has text among dates in row 2 ('2024-02-30')"),
        (["2024-01-31", "soon"], "has text among dates in row 2 ('soon')"),
        ([3, 3], "No feature column of t differs between its 2 rows"),
        ([None, None], "No feature column of t differs between its 2 rows"),
    ],
)
def test_columns_that_are_no_features(column, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encode(pd.DataFrame({"a": column}))


@pytest.mark.parametrize("cells", [[[1], [2]], ["x", ["y"]], [b"x", b"y"]])
def test_cells_of_another_kind_are_left_out(cells):
    with pytest.warns(InputWarning, match="column 'a' of t is left out: features are numbers"):
        x, columns = encode(pd.DataFrame({"a": cells, "f": [1, 2]}))
    assert (x.shape, len(columns)) == ((2, 1), 1)


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
        assert encode(frame)[0].shape == (len(texts), 1 + len(set(texts)))
        return
    with pytest.warns(InputWarning, match=f"column 'a' of t is left out: {reason} are names or"):
        assert encode(frame)[0].shape == (len(texts), 1)


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
    x, columns = encode(pd.DataFrame({"a": dates}))
    assert x.tolist() == [[-1.0], [1.0], [0.0]]
    assert columns == [{"name": "a", "mean": 19724.0, "scale": 1.0, "date": True}]


def test_dates_beyond_nanoseconds():
    _, (facts,) = encode(pd.DataFrame({"a": ["9999-12-31", "9999-12-29"]}))
    assert facts["mean"] == (datetime.date(9999, 12, 30) - datetime.date(1970, 1, 1)).days


@pytest.mark.parametrize("cell", ["soon", "01/03/2021", "3 men", "$5", "12%", "1,000"])
def test_what_is_neither_a_number_nor_a_date_is_a_category(cell):
    _, columns = encode(pd.DataFrame({"a": [cell, "other"]}))
    assert columns == [{"name": "a", "categories": sorted([cell, "other"])}]


def test_exact_decimals():
    exact = [decimal.Decimal("0.5"), decimal.Decimal("1.5")]
    assert encode(pd.DataFrame({"a": exact}))[0].tolist() == [[-1.0], [1.0]]


def test_new_rows_are_encoded_alike():
    frame = pd.DataFrame(
        {"s": ["b", "", "a", "b"], "n": [1.0, 2.0, np.nan, 6.0], "f": [True, False, True, True]}
    )
    x, columns = encode(frame)
    assert torch.equal(encode_alike(frame, columns, "t"), x)
    new = pd.DataFrame({"s": ["c"], "n": [6.0], "f": ["true"]})
    with pytest.warns(InputWarning, match="'s' of new has categories that training has not seen"):
        row = encode_alike(new, columns, "new")
    assert row.tolist() == [[0, 0, x[3, 2].item(), 0, 1]]


def test_no_columns():
    assert encode(pd.DataFrame(index=range(3)))[0].shape == (3, 0)


@pytest.mark.filterwarnings("ignore:.* are -1, which means unlabelled")
@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        (["b", "a", "", "b"], [1, 0, -1, 1], ["a", "b"]),
        (["b ", " a", None, float("nan")], [1, 0, -1, -1], ["a", "b"]),
        ([0, 1, -1, 2], [0, 1, -1, 2], ["0", "1", "2"]),
        (["0", "1", "", "-1"], [0, 1, -1, -1], ["0", "1"]),
        ([0.0, 1.0, np.nan], [0, 1, -1], ["0", "1"]),  # integers with blanks, as pandas keeps them
        ([2019, 2021, 2019], [0, 1, 0], ["2019", "2021"]),
        ([True, False, True], [1, 0, 1], ["False", "True"]),
        (["1", "a", "b"], [0, 1, 2], ["1", "a", "b"]),  # most are text
        (["NA", "a", "null", "b"], [-1, 0, -1, 1], ["a", "b"]),
        ([str(2**53), str(2**53 + 1)], [0, 1], [str(2**53), str(2**53 + 1)]),
        (["", None], [-1, -1], []),
    ],
)
def test_labels_as_people_write_them(labels, y, names):
    got, class_names = encode_labels(labels, "labels")
    assert got.tolist() == y
    assert class_names == names


@pytest.mark.parametrize("bad", [2**70, 0.5, -2, float("inf"), "3+"])
def test_what_is_no_class(bad):
    said = f"Labels in l are text or whole numbers from 0 (-1 or blank: unlabelled), not '{bad}'"
    with pytest.raises(InputError, match=re.escape(said)):
        encode_labels([0, 1, bad], "l")


def test_a_label_that_means_unknown_is_pointed_out():
    with pytest.warns(InputWarning, match=r"'\?' in labels counts as a class"):
        encode_labels(["a", "?", "b"], "labels")


def sentences(count=60):
    """Texts of which every other one is of music; each says something of its own."""
    words = ("guitar song concert", "protein cell enzyme")
    return pd.DataFrame(
        {"about": [f"the {words[i % 2]} of sample {i * 7919}" for i in range(count)]}
    )


def test_text_becomes_the_weights_of_its_frequent_words():
    frame = sentences()
    x, (facts,) = encode(frame)
    assert facts["words"] == ["cell", "concert", "enzyme", "guitar", "protein", "sample", "song"]
    torch.testing.assert_close(x.norm(dim=1), torch.ones(60))
    assert float(x[0] @ x[2]) > 0.99
    assert float(x[0] @ x[1]) < 0.2  # they share "sample" alone, which all have
    new = pd.DataFrame({"about": ["a song, a guitar and a concert", ""]})
    again = encode_alike(new, [facts], "new")
    assert again[0].nonzero().flatten().tolist() == [1, 3, 6]
    assert not again[1].any()


def test_text_without_a_word_in_common_is_left_out():
    frame = pd.DataFrame({"a": range(30), "t": [f"u{i} v{i} w{i}" for i in range(30)]})
    with pytest.warns(InputWarning, match="no word in common"):
        x, _ = encode(frame)
    assert x.shape == (30, 1)
