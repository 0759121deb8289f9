"""How a nodes table became features, as a saved file says it: nobody trusts a file."""

from collections.abc import Iterable
from typing import Any

from torch_geometric.data import Data

from graphglow.errors import InputError

RULE = "feature_columns of the graph must say how its table became features"


def check_feature_columns(data: Data) -> None:
    """Raise unless ``data.feature_columns``, if there is any, is what a nodes table made.

    ``{"columns": [...], "chosen": {role: name}}``; each column has a ``name`` and either
    ``categories`` or a ``mean`` and a ``scale``, see :mod:`graphglow.graphs.new_tables`.
    """
    told = data.get("feature_columns")
    if told is None:
        return
    if not isinstance(told, dict):
        raise InputError(f"{RULE}; got {type(told).__name__}")
    columns, chosen = told.get("columns"), told.get("chosen")
    if columns is not None and (not isinstance(columns, list) or not columns):
        raise InputError(f"{RULE}; got columns of type {type(columns).__name__}, or none")
    if chosen is not None and not (isinstance(chosen, dict) and _all_text(chosen.values())):
        raise InputError(f"{RULE}; got a chosen column without a name")
    for column in columns or ():
        if not isinstance(column, dict) or not isinstance(column.get("name"), str):
            raise InputError(f"{RULE}; got a column without a name")
        if not (_is_text(column) if "categories" in column else _is_number(column)):
            raise InputError(f"{RULE}; got something else for the column {column['name']!r:.80}")


def _is_text(column: dict[str, Any]) -> bool:
    values = column["categories"]
    return isinstance(values, list) and _all_text(values) and len(set(values)) == len(values)


def _is_number(column: dict[str, Any]) -> bool:
    return all(type(column.get(name)) in (int, float) for name in ("mean", "scale")) and (
        column.get("decimal", ".") in (".", ",") and isinstance(column.get("date", ""), str | bool)
    )


def _all_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
