"""The exception and the warning for users: about a file, a graph or a setting.

The exception is a ``ValueError``, so Python callers need not know it; the command line turns it
into one line on standard error and exit status 2.
"""

import difflib
import warnings
from collections.abc import Iterable


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
