"""What commands read and write: learners, output files, checkpoints."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from graphglow.checks import at_least
from graphglow.commands import HELD, NO_ROOM
from graphglow.commands.flags import said
from graphglow.commands.terminal import note
from graphglow.errors import InputError, StoppedError
from graphglow.graph.load import pair_of_tables
from graphglow.graph.table_file import require_pyarrow
from graphglow.storage import check_folder, claimed
from graphglow.training.checkpoint import Checkpoints, Parts, RunFolder

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
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"the output file must end in {', '.join(suffixes)}; got {path}")
    if path.suffix.lower() == ".parquet":
        require_pyarrow()
    try:
        for name in map(str, filter(None, inputs)):
            if any(_holds(part, path) for part in (name, *(pair_of_tables(name) or ()))):
                raise InputError(f"the output file must not be one of the inputs; got {path}")
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
WORKERS = "Processes that share the work, to the same result."
RAY = (
    "A Ray cluster whose machines share the work: local, auto, HOST:PORT or ray://HOST:10001; "
    "--workers is then the number of tasks at the same time."
)
PARTS = "Go on from the finished parts of a job that was stopped or killed, in OUT.parts."
Folder = TypeVar("Folder", bound=RunFolder)


class Resuming(Generic[Folder]):
    """A run that leaves a folder beside what it writes while it is under way, to go on from."""

    resume: bool

    def folder(self, out: Path) -> Folder:
        """Where the files of a run are, by the file that it will write."""
        raise NotImplementedError

    def nothing(self) -> str:
        """Why a run that was stopped has left nothing."""
        raise NotImplementedError

    def keeps(self) -> bool:
        """Whether the run is one that saves itself."""
        return True

    def may_replace(self, out: Path | None, *, overwrite: bool) -> bool:
        """Whether an existing output may be replaced: asked for, or by the run that it is of.

        A run that was killed between writing its output and removing its folder finds both.
        """
        if out is None and self.resume:
            raise InputError("--resume must go with --out FILE, beside which a run is kept")
        if out is None or overwrite or not self.resume:
            return overwrite
        out = out.expanduser()
        unfinished = bool(self.folder(out).files())
        if out.exists() and not unfinished:
            rule = "--resume must have an unfinished run to go on with"
            raise InputError(f"{rule}; got {out}, whose run has ended (--overwrite makes it anew)")
        return unfinished

    @contextmanager
    def kept(self, out: Path | None) -> Iterator[Folder | None]:
        """Let the run in the block save itself beside ``out``; if it ends well, nothing is left."""
        if out is None or not self.keeps():
            yield None
            return
        with self.folder(out) as run:
            try:
                yield run
            except (KeyboardInterrupt, InputError, StoppedError) as error:
                stopped, cause = not isinstance(error, InputError), error.__cause__
                full = isinstance(cause, OSError) and cause.errno in NO_ROOM
                again = "when there is room, " if full else ""
                again += "the same command with --resume goes on"
                if (stopped or full) and run.files():
                    note(f"the run is kept in {run.folder}; {again}")
                elif stopped:
                    note(f"nothing was kept: {self.nothing()}")
                raise
            run.remove()


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags(Resuming[Checkpoints]):
    """Of a run, in OUT.checkpoints beside --out."""

    resume: Annotated[bool, FlagCreatePairsOff, said(RESUME, hint="")] = False
    checkpoint_seconds: Annotated[float, said(SECONDS, "SECONDS")] = 10.0

    def __post_init__(self) -> None:
        if not self.checkpoint_seconds >= 0:  # nor is NaN
            raise InputError(f"--checkpoint-seconds must be >= 0; got {self.checkpoint_seconds:g}")

    def nothing(self) -> str:
        return f"a checkpoint is written after {self.checkpoint_seconds:g} seconds"

    def folder(self, out: Path) -> Checkpoints:
        place, seconds = out.with_name(f"{out.name}.checkpoints"), self.checkpoint_seconds
        return Checkpoints(place, every_seconds=seconds, resume=self.resume)


@dataclass(frozen=True, kw_only=True)
class WorkerFlags(Resuming[Parts]):
    """Who does the work, and from where a job that was killed goes on."""

    workers: Annotated[int | None, said(WORKERS, "INT", "(default: this one alone)")] = None
    ray: Annotated[str | None, said(RAY, "ADDRESS", "(optional)")] = None
    resume: Annotated[bool, FlagCreatePairsOff, said(PARTS, hint="")] = False

    def __post_init__(self) -> None:
        if self.workers is not None:
            at_least("--workers", self.workers, 1)

    @property
    def asked(self) -> dict[str, Any]:
        """As ``refine`` and ``audit`` take them."""
        return {"workers": self.workers, "ray": self.ray}

    def nothing(self) -> str:
        return "no part was done yet"

    def keeps(self) -> bool:
        return self.resume or self.workers is not None or self.ray is not None

    def folder(self, out: Path) -> Parts:
        return Parts(out.with_name(f"{out.name}.parts"), resume=self.resume)


Checkpointing = Annotated[CheckpointFlags, OmitArgPrefixes]
Working = Annotated[WorkerFlags, OmitArgPrefixes]
