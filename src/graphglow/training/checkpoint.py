"""A run that was killed goes on where it was, and ends as if it had not been.

graphglow pretrain --sources cora citeseer --out learner.safetensors --resume

A folder belongs to one run. In it are the last few checkpoints, or the parts that are done, each a
safetensors file with a checksum, and a lock that one process at a time can hold.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from graphglow.checks import at_least, number
from graphglow.errors import InputError, warn
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper import StructureLearner
from graphglow.storage import checksum, load_tensors, prefixed, save_tensors, try_lock, within
from graphglow.version import __version__

F = TypeVar("F", bound="RunFolder")
LOCK = "lock"
DIFFERENCES_SHOWN = 3


class Part(Protocol):
    """Something that changes while a run goes on, and says so by named tensors."""

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: dict[str, Tensor]) -> None: ...


class Saved(NamedTuple):
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def restore(self, parts: Mapping[str, Part]) -> None:
        """Let the parts go on from here, in place."""
        for name, part in parts.items():
            part.load_state(within(name, self.tensors))


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
        with held(self, RunFolder):
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
            warn(f"a {self.kind} cannot be used, {otherwise}: {error}")
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
                warn(f"a {self.kind} was not written, {kept} and the run goes on: {reason}")
            return False


class Checkpoints(RunFolder):
    """The folder of a run's checkpoints, for :func:`graphglow.pretrain` and ``transfer``.

    Given to one of them, the run saves itself there now and then. If it is killed, the same call
    goes on from the newest checkpoint that is whole, and on a CPU ends with the same bits as a run
    that was never stopped. Another run (other settings, graphs, learner or versions) is refused in
    one sentence, and so is a second process while one is at work.

    A checkpoint that cannot be written is no reason to stop: the run warns once and goes on, and
    those that were written stay. When the result is safe, call :meth:`remove`.

    Args:
        folder: Made where it is absent; nothing else should be in it.
        every_seconds: Time between two checkpoints: the most work that a kill can cost.
        keep: How many are kept; all but the newest are there in case that one is damaged.
        resume: False refuses a folder that has checkpoints in it.
    """

    kind = "checkpoint"

    def __init__(
        self, folder: str | Path, *, every_seconds: float = 10.0, keep: int = 2, resume: bool = True
    ) -> None:
        if not number("every_seconds", every_seconds) >= 0:
            raise InputError(f"every_seconds must be >= 0; got {every_seconds}")
        at_least("keep", keep, 1)
        super().__init__(folder, resume=resume)
        self.every_seconds, self.keep = every_seconds, keep
        self.seconds_before = 0.0
        """Of training, in the parts of the run that were made by processes before this one."""
        self._began = self._last = 0.0

    def begin(self, run: dict[str, Any], restore: Callable[[Saved], object]) -> Saved | None:
        """Let ``run`` go on from its newest whole checkpoint, if there is one; start the clock.

        ``run`` is all that its result depends on, as JSON can hold it.
        """
        self._be(run)
        found = self._newest()
        if found is not None:
            try:
                restore(found)
                self.resumed, self.seconds_before = True, float(found.facts["seconds"])
            except (LookupError, TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"{self.folder} must hold checkpoints that fit this run; got {error}"
                ) from error
        self._began = self._last = time.monotonic()
        return found

    def offer(self, parts: Mapping[str, Part], facts: dict[str, Any] | None = None) -> None:
        """Save all that changes in the run if it is time to; facts are such as JSON can hold."""
        now = time.monotonic()
        if now - self._last < self.every_seconds:
            return
        self._last = now
        newest = int(self.files()[-1].stem.removeprefix("checkpoint-")) if self.files() else 0
        path = self.folder / f"checkpoint-{newest + 1:06d}.safetensors"
        tensors: dict[str, Tensor] = {}
        for name, part in parts.items():
            tensors |= prefixed(name, part.state())
        seconds = self.seconds_before + now - self._began
        if self._write(path, tensors, (facts or {}) | {"seconds": seconds}):
            for old in self.files()[: -self.keep]:
                _remove(old)

    def _newest(self) -> Saved | None:
        """The newest that is whole; one of another run is refused."""
        for path in reversed(self.files()):
            first = path == self.files()[0]
            begin = "the run starts from the beginning" if first else "the one before is used"
            if (found := self._read(path, begin)) is not None:
                return found
        return None


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
    folder: RunFolder | None, kind: type[RunFolder] = Checkpoints, name: str = "checkpoints"
) -> AbstractContextManager[object]:
    """A block in which this process has the folder to itself, if there is one."""
    if folder is not None and not isinstance(folder, kind):
        raise InputError(f"{name} must be a {kind.__name__}; got {type(folder).__name__}")
    return nullcontext() if folder is None or folder._lock else folder


def graph_identity(graph: Graph) -> dict[str, str]:
    """The name of a graph, and a fingerprint of all that a model sees of it."""
    tensors: dict[str, Tensor] = {}
    for field in fields(graph):
        value = getattr(graph, field.name)
        if isinstance(value, SparseMatrix):
            parts = {"crow": value.crow, "col": value.col, "values": value.values}
            tensors |= prefixed(field.name, parts)
        elif isinstance(value, Tensor):
            tensors[field.name] = value
    return {"name": graph.name, "content": checksum(tensors)[:16]}


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
