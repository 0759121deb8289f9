"""One step for many blocks, done by several processes or machines, to the same bytes as by one.

What is known of the whole lies where all workers see it without a copy of their own: in files that
they map into memory, or in Ray's object store. A worker that dies costs the blocks it was at, which
are done again. Results can be kept as parts, from which a job that was killed goes on.
"""

import copy
import secrets
import sys
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from graphglow.errors import StoppedError
from graphglow.settings import Device
from graphglow.workers.executor import (
    RETRIES,
    InThisProcess,
    Processes,
    RunFailed,
    WorkerLost,
    open_executor,
    result_of,
)

MAPPED = 2**16
"""Bytes from which on a tensor is a file that workers map, and is not sent with every block."""
AHEAD = 4
"""Blocks that are handed out before they are needed, for each worker."""

Known = TypeVar("Known")
Block = TypeVar("Block")
Result = TypeVar("Result")


class Parts(Protocol):
    """Where results are kept, by the name of the step and the number of the block."""

    def load(self, stage: str, number: int) -> Tensor | None: ...

    def keep(self, stage: str, number: int, part: Tensor) -> None: ...


class Blocks:
    """Does a step for every block, and gives the results in the order of the blocks.

    Args:
        processes: How many at the same time; None: one per core, or what the cluster has.
        ray: The address of a Ray cluster; None stays on this machine.
        device: What steps compute on.
        parts: Where results that are tensors are kept and looked for.
    """

    def __init__(
        self,
        processes: int | None = None,
        ray: str | None = None,
        *,
        device: Device = "auto",
        parts: Parts | None = None,
    ) -> None:
        self._how = (processes, ray, device)
        self.parts = parts

    def __enter__(self) -> "Blocks":
        processes, ray, device = self._how
        with ExitStack() as opened:
            self._folder = Path(
                opened.enter_context(tempfile.TemporaryDirectory(prefix="graphglow-"))
            )
            self._files = WeakIdKeyDictionary()
            self._workers = opened.enter_context(open_executor(processes, ray, device=device))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def __call__(
        self,
        stage: str,
        step: Callable[[Known, Block], Result],
        known: Known,
        blocks: Sequence[Block],
    ) -> Iterator[Result]:
        """Results of ``step``, a pure function of a module; ``stage`` is its name in this job."""
        found: dict[int, Any] = {}
        if self.parts is not None:
            there = ((i, self.parts.load(stage, i)) for i in range(len(blocks)))
            found = {i: part for i, part in there if part is not None}
        made = self._made(
            stage, step, known, {i: b for i, b in enumerate(blocks) if i not in found}
        )
        for i in range(len(blocks)):
            while i not in found:
                number, result = next(made)
                if self.parts is not None:
                    self.parts.keep(stage, number, result)
                found[number] = result
            yield found.pop(i)

    def _made(
        self, stage: str, step: Callable[[Any, Any], Any], known: Any, blocks: dict[int, Any]
    ) -> Iterator[tuple[int, Any]]:
        """Number and result of each block, as they are done."""
        if not blocks:
            return
        job = self._job(step, known)
        left, running, lost = deque(blocks), dict[Future[Any], int](), 0
        while left or running:
            try:
                while left and len(running) < AHEAD * self._workers.processes:
                    running[job(blocks[left[0]])] = left[0]
                    left.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = mapped(result_of(future), Stored, Stored.own)
                    lost = 0
                    yield running.pop(future), result
            except (BrokenProcessPool, WorkerLost, RunFailed) as error:
                lost += 1
                if lost > RETRIES or isinstance(error, RunFailed):  # Ray has tried again itself
                    raise StoppedError(
                        f"{stage} must end before its workers; got some that died of it "
                        f"{RETRIES + 1} times in a row (for lack of memory, --workers 1 needs less)"
                    ) from error
                left.extendleft(running.values())
                running.clear()
                processes, ray, device = self._how
                self._workers.shutdown()
                self._workers = open_executor(processes, ray, device=device)
                self._open.push(self._workers)

    def _job(self, step: Callable[[Any, Any], Any], known: Any) -> Callable[[Any], Future[Any]]:
        """Hands out one block; what is known is shared once, as files or in Ray's store."""
        if isinstance(self._workers, InThisProcess):
            return lambda block: self._workers.submit(step, known, block)
        if isinstance(self._workers, Processes):
            shared = mapped(known, Tensor, self._stored)
        else:
            ray: Any = sys.modules["ray"]
            shared = ray.put(mapped(known, Tensor, cache(Stored.of)))  # each once, as one object
        what = (secrets.token_hex(8), shared, step)
        return lambda block: self._workers.submit(_done, *what, mapped(block, Tensor, Stored.of))

    def _stored(self, tensor: Tensor) -> "Stored":
        if tensor.layout != torch.strided or tensor.nbytes < MAPPED:
            return Stored.of(tensor)
        if tensor not in self._files:
            path = self._folder / f"{secrets.token_hex(8)}.npy"
            try:
                np.save(path, tensor.detach().cpu().numpy())
            except OSError as error:
                why = error.strerror or "too little room"  # numpy has no word for a full disk
                raise StoppedError(
                    f"what workers share must fit in {self._folder.parent}; got {why} "
                    "(TMPDIR names another place)"
                ) from error
            self._files[tensor] = str(path)
        return Stored(str(tensor.device), None, self._files[tensor])


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor on its way to another process: its numbers, or the file that has them."""

    device: str
    array: Any
    path: str = ""

    @staticmethod
    def of(tensor: Tensor) -> "Stored":
        if tensor.layout != torch.strided:
            entries = tensor.to_sparse().coalesce()
            parts = [Stored.of(part) for part in (entries.indices(), entries.values())]
            return StoredSparse(str(tensor.device), (*parts, tensor.shape))
        return Stored(str(tensor.device), tensor.detach().cpu().numpy())

    def tensor(self) -> Tensor:
        """Not to be written to: others may see the same memory."""
        array = np.load(self.path, mmap_mode="c") if self.path else self.array
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is not to be written to
            return torch.from_numpy(array).to(self.device)

    def own(self) -> Tensor:
        """In memory of its own."""
        return torch.tensor(self.array, device=self.device)


class StoredSparse(Stored):
    """Its array is those of places and values, and the shape."""

    def tensor(self) -> Tensor:
        places, values, shape = self.array
        return torch.sparse_coo_tensor(
            places.tensor(), values.tensor(), shape, is_coalesced=True, check_invariants=False
        )


def mapped(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The same with whatever is of a kind changed, in containers, graphs, and objects of ours."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {name: mapped(value, kind, change) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, kind, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(value, kind, change) for value in tree)
    if isinstance(tree, Data):
        return Data.from_dict(mapped(tree.to_dict(), kind, change))
    if isinstance(tree, nn.Module) or type(tree).__module__.startswith("graphglow."):
        other = copy.copy(tree)  # with what cached properties hold
        vars(other).update(mapped(vars(tree), kind, change))
        return other
    return tree


def loaded(tree: Any) -> Any:
    """The same with the tensors that were stored."""
    return mapped(tree, Stored, lambda stored: stored.tensor())


_last: tuple[str, Any] = ("", None)
"""In a worker: the name of what it knows, and that."""


@torch.no_grad()
def _done(name: str, shared: Any, step: Callable[[Any, Any], Any], block: Any) -> Any:
    """In a worker: open what is known, unless it is open, and do one block."""
    global _last
    if _last[0] != name:
        _last = ("", None)  # before the next is opened, the last is closed
        ray: Any = sys.modules.get("ray")
        if ray is not None and isinstance(shared, ray.ObjectRef):
            shared = ray.get(shared)
        _last = (name, loaded(shared))
    return mapped(step(_last[1], loaded(block)), Tensor, Stored.of)
