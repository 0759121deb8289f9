"""A run that was killed goes on where it was, and ends as if it had not been.

graphglow pretrain --sources cora citeseer --out learner.safetensors --resume

A folder belongs to one run. In it are the last few checkpoints, or the parts that are done, each a
safetensors file with a checksum, and a lock that one process at a time can hold.
"""

import json
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import torch
from torch import Tensor

from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph.files import note
from graphglow.paper import StructureLearner
from graphglow.storage import checksum, load_tensors, save_tensors, try_lock
from graphglow.version import __version__

F = TypeVar("F", bound="RunFolder")
LOCK = "lock"
DIFFERENCES_SHOWN = 3


class Saved(NamedTuple):
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class RunFolder:
    """A folder of files of one run, each whole or absent, which one process at a time works in."""

    kind = ""
    """What its files are."""

    def __init__(self, folder: str | Path, *, resume: bool = True) -> None:
        self.folder = Path(folder).expanduser()
        self.resume = resume
        self.resumed = False
        """Whether this run went on from what was there."""
        self._lock: BinaryIO | None = None
        self._run: dict[str, Any] = {}
        self._warned = self._ended = False

    def __enter__(self: F) -> F:
        """Take the lock."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = try_lock(self.folder / LOCK)
        except OSError as error:
            raise InputError(
                f"the place for {self.kind}s must be a writable folder; "
                f"got {self.folder} ({error.strerror})"
            ) from error
        if lock is None:
            raise InputError(
                "a run must have its folder to itself; "
                f"got {self.folder}, which another process is at work in"
            )
        if self.files() and not self.resume:
            lock.close()
            raise InputError(
                f"a new run must begin without {self.kind}s of an unfinished one; "
                f"got {self.folder} (--resume goes on from there, removing it starts over)"
            )
        for leftover in self.folder.glob(f".{self.kind}-*"):  # of a write that was killed
            _remove(leftover)
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        files = self.files()
        if self._ended or not files:
            for path in [*files, self.folder / LOCK]:
                _remove(path)
            with suppress(OSError):  # something else is in it
                self.folder.rmdir()
        self._lock.close()
        self._lock, self._ended = None, False

    def remove(self) -> None:
        """Remove the folder, or at the end of a ``with`` block: the run's result is safe."""
        with held(self, RunFolder, self.kind):
            self._ended = True

    def files(self) -> list[Path]:
        """What is kept, from old to new."""
        return sorted(self.folder.glob(f"{self.kind}-*{'[0-9]' * 6}.safetensors"))

    def _be(self, run: dict[str, Any]) -> None:
        """Say which run this is, by all that its result depends on."""
        assert self._lock is not None
        self._run = json.loads(json.dumps(run | {"versions": versions()}))

    def _read(self, path: Path, otherwise: str) -> Saved | None:
        """What a file holds, or None and a warning if it is damaged; another run's is refused."""
        try:
            tensors, meta = load_tensors(path, self.kind, signed=True)
        except InputError as error:
            note(f"a {self.kind} cannot be used, {otherwise}: {error}")
            return None
        differing = _differences(meta["run"], self._run)
        differing.sort(key=lambda one: one.partition(" ")[0].count("."))  # details last
        if differing:
            more = len(differing) - DIFFERENCES_SHOWN
            raise InputError(
                f"{self.kind}s must be of the same run; got {self.folder}, which differs in "
                f"{', '.join(differing[:DIFFERENCES_SHOWN])}"
                f"{f' and {more} more' if more > 0 else ''}"
            )
        return Saved(tensors, meta["facts"])

    def _write(self, path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> bool:
        """Whether a file could be written; the first that could not is a warning."""
        try:
            meta = {"run": self._run, "facts": facts}
            save_tensors(path, self.kind, tensors, meta, make_folder=True)
            return True
        except (InputError, MemoryError) as error:
            if not self._warned:
                self._warned = True
                kept = "what was written stays" if self.files() else "there is none yet"
                reason = str(error) or "no memory left"
                note(f"a {self.kind} was not written, {kept} and the run goes on: {reason}")
            return False


class Parts(RunFolder):
    """What blocks of nodes and pairs have given, for :func:`graphglow.refine` and ``audit``.

    A job that was killed does only the blocks that are not there. Another job (another graph,
    learner, setting or version) is refused in one sentence. A part that cannot be written is no
    reason to stop.
    """

    kind = "part"

    def begin(self, run: dict[str, Any]) -> None:
        """Go on with the parts of ``run``, if there are any."""
        self._be(run)

    def load(self, stage: str, number: int) -> Tensor | None:
        """What a block gave, if it is there."""
        path = self._path(stage, number)
        found = self._read(path, "its block is done again") if path.exists() else None
        if found is None or found.facts != {"stage": stage, "number": number}:
            return None
        self.resumed = True
        return found.tensors["part"].to(self._run["device"])

    def keep(self, stage: str, number: int, part: Tensor) -> None:
        """Write what a block gave."""
        facts = {"stage": stage, "number": number}
        self._write(self._path(stage, number), {"part": part}, facts)

    def _path(self, stage: str, number: int) -> Path:
        return self.folder / f"part-{stage.replace(' ', '-')}-{number:06d}.safetensors"


def held(
    folder: RunFolder | None, kind: type[RunFolder], name: str
) -> AbstractContextManager[object]:
    """A block in which this process has the folder to itself, if there is one."""
    if folder is not None and not isinstance(folder, kind):
        raise InputError(f"{name} must be a {kind.__name__}; got {type(folder).__name__}")
    return nullcontext() if folder is None or folder._lock else folder


def learner_identity(learner: StructureLearner | EvidenceLearner) -> str:
    """A fingerprint of weights and configuration."""
    config = asdict(learner.config) if isinstance(learner, StructureLearner) else None
    return checksum(dict(learner.state_dict()), config)[:16]


def versions() -> dict[str, str]:
    """Of what computes: another one may round differently."""
    return {"graphglow": __version__, "torch": str(torch.__version__)}


def _differences(there: Any, here: Any, name: str = "") -> list[str]:
    """What of two runs is not the same, by dotted names."""
    if isinstance(there, list) and isinstance(here, list):
        there, here = dict(enumerate(there, 1)), dict(enumerate(here, 1))
    if isinstance(there, dict) and isinstance(here, dict):
        found = []
        for key in there | here:
            place = f"{name}.{key}" if name else str(key)
            found += _differences(there.get(key, "none"), here.get(key, "none"), place)
        return found
    return [] if there == here else [f"{name} ({there} there, {here} here)"]


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is no harm where it is
        path.unlink(missing_ok=True)
