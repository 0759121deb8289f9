import datetime
import re

import numpy as np
import pandas as pd
import pytest
import torch

from graphglow.errors import InputError
from graphglow.graphs import node_features
from graphglow.graphs.node_features import encode_features


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
        ([[1], [2]], "column 'a' of t must hold numbers, text or booleans; got list"),
        ([datetime.date(2024, 1, 1)] * 2, "must hold numbers, text or booleans; got date"),
    ],
)
def test_columns_that_are_no_features(column, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encode_features(pd.DataFrame({"a": column}), "t")


def test_names_are_no_categories(monkeypatch):
    monkeypatch.setattr(node_features, "MAX_CATEGORIES", 2)
    with pytest.raises(InputError, match="must have at most 2 distinct values to be a category"):
        encode_features(pd.DataFrame({"a": ["x", "y", "z"]}), "t")


def test_no_columns():
    with pytest.raises(InputError, match="t must have at least one feature column; got none"):
        encode_features(pd.DataFrame(index=range(3)), "t")
