"""Columns of a table as node features, labels as classes, and columns that give labels away.

Numbers and ISO dates are standardised, categories become one column of 0 and 1 per value. Text of
several words becomes TF-IDF weights of its most frequent words; names are left out with a warning.

How a column was encoded, so that new nodes are encoded alike, is one plain dict per column, in the
order of the features: ``{"name", "mean", "scale"}`` (scale 0 if constant; with ``"date": True`` for
days since 1970), ``{"name", "categories"}``, or ``{"name", "words", "idf"}``.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError, warn

MISSING = ["", "nan", "NaN", "NA", "N/A", "n/a", "null", "NULL", "None"]
"""What counts as blank, except in ids, which are text as written."""
MAX_CATEGORIES = 1000
"""A text column with more distinct values is left out."""
FEW_CATEGORIES = 20
"""So is one with more than these, if they are more than half as many as its filled cells."""
FEWEST_WORDS, MOST_WORDS = 3, 500
"""Words of a filled cell, on average, from which a column is text; words that become features."""
LARGEST = 1e38
"""Magnitude of a number that float32 still holds."""
UNKNOWN_WORDS = ("?", "-", "unknown", "unlabelled", "unlabeled")
"""Labels that more often mean that none is known."""
FEWEST_ROWS, MOST_ROWS = 30, 5000
"""Training nodes on which a leak is looked for: of fewer nothing can be said."""
LEAK_ACCURACY, LEAK_ERRORS = 0.98, 0.2
"""A leak is at least so accurate, with at most this share of the majority class's errors."""


def encode_columns(
    frame: pd.DataFrame, what: str, categories: Sequence[str] = ()
) -> tuple[Tensor, list[dict[str, Any]]]:
    """Turn a table, ``what`` in errors, into features; also return how.

    A missing number is the mean of its column; a missing category is a row of zeros. A constant
    column of numbers becomes zeros. Columns in ``categories`` are never taken for numbers.

    Shapes:
        N rows -> x [N, D]; D is 0 without any column
    """
    described = (_describe(frame[name], what, name in categories) for name in frame.columns)
    columns = [facts for facts in described if facts is not None]
    if not any(encoded_width(facts) for facts in columns):
        return torch.empty(len(frame), 0), []
    x = encode_alike(frame, columns, what)
    if not x.any():
        raise InputError(
            f"No feature column of {what} differs between its {len(frame)} rows, so that nodes "
            "cannot be told apart. Add a column that does."
        )
    return x, columns


def encode_alike(frame: pd.DataFrame, columns: Sequence[Mapping[str, Any]], what: str) -> Tensor:
    """Encode rows as ``columns`` say: M rows -> [M, D]."""
    parts = [np.zeros((len(frame), 0), np.float32)]
    for facts in columns:
        name = facts["name"]
        if "categories" in facts:
            text = _filled(frame[name])
            if set(facts["categories"]) <= {"True", "False"}:  # a file may write them otherwise
                text = text.str.capitalize()
            code = pd.Index(facts["categories"], dtype=object).get_indexer(text)
            unseen = text[(code < 0) & (text != "")]
            if len(unseen):
                warn(
                    f"column {name!r} of {what} has categories that training has not seen in "
                    f"{len(unseen)} of {len(text)} rows, such as {unseen.iloc[0][:40]!r}; they "
                    "count as blanks"
                )
            parts.append((code[:, None] == np.arange(encoded_width(facts))).astype(np.float32))
        elif "words" in facts:
            weights = _vectorizer(facts["words"])
            weights.idf_ = np.array(facts["idf"])
            parts.append(weights.transform(_filled(frame[name])).toarray().astype(np.float32))
        else:
            values = numbers_of(frame[name], what, is_date=facts.get("date", False))
            with np.errstate(over="ignore"):  # infinity, which the check refuses
                scaled = (values - facts["mean"]) / (facts["scale"] or np.inf)
                scaled = np.where(np.isnan(scaled), 0, scaled).astype(np.float32)
            parts.append(scaled[:, None])
    return torch.from_numpy(np.concatenate(parts, axis=1))


def _describe(column: pd.Series, what: str, is_category: bool) -> dict[str, Any] | None:
    """Say how a column is to be encoded; None if it is left out."""
    kinds, name = pd.api.types, str(column.name)
    is_category |= kinds.is_bool_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype)
    is_date = not is_category and kinds.is_datetime64_any_dtype(column)
    is_number = not is_category and kinds.is_numeric_dtype(column)
    if not (is_category or is_date or is_number):
        plain = (str, Real, np.bool_, Decimal, date, type(None), type(pd.NA))
        other = next((cell for cell in column if not isinstance(cell, plain)), None)
        if other is not None:
            warn(
                f"column {name!r} of {what} is left out: features are numbers, dates, text or "
                f"booleans, not {type(other).__name__}"
            )
            return None
        text = _filled(column)
        present = text[text != ""]  # if most are numbers, or dates, all must be
        is_number = 2 * _parse(text, False)[1].sum() <= len(present)
        is_date = not is_number and 2 * _parse(text, True)[1].sum() <= len(present)
        different = 0 if is_number or is_date else present.nunique()
        if different > MAX_CATEGORIES or FEW_CATEGORIES < different > len(present) / 2:
            reason = (
                f"{different} different texts in {len(present)} filled cells are names or "
                "comments, not categories (dates are written 2024-01-31)"
            )
            if present.str.split().str.len().mean() >= FEWEST_WORDS:
                weights, reason = _vectorizer(None), "its texts have no word in common"
                with suppress(ValueError):  # no word is in two cells
                    words = list(map(str, weights.fit(present).get_feature_names_out()))
                    return {"name": name, "words": words, "idf": weights.idf_.tolist()}
            warn(f"column {name!r} of {what} is left out: {reason}")
            return None
    if not (is_date or is_number):
        return {"name": name, "categories": sorted(set(_filled(column)) - {""})}
    values = numbers_of(column, what, is_date=is_date)
    known = values[~np.isnan(values)] if not np.isnan(values).all() else np.zeros(1)
    scale = 0.0 if known.min() == known.max() else float(known.std())
    facts = {"name": name, "mean": float(known.mean()), "scale": scale}
    return facts | ({"date": True} if is_date else {})


def _vectorizer(words: Sequence[str] | None) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # a second to import

    return TfidfVectorizer(
        vocabulary=words, max_features=MOST_WORDS, min_df=1 if words else 2, sublinear_tf=True,
        stop_words="english", strip_accents="unicode",
    )  # fmt: skip


def encoded_width(facts: Mapping[str, Any]) -> int:
    """Return how many features a column is."""
    return len(facts.get("categories", facts.get("words", (None,))))


def column_names(data: Data) -> list[str]:
    """Name each feature, as ``job=cook`` or ``about: guitar``; nothing without names."""
    names = []
    for facts in data.get("feature_columns", {}).get("columns", ()):
        name = facts["name"]
        names += [f"{name}={value}" for value in facts.get("categories", ())]
        names += [f"{name}: {word}" for word in facts.get("words", ())]
        names += [] if {"categories", "words"} & {*facts} else [name]
    return names


def numbers_of(column: pd.Series, what: str, *, is_date: bool = False) -> np.ndarray:
    """Read a column as finite numbers, or dates as days since 1970; NaN for blanks: [N]."""
    values, bad = _parse(column, is_date)
    _refuse(bad, column, what, "text among dates" if is_date else "text among numbers")
    _refuse(np.abs(values) > LARGEST, column, what, "a number that is too large")
    return values


def _parse(column: pd.Series, is_date: bool) -> tuple[np.ndarray, np.ndarray]:
    """The numbers or days of a column, and which of its filled cells are none: [N], [N]."""
    if pd.api.types.is_numeric_dtype(column) and not is_date:
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), bool)
    text = _filled(column)
    if is_date:
        given = column if pd.api.types.is_datetime64_any_dtype(column) else text.replace("", None)
        when = pd.to_datetime(given, format="ISO8601", utc=True, errors="coerce")
        start = pd.Timestamp(0, unit="s", tz="UTC").as_unit("s")  # nanoseconds end in 2262
        values = (when - start) / pd.Timedelta(days=1).as_unit("s")
    else:
        values = pd.to_numeric(text, errors="coerce")
    values = values.to_numpy(np.float64, na_value=np.nan)
    return values, np.isnan(values) & (text != "").to_numpy(bool)


def _refuse(bad: np.ndarray, column: pd.Series, what: str, problem: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"Column {column.name!r} of {what} has {problem} in row {row + 1} "
            f"({text_of(column.iloc[[row]]).iloc[0][:40]!r}). Clean it, or leave the column out: "
            f'--columns leave_out={column.name} (in Python load_graph(.., columns={{"leave_out": '
            f"[{str(column.name)!r}]}}))."
        )


def text_of(column: pd.Series) -> pd.Series:
    """Stripped text, empty for blanks; whole numbers that pandas keeps as floats are whole."""
    if pd.api.types.is_float_dtype(column):  # integers with blanks, as pandas keeps them
        known = column.dropna()
        if (known == known.round()).all() and (known.abs() < 2**53).all():
            column = column.astype("Int64")
    text = column.astype(object).where(column.notna(), "")
    return text.map(str).str.strip().astype(object)


def _filled(column: pd.Series) -> pd.Series:
    """Stripped text where words for nothing are blanks too."""
    text = text_of(column)
    return text.where(~text.isin(MISSING), "")


def encode_labels(labels: Any, what: str) -> tuple[Tensor, list[str]]:
    """Number the classes; blank, missing and -1 mean unlabelled.

    Labels are numbers if at least half of them are; then all must be whole.

    Returns:
        ``y`` [N] with -1 for unlabelled, and the class names in order; numbers as text.
    """
    text = _filled(pd.Series(labels).reset_index(drop=True))
    classes = text[text != ""]
    number = pd.to_numeric(classes, errors="coerce")
    if 2 * number.isna().sum() <= len(classes):
        bad = ~((number >= -1) & (number % 1 == 0) & (number.astype(float) < 2.0**63))
        if bad.any():
            raise InputError(
                f"Labels in {what} are text or whole numbers from 0 (-1 or blank: unlabelled), not "
                f"{classes[bad].iloc[0][:40]!r} in row {classes.index[bad][0] + 1}. Cut a number "
                "that is to be predicted into classes, as pandas.qcut does."
            )
        if bool((number < 0).any()):
            warn(f"{int((number < 0).sum())} labels in {what} are -1, which means unlabelled")
        classes = number.astype(np.int64)[number >= 0]
    odd = classes[classes.astype(str).str.strip().str.lower().isin(UNKNOWN_WORDS)]
    if len(odd):
        warn(f"{odd.iloc[0]!r} in {what} counts as a class; leave it blank if it means unlabelled")
    codes, names = pd.factorize(classes, sort=True)
    y = np.full(len(text), -1, dtype=np.int64)
    y[classes.index] = codes
    return torch.from_numpy(y), [str(name) for name in names]


def warn_of_leaks(data: Data) -> None:
    """Warn of columns, of a table or of attributes, that alone all but determine the labels."""
    columns = data.get("feature_columns", {}).get("columns")
    nodes = data.train_mask.nonzero()[:, 0]
    nodes = nodes[:: max(1, -(-len(nodes) // MOST_ROWS))]
    y = np.unique(data.y[nodes].numpy(), return_inverse=True)[1]
    if not columns or len(y) < FEWEST_ROWS or y.max() == 0:
        return
    from sklearn.tree import DecisionTreeClassifier

    parts = torch.split(data.x[nodes], [encoded_width(facts) for facts in columns], dim=1)
    leaks = []
    for facts, part in zip(columns, parts, strict=True):
        values, leaves = part.numpy(), int(y.max()) + 1  # as many intervals as there are classes
        if "categories" in facts:  # numbered from 1; a blank is a category too
            leaves = max(2, values.shape[1] + 1)
            values = (values @ np.arange(1, values.shape[1] + 1))[:, None]
        known = np.concatenate([values, values == 0], 1)  # 0 is a blank, or the mean
        tree = DecisionTreeClassifier(max_leaf_nodes=leaves, min_samples_leaf=2, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about classes that few nodes have
            accuracy = tree.fit(known, y).score(known, y)
        if accuracy >= needed_accuracy(y):
            leaks.append(f"{facts['name']!r} ({accuracy:.1%})")
    if leaks:
        what, say = ("columns", "each say") if len(leaks) > 1 else ("column", "says")
        warn(
            f"{what} {', '.join(leaks)} of {data.get('name') or 'the graph'} alone {say} the label "
            "of so many training nodes; what is not known before the label is left out: --columns "
            'leave_out=NAME (in Python load_graph(.., columns={"leave_out": ["NAME"]}))'
        )


def needed_accuracy(y: np.ndarray) -> float:
    """The accuracy from which a column alone is a leak, given the training labels [n]."""
    majority = float(np.bincount(y).max()) / len(y)
    return max(LEAK_ACCURACY, 1 - LEAK_ERRORS * (1 - majority))
