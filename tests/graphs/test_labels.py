import re

import numpy as np
import pytest

from graphglow.errors import InputError
from graphglow.graphs.labels import encode_labels


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


@pytest.mark.parametrize("bad", [0.5, -2, float("inf")])
def test_numbers_that_are_no_classes(bad):
    rule = "l of f must be text, or whole numbers from 0 (-1 or blank for unlabelled); got"
    with pytest.raises(InputError, match=re.escape(f"{rule} {bad:g} in row 3")):
        encode_labels([0, 1, bad], "l of f")


def test_numbers_and_text():
    rule = "l of f must be all numbers or all text (blank for unlabelled); got '3+' among numbers"
    with pytest.raises(InputError, match=re.escape(f"{rule} in row 4")):
        encode_labels([1, 2, "", "3+"], "l of f")
