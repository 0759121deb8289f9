"""Checkpoints: a run that was killed goes on where it was, and ends as if it had not been.

graphglow pretrain --sources cora citeseer --out learner.safetensors --resume

A folder belongs to one run. In it are the last few checkpoints, each a safetensors file with a
checksum, and a lock that one process at a time can hold.
"""

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Protocol

import torch
from torch import Tensor

from graphglow.checks import at_least, number
from graphglow.errors import InputError, InputWarning
from graphglow.graphs import Graph
from graphglow.ops.sparse import SparseMatrix
from graphglow.storage import (
    checksum,
    load_tensors,
    prefixed,
    save_tensors,
    try_lock,
    within,
)
from graphglow.structure import StructureLearner
from graphglow.version import __version__

NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
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


class Checkpoints:
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

    def __init__(
        self,
        folder: str | Path,
        *,
        every_seconds: float = 10.0,
        keep: int = 2,
        resume: bool = True,
    ) -> None:
        if not number("every_seconds", every_seconds) >= 0:
            raise InputError(f"every_seconds must be >= 0; got {every_seconds}")
        at_least("keep", keep, 1)
        self.folder = Path(folder).expanduser()
        self.every_seconds, self.keep, self.resume = every_seconds, keep, resume
        self.seconds_before = 0.0
        """Of training, in the parts of the run that were made by processes before this one."""
        self.resumed = False
        """Whether this run went on from a checkpoint."""
        self._lock: BinaryIO | None = None
        self._run: dict[str, Any] = {}
        self._damaged: set[Path] = set()
        self._began = self._last = 0.0
        self._warned = self._cleared = False

    def __enter__(self) -> "Checkpoints":
        """Take the lock."""
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            raise InputError(
                f"the place for checkpoints must be a folder; got {self.folder}, which is none"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = try_lock(self.folder / LOCK)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"the folder for checkpoints must be writable; got {self.folder} ({reason})"
            ) from error
        if lock is None:
            raise InputError(
                "a run must have its folder to itself; "
                f"got {self.folder}, which another process is at work in"
            )
        if self.files() and not self.resume:
            lock.close()
            raise InputError(
                "a new run must begin without checkpoints of an unfinished one; "
                f"got {self.folder} (--resume goes on from there, removing it starts over)"
            )
        for leftover in self.folder.glob(".checkpoint-*"):  # of a write that was killed
            _remove(leftover)
        self._lock, self._cleared = lock, False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        if not self.files() and not self._cleared:  # else it may be another's by now
            self._clear()
        self._lock.close()
        self._lock = None

    def begin(self, run: dict[str, Any], restore: Callable[[Saved], object]) -> Saved | None:
        """Go on from the newest whole checkpoint of ``run``, if there is one; start the clock.

        Args:
            run: All that its result depends on, as JSON can hold it.
            restore: Lets it go on from what was saved.
        """
        assert self._lock is not None
        self._run = json.loads(json.dumps(run | {"versions": versions()}))
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
        """Save the run if it is time to.

        Args:
            parts: All that changes in it, by name.
            facts: What else to go on from, as JSON can hold it.
        """
        now = time.monotonic()
        if now - self._last < self.every_seconds:
            return
        self._last = now
        newest = max(map(_number, self.files()), default=0)
        path = self.folder / f"checkpoint-{newest + 1:06d}.safetensors"
        seconds = self.seconds_before + now - self._began
        meta = {"run": self._run, "facts": (facts or {}) | {"seconds": seconds}}
        try:
            tensors: dict[str, Tensor] = {}
            for name, part in parts.items():
                tensors |= prefixed(name, part.state())
            save_tensors(path, "checkpoint", tensors, meta)
        except (InputError, MemoryError) as error:
            if not self._warned:
                self._warned = True
                kept = "the last one stays" if self.files() else "there is none yet"
                reason = str(error) or "no memory left"
                _warn(f"a checkpoint was not written, {kept} and training goes on: {reason}")
            return
        whole = [path for path in self.files() if path not in self._damaged]
        for old in whole[: -self.keep]:
            _remove(old)

    def remove(self) -> None:
        """Remove the folder: the run has ended well and its result is safe."""
        with held(self):
            self._clear()

    def files(self) -> list[Path]:
        """The checkpoints, from old to new."""
        try:
            found = [path for path in self.folder.iterdir() if NAME.fullmatch(path.name)]
        except OSError:  # no folder
            return []
        return sorted(found, key=_number)

    @property
    def locked(self) -> bool:
        """Whether this process has the folder to itself already."""
        return self._lock is not None

    def _newest(self) -> Saved | None:
        for path in reversed(self.files()):
            try:
                tensors, meta = load_tensors(path, "checkpoint", signed=True)
            except InputError as error:
                self._damaged.add(path)
                older = any(other not in self._damaged for other in self.files())
                start = "the one before is used" if older else "the run starts from the beginning"
                _warn(f"a checkpoint cannot be used, {start}: {error}")
                continue
            differing = _differences(meta["run"], self._run)
            if differing:
                more = len(differing) - DIFFERENCES_SHOWN
                raise InputError(
                    f"checkpoints must be of the same run; got {self.folder}, which differs in "
                    f"{', '.join(differing[:DIFFERENCES_SHOWN])}"
                    f"{f' and {more} more' if more > 0 else ''}"
                )
            return Saved(tensors, meta["facts"])
        return None

    def _clear(self) -> None:
        """Remove what is ours, and the folder if nothing else is in it."""
        for path in [*self.files(), *self.folder.glob(".checkpoint-*"), self.folder / LOCK]:
            _remove(path)
        with suppress(OSError):  # something else is in it
            self.folder.rmdir()
        self._cleared = True


def held(checkpoints: Checkpoints | None) -> AbstractContextManager[object]:
    """A block in which this process has the folder to itself, if there is one."""
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        raise InputError(f"checkpoints must be a Checkpoints; got {type(checkpoints).__name__}")
    return nullcontext() if checkpoints is None or checkpoints.locked else checkpoints


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


def learner_identity(learner: StructureLearner) -> str:
    """A fingerprint of weights and configuration."""
    return checksum(dict(learner.state_dict()), asdict(learner.config))[:16]


def versions() -> dict[str, str]:
    """Of what computes: another one may round differently."""
    return {"graphglow": __version__, "torch": str(torch.__version__)}


def _differences(saved: Any, run: dict[str, Any]) -> list[str]:
    """What of two runs is not the same, in words."""
    there, here = dict(_flat(saved)), dict(_flat(run))
    differing = [n for n in {**there, **here} if there.get(n) != here.get(n)]
    named = {n.removesuffix("name") for n in differing if n.endswith(".name")}
    differing = [n for n in differing if n.removesuffix("content") not in named]
    said = [_said(n, there.get(n, "none"), here.get(n, "none")) for n in differing]
    return list(dict.fromkeys(said))


def _said(name: str, there: object, here: object) -> str:
    """A difference in words; fingerprints say nothing to people."""
    part, _, rest = name.partition(".")
    words = {
        "config": f"the setting {rest}",
        "versions": f"the version of {rest}",
        "sources": f"source {rest.partition('.')[0]}",
    }
    what = words.get(part, f"the {part}")
    if name.endswith(".content"):
        return f"{what} or its split"
    return what if name == "learner" else f"{what} ({there} there, {here} here)"


def _flat(facts: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every fact."""
    if isinstance(facts, list):
        facts = {str(i + 1): value for i, value in enumerate(facts)}
    if not isinstance(facts, dict):
        yield path, facts
        return
    for name, value in facts.items():
        yield from _flat(value, f"{path}.{name}" if path else name)


def _number(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is no harm where it is
        path.unlink(missing_ok=True)


def _warn(sentence: str) -> None:
    warnings.warn(InputWarning(sentence), stacklevel=2)
