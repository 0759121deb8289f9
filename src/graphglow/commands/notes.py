"""What a command has to say beside its result: one line each, on standard error."""

import sys

from graphglow.commands.terminal import printable


def note(text: str) -> None:
    """Print one line that scripts which read standard output do not see."""
    print(f"graphglow: {printable(text)}", file=sys.stderr)
