"""``--resume``: where commands keep the checkpoints of a run, and when they may go on from them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, arg

from graphglow.commands.notes import note
from graphglow.errors import InputError
from graphglow.training.checkpoint import Checkpoints

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Resume = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(
        help="Go on from the checkpoints of a run that was stopped or killed, beside --out in "
        "OUT.checkpoints (of a transfer on several processes, beside --predictions FOLDER); begin "
        "anew where there are none.",
        help_behavior_hint="",
    ),
]
CheckpointSeconds = Annotated[
    float,
    arg(
        metavar="SECONDS",
        help="With --out, or --predictions FOLDER of several processes, time between two "
        "checkpoints: the most work that a kill can cost.",
    ),
]


def checkpoint_folder(out: Path) -> Path:
    """Where the checkpoints of a run are, by the file that it will write."""
    return out.with_name(f"{out.name}.checkpoints")


def may_replace(out: Path | None, *, resume: bool, overwrite: bool) -> bool:
    """Whether an existing output may be replaced: asked for, or by the run that it is of.

    A run that was killed between writing its output and removing its checkpoints finds both. When
    the checkpoints were begun, the output was not there, or might be overwritten.
    """
    if out is None:
        if resume:
            raise InputError(
                "--resume must go with --out FILE, beside which checkpoints lie; got no --out"
            )
        return overwrite
    out = out.expanduser()
    unfinished = resume and bool(Checkpoints(checkpoint_folder(out)).files())
    if resume and out.is_file() and not unfinished and not overwrite:
        raise InputError(
            f"--resume must have an unfinished run to go on with; got {out}, which is there, and "
            "no checkpoints beside it: its run has ended (--overwrite makes it anew)"
        )
    return overwrite or unfinished


@contextmanager
def checkpointed(out: Path | None, *, resume: bool, seconds: float) -> Iterator[Checkpoints | None]:
    """Let the run in the block save itself beside ``out``; if all goes well, nothing is left."""
    if not seconds >= 0:  # nor is NaN
        raise InputError(f"--checkpoint-seconds must be >= 0; got {seconds:g}")
    if out is None:
        yield None
        return
    folder = checkpoint_folder(out)
    with Checkpoints(folder, every_seconds=seconds, resume=resume) as checkpoints:
        try:
            yield checkpoints
        except KeyboardInterrupt:
            if checkpoints.files():
                note(f"the run is kept in {folder}; the same command with --resume goes on")
            else:
                note(f"nothing was kept: the first checkpoint is written after {seconds:g} seconds")
            raise
        except InputError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in NO_ROOM and checkpoints.files():
                note(
                    f"the run is kept in {folder}; when there is room, the same command with "
                    "--resume goes on"
                )
            raise
        checkpoints.remove()
