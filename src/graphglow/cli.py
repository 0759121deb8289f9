"""The ``graphglow`` command: finds the subcommand, and turns every outcome into an exit status.

0 is success, 2 is bad input, 130 is Ctrl-C, 143 is SIGTERM and 1 is anything else; each failure is
one line on standard error. Nothing here imports torch, so help and a mistyped command answer at
once.
"""

import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from graphglow.commands import COMMANDS, HELD, MODULES, NO_ROOM, options
from graphglow.errors import InputError, InputWarning, StoppedError, nearest
from graphglow.version import __version__

HELP = """\
Learn how graphs should be wired: one structure learner, pre-trained on several graphs, is
transferred, frozen, to yours, where only a small GNN is trained.

commands:
{commands}

options:
  --help     show this; after a command, its most used options
  --help-all after a command, all its options
  --version  show the version

Your own graph is two tables: people.csv with the columns id, label (blank where it is not known)
and whatever else you know of them; relations.csv with source and target, ids of the first. Other
names of columns are given by --columns id=person label=risk. The first two lines below predict the
blanks and write the better graph; a name from graphglow datasets does in the place of the tables.
"""
EXAMPLES = """
examples:
  graphglow transfer --target people.csv+relations.csv \\
      --predictions labels.csv --out result.safetensors
  graphglow refine --target people.csv+relations.csv --out refined.csv
  graphglow demo
  graphglow fit --method gcn --target breast_cancer
  graphglow pretrain --sources digits synthetic --out learner.safetensors
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:  # closed by the caller, as in `graphglow datasets >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (it stays open until the process ends)
    for stream in (sys.stdout, sys.stderr):  # one that cannot show a letter shows its number
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    came: list[int] = []
    try:
        with warnings.catch_warnings(), _hearing_signals(came), HELD:
            if not _debugging():
                warnings.simplefilter("ignore")  # libraries' notes to developers
                warnings.simplefilter("always", InputWarning)
                warnings.showwarning = lambda message, *_, **__: _note(f"note: {message}")
                threading.excepthook = lambda error: None  # of libraries; ours report
            _run(arguments, came)
        sys.stdout.flush()
        return 0
    except SystemExit as request:  # --help of a command, or rich on a closed pipe
        return request.code if isinstance(request.code, int) else 1
    except BrokenPipeError:  # the reader of a pipe has gone, as in `graphglow datasets | head -1`
        return 1
    except KeyboardInterrupt:
        return _interrupted(came)
    except InputError as error:
        return _failed(2, str(error))
    except StoppedError as error:
        return _failed(1, str(error))
    except Exception as error:
        if came:  # a library's import took it for an error of its own
            return _interrupted(came)
        name = type(error).__name__
        if "MemoryError" in name or "allocate memory" in str(error):
            return _failed(2, f"the job must fit in memory; {error}")
        if isinstance(error, OSError) and error.errno in NO_ROOM:  # files have their own sentence
            return _failed(1, f"standard output must be writable; got {error.strerror}")
        advice = "" if _debugging() else " (GRAPHGLOW_DEBUG=1 shows the traceback)"
        return _failed(1, f"unexpected {name}: {error}{advice}")
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # give it up, so that Python does not complain about it at exit
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _hearing_signals(came: list[int]) -> Iterator[None]:
    """In the block, SIGTERM is heard as Ctrl-C is: what is half done is put away or kept."""

    def hear(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    plain: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    main_thread = threading.current_thread() is threading.main_thread()
    ours = [one for one, usual in plain.items() if main_thread and signal.getsignal(one) is usual]
    for one in ours:
        signal.signal(one, hear)
    try:
        yield
    finally:
        for one in ours:
            signal.signal(one, plain[one])


def _interrupted(came: list[int]) -> int:
    status, word = (143, "terminated") if signal.SIGTERM in came else (130, "interrupted")
    if _debugging():
        traceback.print_exc()
    with suppress(OSError):  # imports that were cut off are not tried again, as _note would
        print(f"graphglow: {word}", file=sys.stderr, flush=True)
    return status


def _run(arguments: list[str], came: list[int]) -> None:
    name, *rest = arguments or ["--help"]
    if name == "help" and rest:  # graphglow help refine
        name, *rest = [*rest, "--help"]
    if name in ("-h", "--help", "--help-all", "help"):
        lines = [f"  {name:<10} {what}" for name, what in COMMANDS.items()]
        text = HELP.format(commands="\n".join(lines))
        text = options.wrapped(text, options.terminal_width())
        sys.stdout.write(f"usage: graphglow COMMAND [OPTIONS]\n\n{text}\n{EXAMPLES}")
        return
    if name in ("-V", "--version"):
        sys.stdout.write(f"graphglow {__version__}\n")
        return
    if name not in COMMANDS:
        rule = f"the command must be one of {', '.join(COMMANDS)}"
        raise InputError(f"{rule}; got {name!r}{nearest(name, COMMANDS)}; see graphglow --help")
    if (words := options.entry_of(name, rest)) is not None:
        options.answer(words, rest)
    # Threads that spin for long while they wait make a busy machine crawl; threads that never do
    # are slow to start on the next of many small products. torch reads these as it loads.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    from graphglow.commands.terminal import waiting

    with waiting("starting"):  # torch takes seconds to import
        from graphglow.commands.flags import parse

        module = importlib.import_module(f"graphglow.commands.{MODULES.get(name, name)}")
    if came:  # and what was imported has swallowed it
        raise KeyboardInterrupt
    several = hasattr(module, "choose")  # with one name, and a flag that says which
    command = module.choose(name, rest) if several else getattr(module, name)
    parse(name, command, rest, getattr(module, "PARTS", None))()


def _failed(status: int, message: str) -> int:
    if _debugging():
        traceback.print_exc()
    _note(message)
    return status


def _note(message: str) -> None:
    from graphglow.commands.terminal import note  # loads rich, which help need not wait for

    note(message)


def _debugging() -> bool:
    return os.environ.get("GRAPHGLOW_DEBUG", "") not in ("", "0")
