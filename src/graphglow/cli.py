"""The ``graphglow`` command: finds the command, and turns every outcome into an exit status.

0 is success, 2 is bad input, 130 is Ctrl-C, 143 is SIGTERM and 1 is anything else; each failure is
one line on standard error. Nothing here imports torch, so help and a mistyped flag answer at once.
"""

import contextlib
import functools
import importlib
import inspect
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from graphglow.commands.output import print_note
from graphglow.errors import InputError, InputWarning, StoppedError, did_you_mean
from graphglow.version import __version__

COMMANDS = {
    "predict": ("graphs", "labels for the rest: the class of every node, or of new nodes"),
    "audit": ("graphs", "wrong or missing links: which edges look false, which pairs joined"),
    "refine": ("graphs", "a graph for my own GNN: a better one, written to a file"),
    "explain": ("graphs", "why this class, why this pair?"),
    "compare": ("experiments", "what should I use? graphglow and others on my graph"),
    "demo": ("experiments", "what does it do? the main job in about a minute"),
    "datasets": ("experiments", "which graphs and learners are known by name?"),
    "transfer": ("training", "the paper: a GNN under a frozen learner (Algorithm 3)"),
    "reproduce": ("experiments", "the paper: its tables and figures"),
    "pretrain": ("training", "a learner of my own, from my own graphs (Algorithm 2)"),
    "fit": ("training", "how good is a competitor, under the same protocol as transfer?"),
    "report": ("training", "what have saved transfers learned? a page that opens offline"),
}
"""Each command, its module in ``commands``, and the question that it answers."""
HELP = """\
usage: graphglow COMMAND [OPTIONS]

Learn how a graph should be wired: which edges look wrong, which are missing, and what the classes
of its nodes are. The learner is pre-trained and frozen; predict, refine and audit train nothing.

  command    the question that it answers
{commands}

graphglow COMMAND --help shows the options of a command; graphglow --version the version.

Your own graph is two tables: people.csv with the columns id, label (blank where it is not known)
and whatever else you know of them; relations.csv with source and target, ids of the first. Other
names of columns are given by --columns id=person label=risk. A name from graphglow datasets can
stand in place of the tables.

examples:
  graphglow demo
  graphglow predict --target people.csv+relations.csv --out labels.csv
  graphglow refine --target people.csv+relations.csv --out refined.csv
  graphglow audit --target people.csv+relations.csv --suspects suspects.csv --out audit.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    debugging = os.environ.get("GRAPHGLOW_DEBUG", "") not in ("", "0")
    for stream in (sys.stdout, sys.stderr):  # a letter that cannot be shown becomes its number
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminate)
        with warnings.catch_warnings():
            if not debugging:
                warnings.simplefilter("ignore")  # libraries' notes to developers
                warnings.simplefilter("always", InputWarning)
                warnings.showwarning = lambda message, *_, **__: print_note(f"note: {message}")
            _run(words)
        sys.stdout.flush()
        return 0
    except SystemExit as stop:  # --help of a command
        return stop.code if isinstance(stop.code, int) else 1
    except BrokenPipeError:  # the reader has gone, as in `graphglow datasets | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:
        if debugging:
            traceback.print_exc()
        status, message = _ending(error)
        print_note(message)
        return status


def _ending(error: BaseException) -> tuple[int, str]:
    """Return the exit status of a failure, and its sentence."""
    if isinstance(error, KeyboardInterrupt):  # SIGTERM comes as one with its name
        return (143, "terminated") if error.args else (130, "interrupted")
    if isinstance(error, InputError | StoppedError):
        return 2 if isinstance(error, InputError) else 1, str(error)
    name = type(error).__name__
    if "MemoryError" in name or "allocate memory" in str(error):
        return 2, f"there is not enough memory ({error}): use a smaller graph or settings"
    return 1, f"unexpected {name}: {error} (GRAPHGLOW_DEBUG=1 shows the traceback)"


def _terminate(*_: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


def _run(words: list[str]) -> None:
    name, *rest = words or ["--help"]
    if name == "help" and rest:  # graphglow help refine
        name, *rest = [*rest, "--help"]
    if name in ("-h", "--help", "help"):
        lines = [f"  {name:<10} {question}" for name, (_, question) in COMMANDS.items()]
        sys.stdout.write(HELP.format(commands="\n".join(lines)))
        return
    if name in ("-V", "--version"):
        sys.stdout.write(f"graphglow {__version__}\n")
        return
    if name not in COMMANDS:
        known = f"the commands are {', '.join(COMMANDS)}"
        raise InputError(f"there is no command {name!r}{did_you_mean(name, COMMANDS)}; {known}")
    # Threads that spin for long while they wait make a busy machine crawl; threads that never do
    # are slow to start on the next of many small products. torch reads these as it loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    module = importlib.import_module(f"graphglow.commands.{COMMANDS[name][0]}")
    chosen_by = getattr(module, "CHOSEN_BY", {}).get(name)
    _parse(getattr(module, name), rest, f"graphglow {name}", chosen_by)()


def _parse(
    command: Callable[..., None],
    words: list[str],
    prog: str,
    chosen_by: tuple[str, Callable[[str | None], type]] | None,
) -> "functools.partial[None]":
    """Return ``command`` with its arguments; raise :class:`InputError` on bad usage.

    ``chosen_by`` is a flag, such as ``--kind``, by which the class of the settings is chosen.
    """
    import tyro

    def bind(**given: Any) -> "functools.partial[None]":
        return functools.partial(command, **given)

    parameters = dict(inspect.signature(command).parameters)
    if chosen_by is not None:
        flag, settings_of = chosen_by
        after = zip(words, [*words[1:], ""], strict=False)
        values = [following for word, following in after if word == flag]
        values += [word.partition("=")[2] for word in words if word.startswith(f"{flag}=")]
        chosen: Any = Annotated[settings_of(values[-1] if values else None), tyro.conf.arg(name="")]
        parameters["settings"] = parameters["settings"].replace(annotation=chosen)
    bind.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    bind.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    text = inspect.getdoc(command) or ""
    bind.__doc__ = text.replace("\n" + 8 * " ", " ")  # tyro keeps breaks in an argument's text
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(bind, prog=prog, args=words, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        cause = stop.__context__
        while cause is not None and not isinstance(cause, InputError):
            cause = cause.__context__
        raise cause or InputError(f"{_one_line(box.getvalue())}; see {prog} --help") from None


def _one_line(box: str) -> str:
    """Return tyro's message, drawn as a box with the help of each option, as one line."""
    kept = []
    for line in box.splitlines()[1:]:
        text = line.strip("\u2502|").rstrip()
        if text.lstrip().startswith(("For full helptext", "Argument helptext")):
            break
        if text.strip(" -+\u2500\u2570\u256f") and not text.startswith(" " * 9):
            kept.append(text.strip())
    return " ".join(kept).rstrip(".")
