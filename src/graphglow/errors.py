"""The one exception type for what a user can mend: a file, a graph, a setting.

It is a ``ValueError``, so Python callers need not know it; the command line turns it into
one line on standard error and exit status 2. Every other exception is ours to mend.
"""


class InputError(ValueError):
    """Bad input, in one sentence: the rule, then what was received."""
