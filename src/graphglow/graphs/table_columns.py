"""Which column is what: by the names people give them, or by those that the caller says.

No column is guessed by its place: a wrong guess would be a wrong graph without a word. The one
exception is a table of edges with two columns and perhaps ``weight``: it can mean nothing else.
"""

import difflib
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from graphglow.errors import InputError, InputWarning

NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "node_id", "node"),
    "label": ("label", "y", "class"),
    "split": ("split",),
    "source": ("source", "from", "src"),
    "target": ("target", "to", "dst"),
    "weight": ("weight",),
}
"""Role of a column -> what it may be called, in upper or lower case."""
OF_ONE_TABLE = (("id", "label", "split"), ("source", "target", "weight"))
LEAVE_OUT = "leave_out"
Columns = Mapping[str, str | Sequence[str]]
"""Role -> name of the column; ``leave_out`` -> names of columns that are not to be read."""


class Chosen(NamedTuple):
    """What the caller says of columns."""

    roles: dict[str, str]
    leave_out: tuple[str, ...]


def check_roles(columns: Columns | None) -> Chosen:
    """Return what ``columns`` says if its keys are roles; ``None`` is no choice at all."""
    roles: dict[str, str] = {}
    leave_out: tuple[str, ...] = ()
    if not isinstance(columns, Mapping | None):
        raise InputError(
            f'columns must map roles to names ({{"id": "person"}}); got {type(columns).__name__}'
        )
    for role, name in (columns or {}).items():
        names = (name,) if isinstance(name, str) else tuple(name or ())
        if role == LEAVE_OUT and all(isinstance(one, str) for one in names):
            leave_out = names
        elif role in NAMES and isinstance(name, str):
            roles[role] = name
        else:
            raise InputError(
                f"columns must give names to some of {', '.join(NAMES)}, or name those to "
                f"{LEAVE_OUT}; got {role!r}: {name!r}"
            )
    for role, name in roles.items():
        if name in leave_out:
            raise InputError(
                f"columns must not give a role to what is left out; got {name!r} in both"
            )
        other = next((o for o in _beside(role) if roles.get(o) == name), None)
        if other is not None:
            raise InputError(
                f"columns must name a column for one role only; got {name!r} as {role} and {other}"
            )
    return Chosen(roles, leave_out)


def _beside(role: str) -> list[str]:
    """The other roles of the table that ``role`` is one of."""
    return [o for roles in OF_ONE_TABLE if role in roles for o in roles if o != role]


def find_column(role: str, columns: Sequence[str], what: str, chosen: dict[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        if chosen[role] not in columns:
            raise InputError(
                f"{what} must have the column {chosen[role]!r}, chosen as {role}; got "
                f"{listed(columns, [chosen[role]])}"
            )
        return chosen[role]
    taken = {chosen.get(other) for other in _beside(role)}
    found = [name for name in columns if name.lower() in NAMES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: NAMES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        raise InputError(
            f"{what} must have one {role} column, called {', '.join(NAMES[role])}; got "
            f"{' and '.join(found)}"
        )
    return found[0] if found else None


def need_column(
    role: str, columns: Sequence[str], what: str, chosen: dict[str, str], why: str = ""
) -> str:
    """The column of that role, or one sentence that says what it may be called."""
    name = find_column(role, columns, what, chosen)
    if name is None:
        raise InputError(
            f"{what} must have {'an' if role == 'id' else 'a'} {role} column, called "
            f"{', '.join(NAMES[role])}{why}; got the columns {listed(columns, NAMES[role])} "
            f"(columns {role}=NAME can say which it is)"
        )
    return name


def end_columns(
    columns: Sequence[str], what: str, chosen: dict[str, str]
) -> tuple[list[str], bool]:
    """The two ends of an edge, and whether their names say so.

    ``source`` goes with ``target``, ``from`` with ``to``, ``src`` with ``dst``; two columns alone,
    beside ``weight``, may have any name.
    """
    if "source" in chosen or "target" in chosen:
        return [need_column(role, columns, what, chosen) for role in ("source", "target")], True
    columns = [name for name in columns if name != chosen.get("weight")]
    lower = {name.lower(): name for name in columns}
    for pair in zip(NAMES["source"], NAMES["target"], strict=True):
        if set(pair) <= set(lower):
            return [lower[name] for name in pair], True
    others = [name for name in columns if name.lower() != "weight" or "weight" in chosen]
    if len(others) != 2:
        raise InputError(
            f"{what} must have the columns source and target; got "
            f"{listed(columns, ['source', 'target'])} (columns source=NAME target=NAME can say "
            "which they are)"
        )
    return others, False


def note_misspelt(role: str, columns: Sequence[str], what: str, instead: str) -> None:
    """Warn of a column whose name is nearly that of a role which no column has."""
    lower = {name.lower(): name for name in columns}
    for name in difflib.get_close_matches(role, lower, n=1, cutoff=0.8):
        warnings.warn(
            f"column {lower[name]!r} of {what} {instead}; call it {role} if it is meant so",
            InputWarning,
            stacklevel=2,
        )


def listed(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """The columns, and which of them has a name most like one that is wanted."""
    text = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    lower = {name.lower(): name for name in columns}
    near = [m for name in wanted for m in difflib.get_close_matches(name.lower(), lower, 1, 0.65)]
    return f"{text or 'none'} (nearest: {lower[near[0]]!r})" if near else text or "none"
