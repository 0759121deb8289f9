"""The exception and the warning for users, and checks of arguments that raise it.

The exception is a ``ValueError``, so Python callers need not know it; the command line turns it
into one line on standard error and exit status 2.
"""

import difflib
import math
import operator
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

C = TypeVar("C")
LARGEST_INTEGER = 2**32 - 1
"""Above this no size, count, seed or number of epochs makes sense."""
LARGEST_RATE = 1e30  # above, the optimizer's own arithmetic overflows


class InputError(ValueError):
    """Bad input, in one sentence: what is wrong, then what to do."""


class StoppedError(Exception):
    """A job could not go on, and nothing that it was given is to blame; one sentence, status 1."""


class InputWarning(UserWarning):
    """Something of the input is not used, in one sentence; the rest is."""


def warn(sentence: str) -> None:
    """Warn that something of the input is not used, or read in a way that might not be meant."""
    warnings.warn(sentence, InputWarning, stacklevel=3)


def did_you_mean(name: object, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return `` (nearest: NAME)`` for the known name a mistyped one may mean; "" if none is."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=cutoff)
    return f" (nearest: {near[0]})" if near else ""


def with_settings(config: C, settings: Mapping[str, Any]) -> C:
    """Return ``config`` with some settings replaced by name; an unknown name is refused.

    A mapping replaces settings of a config inside.
    """
    if not settings:
        return config
    known = [field.name for field in fields(config) if field.init]  # type: ignore[arg-type]
    for name in settings:
        if name not in known:
            raise InputError(
                f"{type(config).__name__} has no setting {name!r}{did_you_mean(name, known)}: "
                f"it has {', '.join(known)}"
            )
    inside = {
        name: with_settings(getattr(config, name), value)
        for name, value in settings.items()
        if isinstance(value, Mapping) and is_dataclass(getattr(config, name))
    }
    changed: C = replace(config, **{**settings, **inside})  # type: ignore[type-var]
    return changed


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which JSON can hold; anything else as it is."""
    kinds = {"b": bool, "i": int, "u": int, "f": float}
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    return kinds[kind](value) if kind in kinds and value.shape == () else value


def at_least(name: str, value: int, low: int) -> int:
    """Return ``value`` as a Python integer; raise unless it is one, and ``low`` or more."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be an integer; got {value!r}")
    value = operator.index(value)
    if value < low:
        raise InputError(f"{name} must be >= {low}; got {value}")
    if value > LARGEST_INTEGER:
        raise InputError(f"{name} must be <= {LARGEST_INTEGER}; got {value}")
    return value


def number(name: str, value: float, low: float = -math.inf, high: float = math.inf) -> float:
    """Return ``value``; raise unless it is a number, and lies in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} must be a number; got {value!r}")
    if not low <= value <= high:
        raise InputError(f"{name} must lie in [{low:g}, {high:g}]; got {value}")
    return value


def one_of(name: str, value: str, known: Collection[str]) -> None:
    """Raise unless ``value`` is a known choice; the nearest one is named."""
    if not isinstance(value, str) or value not in known:
        got = f"got {value!r}{did_you_mean(value, known)}"
        raise InputError(f"{name} must be one of {', '.join(known)}; {got}")
