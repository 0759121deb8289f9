"""What commands read and write: learners, output files."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphglow import pretrained
from graphglow.errors import InputError
from graphglow.graphs.files import pair_of_tables
from graphglow.pretrained import load_learner
from graphglow.structure import LearnerConfig, StructureLearner

TENSOR_SUFFIXES = (".safetensors", ".st")
RANDOM = "random"
"""What ``--learner`` calls a learner that was never trained."""


def check_output(
    path: Path, *, overwrite: bool, suffixes: Sequence[str] = (), inputs: Sequence[object] = ()
) -> Path:
    """Return ``path`` if a file can be written there, tried before any work; nothing is left.

    ``inputs`` are files the command reads: the output may never be one of them.
    """
    path = path.expanduser()
    read = [part for name in inputs if name for part in _files_of(str(name))]
    if any(_holds(part.expanduser(), path) for part in read):
        raise InputError(f"the output file must not be one of the inputs; got {path}")
    if suffixes and path.suffix.lower() not in suffixes:
        raise InputError(f"the output file must end in {', '.join(suffixes)}; got {path}")
    try:
        if path.is_dir():
            raise InputError(f"the output path must be a file; got the folder {path}")
        if path.exists() and not path.is_file():
            raise InputError(f"the output path must be a regular file; got {path}")
        if (path.exists() or path.is_symlink()) and not overwrite:
            raise InputError(f"the output file must not exist, or pass --overwrite; got {path}")
        folder = path.absolute().parent
        while not folder.exists() and not folder.is_symlink():  # that leads nowhere
            folder = folder.parent
        with tempfile.NamedTemporaryFile(
            prefix=f".{path.name}.", suffix=path.suffix, dir=folder
        ):  # the name that an atomic write will use
            pass
    except OSError as error:
        raise InputError(
            f"the output path must be writable; got {path} ({error.strerror})"
        ) from error
    return path


def _files_of(name: str) -> Sequence[Path]:
    """What a graph is read from: one path, or the two of ``people.csv+relations.csv``."""
    return (Path(name), *(pair_of_tables(name) or ()))


def _holds(read: Path, path: Path) -> bool:
    """Whether an input is ``path``, or a folder that has it already."""
    read, path = (
        Path(os.path.realpath(each)) for each in (read, path)
    )  # also of a circle of links
    return read == path or (path.exists() and read.is_dir() and read in path.parents)


def read_learner(name: str, embedding_size: int | None, seed: int) -> StructureLearner:
    """Return the learner that ``name`` means: one of the package's, a file, or ``random``."""
    if name == RANDOM:
        config = LearnerConfig()
        if embedding_size is not None:
            config = LearnerConfig(embedding_size=embedding_size)
        return StructureLearner(config, seed=seed)
    if embedding_size is not None:
        raise InputError(
            f"--embedding-size must go with --learner random; got --learner {name}, which has its "
            "own"
        )
    return trained_learner(name, RANDOM)


def trained_learner(name: str, *others: str) -> StructureLearner:
    """Load a learner by name or file; ``others`` are more names that the command takes."""
    return load_learner(name, also=others)


def learner_file(name: str | None) -> Path | None:
    """The file that ``--learner`` is read from, as an input of :func:`check_output`."""
    return None if name is None or name == RANDOM else pretrained.learner_file(name)
