"""Which column is what: by the names people give them, or by those that the caller says.

No column is guessed by its place: a wrong guess would be a wrong graph without a word. The one
exception is a table of edges with two columns and perhaps ``weight``: it can mean nothing else.
"""

import difflib
import warnings
from collections.abc import Container, Mapping, Sequence
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
    both = [name for name in leave_out if name in roles.values()]
    if both:
        raise InputError(
            f"columns must not give a role to what is left out; got {both[0]!r} in both"
        )
    for role, name in roles.items():
        others = [other for other in _with(role) if other != role and roles.get(other) == name]
        if others:
            raise InputError(
                f"columns must name a column for one role only; got {name!r} as {role} and "
                f"{others[0]}"
            )
    return Chosen(roles, leave_out)


def _with(role: str) -> tuple[str, ...]:
    """All roles of the table that ``role`` is one of."""
    return next(roles for roles in OF_ONE_TABLE if role in roles)


def check_left_out(names: Sequence[str], columns: Sequence[str], what: str) -> None:
    """Raise where a column that is to be left out is not there: it may be misspelt."""
    for name in names:
        if name not in columns:
            raise InputError(
                f"{what} must have the column {name!r}, which is to be left out; got "
                f"{listed(columns, [name])}"
            )


def chosen_column(role: str, columns: Sequence[str], what: str, chosen: dict[str, str]) -> str:
    """The column that the caller said is ``role``."""
    if chosen[role] in columns:
        return chosen[role]
    raise InputError(
        f"{what} must have the column {chosen[role]!r}, chosen as {role}; got "
        f"{listed(columns, [chosen[role]])}"
    )


def find_column(role: str, columns: Sequence[str], what: str, chosen: dict[str, str]) -> str | None:
    """The column of that role, if there is one; an error if there are several."""
    if role in chosen:
        return chosen_column(role, columns, what, chosen)
    taken = {chosen.get(other) for other in _with(role)}
    found = [name for name in columns if name.lower() in NAMES[role] and name not in taken]
    if role == "id":  # "node" may be a feature beside "id"
        found = sorted(found, key=lambda name: NAMES["id"].index(name.lower()))[:1]
    if len(found) > 1:
        raise InputError(
            f"{what} must have one {role} column, called {called(role)}; got {' and '.join(found)}"
        )
    return found[0] if found else None


def need_column(
    role: str, columns: Sequence[str], what: str, chosen: dict[str, str], why: str = ""
) -> str:
    """The column of that role, or one sentence that says what it may be called."""
    name = find_column(role, columns, what, chosen)
    if name is None:
        article = "an" if role == "id" else "a"
        raise InputError(
            f"{what} must have {article} {role} column, called {called(role)}{why}; got the "
            f"columns {listed(columns, NAMES[role])} (columns {role}=NAME can say which it is)"
        )
    return name


def end_columns(
    columns: Sequence[str],
    what: str,
    chosen: dict[str, str],
    leave_out: Container[str] = (),
) -> tuple[list[str], bool]:
    """The two ends of an edge, and whether their names say so.

    ``source`` goes with ``target``, ``from`` with ``to``, ``src`` with ``dst``; two columns alone,
    beside ``weight``, may have any name.
    """
    if "source" in chosen and "target" in chosen:
        return [chosen_column(role, columns, what, chosen) for role in ("source", "target")], True
    if "source" in chosen or "target" in chosen:
        one, other = ("source", "target") if "source" in chosen else ("target", "source")
        ends = {one: chosen_column(one, columns, what, chosen)}
        ends[other] = need_column(other, columns, what, chosen)
        return [ends["source"], ends["target"]], True
    columns = [c for c in columns if c not in leave_out and c != chosen.get("weight")]
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


def refuse_headerless(ends: Sequence[str], ids: Container[str], what: str) -> None:
    """Raise where what stands for the names of the two columns are ids of nodes: an edge."""
    if all(name in ids for name in ends):
        raise InputError(
            f"{what} must start with a header such as source,target; got the edge "
            f"{ends[0]}, {ends[1]}"
        )


def note_misspelt(role: str, columns: Sequence[str], what: str, instead: str) -> None:
    """Warn of a column whose name is nearly that of a role which no column has."""
    if any(name.lower() in NAMES[role] for name in columns):
        return
    for name in difflib.get_close_matches(role, [c.lower() for c in columns], n=1, cutoff=0.8):
        given = next(c for c in columns if c.lower() == name)
        warnings.warn(
            f"column {given!r} of {what} {instead}; call it {role} if it is meant so",
            InputWarning,
            stacklevel=2,
        )


def called(role: str) -> str:
    return ", ".join(NAMES[role])


def listed(columns: Sequence[str], wanted: Sequence[str]) -> str:
    """The columns, and which of them has a name most like one that is wanted."""
    text = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    lower = {name.lower(): name for name in columns}
    near = [m for name in wanted for m in difflib.get_close_matches(name.lower(), lower, 1, 0.65)]
    return f"{text or 'none'} (nearest: {lower[near[0]]!r})" if near else text or "none"
