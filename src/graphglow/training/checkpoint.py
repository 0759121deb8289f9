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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from torch import Tensor

from graphglow.checks import at_least, number
from graphglow.errors import InputError, InputWarning
from graphglow.storage import load_tensors, prefixed, save_tensors, try_lock
from graphglow.training.run_identity import check_same_run, versions
from graphglow.training.run_state import Part as Part
from graphglow.training.run_state import Saved

NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
LOCK = "lock"


Restore = Callable[[Saved], object]
"""Lets a run go on from a checkpoint, or raises before anything of it has changed."""


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
        self._depth = 0
        self._run: dict[str, Any] = {}
        self._damaged: set[Path] = set()
        self._began = self._last = 0.0
        self._said: set[str] = set()

    def __enter__(self) -> "Checkpoints":
        """Take the lock; a block inside a block changes nothing."""
        if self._depth == 0:
            self._open()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            if not self.files():
                self._clear()
            self._close()

    def begin(self, run: dict[str, Any], restore: Restore | None = None) -> Saved | None:
        """Return the newest whole checkpoint of ``run``, if there is one, and start the clock.

        Args:
            run: All that its result depends on, as JSON can hold it.
            restore: Goes on from it. One that this refuses counts as damaged: the one before is
                tried. Without it, that is the caller's to do.
        """
        assert self._lock is not None
        self._run = json.loads(json.dumps(run | {"versions": versions()}))
        found = self._newest(restore)
        self._began = self._last = time.monotonic()
        if found is None:
            return None
        self.resumed = True
        self.seconds_before = float(found.facts["seconds"])
        return found

    def offer(self, parts: Mapping[str, Part], facts: dict[str, Any] | None = None) -> None:
        """Save the run if it is time to, or if what was saved has vanished.

        Args:
            parts: All that changes in it, by name.
            facts: What else to go on from, as JSON can hold it.
        """
        now = time.monotonic()
        try:
            vanished = self._made_anew()
            if not vanished and now - self._last < self.every_seconds:
                return
            self._last = now
            taken = [_number(path) for path in self.files()]
            path = self.folder / f"checkpoint-{max(taken, default=0) + 1:06d}.safetensors"
            seconds = self.seconds_before + now - self._began
            meta = {"run": self._run, "facts": (facts or {}) | {"seconds": seconds}}
            tensors: dict[str, Tensor] = {}
            for name, part in parts.items():
                tensors |= prefixed(name, part.state())
            save_tensors(path, "checkpoint", tensors, meta)
            self._made_anew()  # or a folder that was removed just now is back without its lock
        except (InputError, MemoryError) as error:
            kept = "the last one stays" if self.files() else "there is none yet"
            reason = str(error) or "no memory left"
            self._say_once(f"a checkpoint was not written, {kept} and training goes on", reason)
            return
        self._prune()

    def remove(self) -> None:
        """Remove the folder: the run has ended well and its result is safe."""
        with self:
            self._clear()

    def files(self) -> list[Path]:
        """The checkpoints, from old to new."""
        try:
            found = [path for path in self.folder.iterdir() if NAME.fullmatch(path.name)]
        except OSError:  # no folder
            return []
        return sorted(found, key=_number)

    def _open(self) -> None:
        self._lock = self._take_lock()
        if self.files() and not self.resume:
            self._close()
            raise InputError(
                "a new run must begin without checkpoints of an unfinished one; "
                f"got {self.folder} (--resume goes on from there, removing it starts over)"
            )
        for leftover in self.folder.glob(".checkpoint-*"):  # of a write that was killed
            leftover.unlink(missing_ok=True)

    def _take_lock(self) -> BinaryIO:
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
        return lock

    def _close(self) -> None:
        assert self._lock is not None
        self._lock.close()
        self._lock = None

    def _made_anew(self) -> bool:
        """Make the folder and its lock again where somebody has removed them; whether that was."""
        if self._holds_lock():
            return False
        lock = self._take_lock()
        self._close()
        self._lock = lock
        self._say_once(
            "the folder for checkpoints was removed and is made anew, training goes on", self.folder
        )
        return True

    def _newest(self, restore: Restore | None) -> Saved | None:
        for path in reversed(self.files()):
            try:
                tensors, meta = load_tensors(path, "checkpoint", signed=True)
                run, found = meta["run"], Saved(tensors, dict(meta["facts"]))
                float(found.facts["seconds"])
            except (InputError, LookupError, TypeError, ValueError) as error:
                self._pass_over(path, error)
                continue
            check_same_run(run, self._run, self.folder)
            try:
                if restore is not None:
                    restore(found)
            except (InputError, LookupError, TypeError, ValueError) as error:
                self._pass_over(path, error)
                continue
            return found
        return None

    def _pass_over(self, path: Path, error: Exception) -> None:
        """Say that a checkpoint is damaged."""
        self._damaged.add(path)
        older = any(other not in self._damaged for other in self.files())
        start = "the one before is used" if older else "the run starts from the beginning"
        reason = error if isinstance(error, InputError) else "a part of it is not there"
        named = "" if path.name in str(reason) else f"{path}: "
        _warn(f"a checkpoint cannot be used, {start}: {named}{reason}")

    def _say_once(self, what: str, reason: object) -> None:
        if what not in self._said:
            self._said.add(what)
            _warn(f"{what}: {reason}")

    def _prune(self) -> None:
        """Remove all that is older than the oldest to be kept; damaged ones do not count."""
        files = self.files()
        whole = [path for path in files if path not in self._damaged]
        for path in files[: files.index(whole[-self.keep :][0])] if whole else ():
            _remove(path)

    def _clear(self) -> None:
        """Remove what is ours, and the folder if nothing else is in it."""
        if not self._holds_lock():  # removed before; what is there now is another's
            return
        for path in [*self.files(), *self.folder.glob(".checkpoint-*"), self.folder / LOCK]:
            _remove(path)
        with suppress(OSError):  # something else is in it
            self.folder.rmdir()

    def _holds_lock(self) -> bool:
        assert self._lock is not None
        try:
            here = (self.folder / LOCK).stat()
        except OSError:
            return False
        return os.path.samestat(os.fstat(self._lock.fileno()), here)


def held(checkpoints: Checkpoints | None) -> AbstractContextManager[object]:
    """A block in which this process has the folder to itself, if there is one."""
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        raise InputError(f"checkpoints must be a Checkpoints; got {type(checkpoints).__name__}")
    return checkpoints or nullcontext()


def _number(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _remove(path: Path) -> None:
    with suppress(OSError):  # it is no harm where it is
        path.unlink(missing_ok=True)


def _warn(sentence: str) -> None:
    warnings.warn(InputWarning(sentence), stacklevel=2)
