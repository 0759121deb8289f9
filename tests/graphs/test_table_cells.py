"""Numbers and dates as people write them, against what a person would read."""

import datetime
import math

import pandas as pd
import pytest

from graphglow.graphs.table_cells import looks_like_dates, parse_dates, parse_numbers

NONE = math.nan


@pytest.mark.parametrize(
    ("cells", "sign", "values", "found"),
    [
        (["1", "-2.5", "", "1e3"], ".", [1, -2.5, NONE, 1000], "."),
        (["12%", "0.12", "7.5 %", ""], ".", [0.12, 0.12, 0.075, NONE], "."),
        (["1,000", "-2", "1,234,567.5"], ".", [1000, -2, 1234567.5], "."),
        (["1,000", "1,5"], ".", [1, 1.5], ","),  # 1,5 can be no thousands
        (["1,000,000", "1,5"], ".", [1000000, NONE], "."),
        (["0,5", "2"], ",", [0.5, 2], ","),
        (["1.234,5", "1.000", "2,5"], ",", [1234.5, 1000, 2.5], ","),
        (["1,5", "2.5"], ",", [1.5, 2.5], ","),
        (["1 000", "2\u00a0000", "3\u202f000", "4'000"], ".", [1000, 2000, 3000, 4000], "."),
        (["12,5%"], ",", [0.125], ","),
        (["$1,200.50", "-$3", "5 \u20ac", "$"], ".", [1200.5, -3, 5, NONE], "."),
        (["a,b", "x%", "3 men"], ".", [NONE, NONE, NONE], "."),
    ],
)
def test_numbers(cells, sign, values, found):
    got = parse_numbers(pd.Series(cells), sign)
    assert got.values.tolist() == pytest.approx(values, nan_ok=True)
    assert got.decimal == found


def days(*date: int) -> float:
    return float((datetime.date(*date) - datetime.date(1970, 1, 1)).days)


@pytest.mark.parametrize(
    ("cells", "order", "values"),
    [
        (["2021-03-01", "", "1960-01-01"], "iso", [days(2021, 3, 1), NONE, days(1960, 1, 1)]),
        (["01/03/2021", "13/04/2021"], "dmy", [days(2021, 3, 1), days(2021, 4, 13)]),
        (["1/3/2021", "04/13/2021"], "mdy", [days(2021, 1, 3), days(2021, 4, 13)]),
        (["01.03.2021", "2.3.2021"], "dmy", [days(2021, 3, 1), days(2021, 3, 2)]),
        (["1/3/2021 9:30 AM", "04/13/2021 17:05"], "mdy", [days(2021, 1, 3), days(2021, 4, 13)]),
        (["2021/3/1", ""], "ymd", [days(2021, 3, 1), NONE]),
        (["31-12-2020", "2020-01-01"], "dmy", [days(2020, 12, 31), days(2020, 1, 1)]),
        (["01/03/2021", "02/03/2021"], "unclear", [NONE, NONE]),
        (["13/03/2021", "03/13/2021"], "unclear", [NONE, NONE]),
        (["13/02/2021", "30/02/2021"], "dmy", [days(2021, 2, 13), NONE]),  # no such day
    ],
)
def test_dates(cells, order, values):
    text = pd.Series(cells)
    assert looks_like_dates(text).tolist() == [cell != "" for cell in cells]
    got = parse_dates(text)
    assert got.order == order
    assert got.days.tolist() == pytest.approx(values, nan_ok=True)


def test_the_order_of_training_holds():
    text = pd.Series(["01/03/2021", "2021-03-01"])
    assert parse_dates(text, "mdy").days.tolist() == [days(2021, 1, 3), days(2021, 3, 1)]
    assert parse_dates(text, "dmy").days.tolist() == [days(2021, 3, 1), days(2021, 3, 1)]


@pytest.mark.parametrize("cell", ["soon", "1/2", "2021", "01/03.2021", "1/2/21", "2021-3-1x"])
def test_what_is_no_date(cell):
    assert not looks_like_dates(pd.Series([cell]))[0]
