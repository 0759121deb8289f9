"""Which column is what: by the names people give them, or by those that the caller says.

No column is guessed by its place: a wrong guess would be a wrong graph without a word.
"""

import difflib
import warnings
from collections.abc import Container, Mapping, Sequence

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


def check_roles(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``columns`` as a dict if its keys are roles; ``None`` is no choice at all."""
    chosen = dict(columns or {})
    for role, name in chosen.items():
        if role not in NAMES or not isinstance(name, str):
            raise InputError(
                f"columns must give names to some of {', '.join(NAMES)}; got {role!r}: {name!r}"
            )
    return chosen


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
    found = [name for name in columns if name.lower() in NAMES[role]]
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
            f"columns {listed(columns, NAMES[role])}"
        )
    return name


def end_columns(
    columns: Sequence[str], what: str, chosen: dict[str, str]
) -> tuple[list[str], bool]:
    """The two ends of an edge, and whether their names say so.

    ``source`` goes with ``target``, ``from`` with ``to``, ``src`` with ``dst``; two columns alone,
    beside ``weight``, may have any name.
    """
    if "source" in chosen and "target" in chosen:
        return [chosen_column(role, columns, what, chosen) for role in ("source", "target")], True
    lower = {name.lower(): name for name in columns}
    for pair in zip(NAMES["source"], NAMES["target"], strict=True):
        if set(pair) <= set(lower):
            return [lower[name] for name in pair], True
    others = [name for name in columns if name != chosen.get("weight") and name.lower() != "weight"]
    if len(others) != 2:
        raise InputError(
            f"{what} must have the columns source and target; got "
            f"{listed(columns, ['source', 'target'])}"
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
    near = [m for name in wanted for m in difflib.get_close_matches(name.lower(), lower, 1, 0.6)]
    return f"{text or 'none'} (nearest: {lower[near[0]]!r})" if near else text or "none"
