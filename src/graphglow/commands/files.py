"""What commands read and write: learners, output files, checkpoints."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from graphglow.commands import HELD, NO_ROOM
from graphglow.commands.flags import said
from graphglow.commands.terminal import note
from graphglow.errors import InputError
from graphglow.graphs.files import pair_of_tables
from graphglow.graphs.table_file import require_pyarrow
from graphglow.storage import check_folder, claimed
from graphglow.training.checkpoint import Checkpoints

TENSOR_SUFFIXES = (".safetensors", ".st")


def check_output(
    path: Path,
    *,
    overwrite: bool,
    suffixes: Sequence[str] = (),
    inputs: Sequence[object] = (),
    shared: bool = False,
) -> Path:
    """Return ``path`` if a file can be written there, tried before any work; nothing is left.

    Until the command ends no other may write it.

    Args:
        path: The output.
        overwrite: Whether it may be replaced.
        suffixes: It must have one of these.
        inputs: Files that the command reads: the output may never be one of them.
        shared: Whether several commands may add to it at once, in a folder that is made for it.
    """
    path = path.expanduser()
    for name in map(str, filter(None, inputs)):
        if any(_holds(part, path) for part in (name, *(pair_of_tables(name) or ()))):
            raise InputError(f"the output file must not be one of the inputs; got {path}")
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"the output file must end in {', '.join(suffixes)}; got {path}")
    if path.suffix.lower() == ".parquet":
        require_pyarrow()
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"the output path must be a regular file, and no folder; got {path}")
        if os.path.lexists(path) and not overwrite:
            raise InputError(f"the output file must not exist, or pass --overwrite; got {path}")
        if not shared:
            check_folder(path)
        folder = path.absolute().parent
        while not os.path.lexists(folder):
            folder = folder.parent
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", suffix=path.suffix, dir=folder):
            pass  # the name that an atomic write will use
        if not shared:
            HELD.enter_context(claimed(path))
    except OSError as error:
        reason = error.strerror
        raise InputError(f"the output path must be writable; got {path} ({reason})") from error
    return path


def write_each(*files: tuple[Path | None, Callable[[Path], object]]) -> None:
    """Write files, as far as they are asked for: one that cannot be written costs no other."""
    failed = []
    for path, write in files:
        try:
            if path is not None:
                write(path)
        except InputError as error:
            failed.append(error)
    if failed:
        raise InputError("; ".join(map(str, failed))) from failed[0].__cause__


def _holds(name: str | Path, path: Path) -> bool:
    """Whether an input is ``path``, or a folder that has it already."""
    read = Path(os.path.realpath(os.path.expanduser(name)))
    real = Path(os.path.realpath(path))  # of a circle of links too
    return read == real or (real.exists() and read.is_dir() and read in real.parents)


RESUME = "Go on from those of a run that was stopped or killed; anew where there are none."
SECONDS = "Time between two checkpoints: the most work that a kill can cost."


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags:
    """Of a run, in OUT.checkpoints beside --out; of several processes, beside --predictions."""

    resume: Annotated[bool, FlagCreatePairsOff, said(RESUME, hint="")] = False
    checkpoint_seconds: Annotated[float, said(SECONDS, "SECONDS")] = 10.0

    def __post_init__(self) -> None:
        if not self.checkpoint_seconds >= 0:  # nor is NaN
            raise InputError(f"--checkpoint-seconds must be >= 0; got {self.checkpoint_seconds:g}")

    def may_replace(self, out: Path | None, *, overwrite: bool, flag: str = "--out FILE") -> bool:
        """Whether an existing output may be replaced: asked for, or by the run that it is of.

        A run that was killed between writing its output and removing its checkpoints finds both.
        """
        if out is None and self.resume:
            raise InputError(f"--resume must go with {flag}, beside which checkpoints lie")
        if out is None or overwrite or not self.resume:
            return overwrite
        out = out.expanduser()
        unfinished = bool(Checkpoints(_folder(out)).files())
        if out.exists() and not unfinished:
            rule = "--resume must have an unfinished run to go on with"
            raise InputError(f"{rule}; got {out}, whose run has ended (--overwrite makes it anew)")
        return unfinished

    @contextmanager
    def kept(self, out: Path | None) -> Iterator[Checkpoints | None]:
        """Let the run in the block save itself beside ``out``; if it ends well, nothing is left."""
        if out is None:
            yield None
            return
        folder, seconds = _folder(out), self.checkpoint_seconds
        with Checkpoints(folder, every_seconds=seconds, resume=self.resume) as checkpoints:
            try:
                yield checkpoints
            except (KeyboardInterrupt, InputError) as error:
                stopped, cause = isinstance(error, KeyboardInterrupt), error.__cause__
                full = isinstance(cause, OSError) and cause.errno in NO_ROOM
                again = "when there is room, " if full else ""
                again += "the same command with --resume goes on"
                if (stopped or full) and checkpoints.files():
                    note(f"the run is kept in {folder}; {again}")
                elif stopped:
                    note(f"nothing was kept: a checkpoint is written after {seconds:g} seconds")
                raise
            checkpoints.remove()


Checkpointing = Annotated[CheckpointFlags, OmitArgPrefixes]


def _folder(out: Path) -> Path:
    """Where the checkpoints of a run are, by the file that it will write."""
    return out.with_name(f"{out.name}.checkpoints")
