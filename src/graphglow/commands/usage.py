"""Flags from signatures, by tyro; what it says of a bad command line, in one line."""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Mapping

import tyro

from graphglow.errors import InputError

Command = Callable[..., None]

OUR_WORDS = (
    (r"^Missing from graphglow [^:]+", "required options are missing"),
    (r"^Error parsing (\S+): invalid literal for int.*?: ", r"\1 must be a whole number; got "),
    (r"^Error parsing (\S+): could not convert \S+ to float: ", r"\1 must be a number; got "),
    (r"^Error parsing (\S+): Could not .* for arguments: \[(.*)\]", r"bad value for \1; got \2"),
    (r"^Error parsing (\S+):", r"bad value for \1:"),
    (
        r"^[Ii]nvalid choice (.+) for argument '(.+)'\. Expected one of \((.*)\)",
        lambda m: f"{m[2]} must be one of {m[3].replace(chr(39), '').rstrip(',')}; got {m[1]}",
    ),
    (r"^[Mm]issing value for argument '(.+)'\. Expected.*", r"\1 must be followed by a value"),
    (r"\bUnrecognized options", "unknown options"),
    ("Perhaps you meant", "perhaps you meant"),
)
"""What tyro says, as a pattern, and how we say it."""


def parse(
    command: Command,
    arguments: list[str],
    parts: Mapping[str, Command] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> Callable[[], None]:
    """Return ``command`` bound to its arguments; raise :class:`InputError` on bad usage.

    ``--help`` prints and raises ``SystemExit(0)``.

    Args:
        command: Its parameters are the flags, its docstring their help.
        arguments: What the user typed behind the command's name.
        parts: Where there are some (``bench op``), the first argument names the one to bind, and
            ``command`` itself is only its help.
        description: Instead of the docstring.
        prog: What was typed before the flags, where it is more than the command's name.
    """
    prog = prog or f"graphglow {command.__name__}"
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            bound: Callable[[], None]
            if parts:
                bound = tyro.extras.subcommand_cli_from_dict(
                    {name: _binding(part) for name, part in parts.items()},
                    prog=prog,
                    description=inspect.getdoc(command),
                    args=arguments,
                )
            else:
                bound = tyro.cli(
                    _binding(command), prog=prog, description=description, args=arguments
                )
        return bound
    except SystemExit as request:
        if request.code in (0, None):
            raise
        raise InputError(f"{one_line(captured.getvalue())}; see {prog} --help") from None


def _binding(command: Command) -> Callable[..., Callable[[], None]]:
    """A function with the flags of ``command`` that does not run it yet."""

    @functools.wraps(command)  # tyro reads the signature and docstring of what is wrapped
    def bind(*args: object, **kwargs: object) -> Callable[[], None]:
        return functools.partial(command, *args, **kwargs)

    return bind


def one_line(box: str) -> str:
    """Reduce tyro's box, a title and then sections of text between rules, to one line.

    The title is left out, and so are explanations of options and the pointer to the help; a
    section that is a headline and a list (indented by four) keeps both.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines() or [""]
    title = 1 if lines[0].startswith("\u256d") else 2  # where not UTF-8, a rule follows
    body = [line[2:].rstrip(" \u2502") for line in lines[title:] if line[0] != "\u2570"]
    parts = []
    for section in re.split(r"^[\u2500-]+$", "\n".join(body), flags=re.MULTILINE):
        words = [line for line in section.splitlines() if line.strip()]
        if not words or re.match(r"(Argument|For full) helptext", words[0]):
            continue
        listed = [line.strip() for line in words[1:] if re.match(r" {4}\S", line)]
        headline = f"{words[0].rstrip(':')}: {', '.join(listed)}"
        parts.append(headline if listed else " ".join(map(str.strip, words)))
    text = "; ".join(parts) or "the command line must be valid"
    for theirs, ours in OUR_WORDS:
        text = re.sub(theirs, ours, text)
    return text[0].lower() + text[1:].rstrip(". ")
