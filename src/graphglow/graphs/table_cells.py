"""Cells as people write them: numbers with percent signs or thousands, dates in several orders.

A date such as ``03/04/2021`` is read only where some other cell of its column says which of the two
is the day; where none does, nothing is guessed.
"""

from typing import Any, NamedTuple

import numpy as np

ISO = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?"
TIME = r"([ T]\d{1,2}:\d{2}.*)?"
YEAR_FIRST = r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})" + TIME
YEAR_LAST = r"(?P<a>\d{1,2})(?P<sep>[/.-])(?P<b>\d{1,2})(?P=sep)(?P<last>\d{4})" + TIME
MONEY = "[$\u00a3\u00a5\u20ac]"
COMMAS = r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"
POINTS = r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?"
GAP = r"(?<=\d)[\u0020\u00a0\u202f'](?=\d{3}(\D|$))"
"""What else parts thousands: a space, plain or narrow, or an apostrophe."""
UNCLEAR = "unclear"
EXAMPLES = {"iso": "2024-01-31", "ymd": "2024/01/31", "dmy": "31/01/2024", "mdy": "01/31/2024"}
"""Order of the parts of a date -> such a date."""


class Numbers(NamedTuple):
    """A column of numbers.

    Shapes:
        values [N] (float64), NaN for blanks and for what is no number
    """

    values: np.ndarray
    decimal: str
    """The decimal sign: the file's, or a comma where the column can be read in no other way."""


def parse_numbers(text: Any, decimal: str) -> Numbers:
    """Numbers as they are written.

    ``12%`` is 0.12, ``1,000`` is 1000 and ``$5`` is 5. A comma is a decimal one where ``decimal``
    says so, and where the commas of a column cannot part thousands (``1,5``); beside a decimal
    comma points part thousands.

    Args:
        text: A pandas Series of stripped text, blanks as empty text.
        decimal: The decimal sign of the file.
    """
    import pandas as pd

    text = text.astype(object)
    plain: np.ndarray = pd.to_numeric(text, errors="coerce").to_numpy(np.float64)
    odd = text[np.isnan(plain)].str.contains(f"[0-9][%,' \u00a0\u202f]|{MONEY}")
    if not odd.any():
        return Numbers(plain, decimal)
    percent = text.str.endswith("%").to_numpy(bool)
    bare = text.str.removesuffix("%").str.rstrip().str.replace(GAP, "", regex=True)
    bare = bare.str.replace(rf"^([+-]?){MONEY} ?(?=[0-9])|(?<=[0-9]) ?{MONEY}$", r"\1", regex=True)
    with_comma = bare[bare.str.contains(",", regex=False)]
    if len(with_comma):
        thousands = with_comma.str.fullmatch(COMMAS).all()
        if not thousands and with_comma.str.fullmatch(r"[+-]?[\d.]+,\d+").all():
            decimal = ","
        bare = _with_points(bare, decimal)
    numbers: np.ndarray = pd.to_numeric(bare, errors="coerce").to_numpy(np.float64)
    return Numbers(np.where(percent, numbers / 100, numbers), decimal)


def _with_points(text: Any, decimal: str) -> Any:
    """Thousands closed up, and a point as the decimal sign."""
    if decimal != ",":
        return text.mask(text.str.fullmatch(COMMAS), text.str.replace(",", "", regex=False))
    with_point = text[text.str.contains(".", regex=False)]
    if with_point.str.fullmatch(POINTS).all():
        text = text.str.replace(".", "", regex=False)
    return text.str.replace(",", ".", regex=False)


class Dates(NamedTuple):
    """A column of dates.

    Shapes:
        days [N] (float64), since 1970, NaN for blanks and for what is no date
    """

    days: np.ndarray
    order: str
    """One of ``EXAMPLES``, or ``unclear`` where day and month cannot be told apart."""


def looks_like_dates(text: Any) -> np.ndarray:
    """Which cells are dates in any of the ways that are known: [N]."""
    known: np.ndarray = (
        text.astype(object).str.fullmatch(f"{ISO}|{YEAR_FIRST}|{YEAR_LAST}").to_numpy(bool)
    )
    return known


def parse_dates(text: Any, order: str | None = None) -> Dates:
    """Dates as days.

    Points mean that the day comes first (``31.01.2024``); with slashes or dashes a number above 12
    says which is the day. A time of day counts behind ``2024-01-31`` only.

    Args:
        text: A pandas Series of stripped text, blanks as empty text.
        order: That of training, if it is known; else it is found.
    """
    text = text.astype(object)
    last, days = text.str.extract(YEAR_LAST), _iso_days(text)
    order = order or _order(text, last)
    if order == "ymd":
        parts = text.str.extract(YEAR_FIRST)
        year, month, day = parts["year"], parts["month"], parts["day"]
    elif order in ("dmy", "mdy"):
        year = last["last"]
        day, month = (last["a"], last["b"]) if order == "dmy" else (last["b"], last["a"])
    else:
        return Dates(days, order)
    rewritten = (year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2)).fillna("")
    return Dates(np.where(np.isnan(days), _iso_days(rewritten), days), order)


def _order(text: Any, last: Any) -> str:
    if last["last"].notna().any():
        first, second = (last[part].dropna().astype(int).max() for part in ("a", "b"))
        if (last["sep"].dropna() == ".").all() or (first > 12 and second <= 12):
            return "dmy"
        return "mdy" if second > 12 and first <= 12 else UNCLEAR
    return "ymd" if text.str.fullmatch(YEAR_FIRST).any() else "iso"


def _iso_days(text: Any) -> np.ndarray:
    import pandas as pd

    written = text.where(text.str.fullmatch(ISO), None)
    return days_of(pd.to_datetime(written, format="ISO8601", utc=True, errors="coerce"))


def days_of(dates: Any) -> np.ndarray:
    """Dates of pandas as days since 1970, NaN for blanks: [N] (float64)."""
    import pandas as pd

    start = pd.Timestamp(0, unit="s", tz=dates.dt.tz).as_unit("s")  # nanoseconds end in 2262
    days = (dates - start) / pd.Timedelta(days=1).as_unit("s")
    values: np.ndarray = days.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def text_of(column: Any) -> Any:
    """Stripped text, empty for blanks; whole numbers that pandas keeps as floats are whole."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column):  # integers with blanks, as pandas keeps them
        whole = column.dropna()
        if (whole == whole.round()).all() and (whole.abs() < 2**53).all():
            column = column.astype("Int64")
    if isinstance(column.dtype, pd.StringDtype):  # the common case, and much faster
        return column.fillna("").str.strip().astype(object)
    return column.astype(object).where(column.notna(), "").astype(str).str.strip().astype(object)
