"""What commands read and write: learners, output files, checkpoints."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

from graphglow.checkpoint import Checkpoint
from graphglow.checks import at_least
from graphglow.commands import HELD
from graphglow.commands.flags import said
from graphglow.errors import InputError
from graphglow.graph.load import pair_of_tables
from graphglow.graph.table_file import require_pyarrow
from graphglow.storage import check_folder, claimed

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
WORKERS = "Ray workers that share the work, on CPUs, to the same result."
RAY = "The Ray of the workers: local (the default), auto, HOST:PORT or ray://HOST:10001."


@dataclass(frozen=True, kw_only=True)
class CheckpointFlags:
    """Of a run, in OUT.checkpoint beside --out."""

    resume: Annotated[bool, FlagCreatePairsOff, said(RESUME, hint="")] = False

    def checkpoint(self, out: Path | None) -> Checkpoint | None:
        if out is None and self.resume:
            raise InputError("--resume must go with --out FILE, beside which a run is kept")
        place = None if out is None else out.with_name(f"{out.name}.checkpoint")
        return place and Checkpoint(place, resume=self.resume)


@dataclass(frozen=True, kw_only=True)
class WorkerFlags:
    """Who does the work."""

    workers: Annotated[int | None, said(WORKERS, "INT", "(default: this process)")] = None
    ray: Annotated[str | None, said(RAY, "ADDRESS", "(optional)")] = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            at_least("--workers", self.workers, 1)


Checkpointing = Annotated[CheckpointFlags, OmitArgPrefixes]
Working = Annotated[WorkerFlags, OmitArgPrefixes]
