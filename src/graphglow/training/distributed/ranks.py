"""The processes of one job: who is there, how they sum and swap tensors, and what it cost.

    torchrun --nproc-per-node 2 -m graphglow transfer --learner paper --target FOLDER

The loss of a job is the sum of what its ranks compute. So the gradient of a sum over ranks is again
a sum over ranks, and the gradient of rows that were sent comes back to where they came from.

A rank owns a stretch of the nodes. Its rows of a sparse matrix name columns of its own nodes and of
others', its halo. A product first swaps the halo's values, rows that some shard needs and no
others, and is then a local one. Backwards the halo's gradients travel home and are added there.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
from torch import Tensor

from graphglow.errors import InputError, StoppedError
from graphglow.ops.sparse import SparseMatrix
from graphglow.training.distributed.graph_arrays import Array, distinct

T = TypeVar("T")

TIMEOUT_SECONDS = 600.0
"""A rank waits so long for the others; ``GRAPHGLOW_RANK_TIMEOUT`` says otherwise."""
WORDS = "last words"
"""Where a rank that must give up leaves its reason for the others."""


class RankLostError(StoppedError):
    """Another rank has ended, or does not answer in time: this one cannot go on."""


class HeardError(InputError):
    """Bad input that another rank has come upon, and speaks of."""


@dataclass
class Traffic:
    """Bytes that this rank has sent to others.

    A sum over R ranks of n bytes counts as a ring makes it, 2 (R - 1) / R * n; swapped rows count
    as they are.
    """

    sent: float = 0.0


@dataclass(frozen=True)
class Ranks:
    """This process among ``size`` of them. Alone, nothing is sent and no group is needed."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    timeout_seconds: float = TIMEOUT_SECONDS
    traffic: Traffic = field(default_factory=Traffic)
    store: Any = None
    """A ``torch.distributed`` store, or None: what is said there outlives the rank."""

    def total(self, x: Tensor) -> Tensor:
        """The sum of x over all ranks, the same bits on each; differentiable."""
        if self.size == 1:
            return x
        out: Tensor = _Total.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def swap(self, rows: Tensor, sends: Sequence[int], receives: Sequence[int]) -> Tensor:
        """Send ``sends[s]`` rows to rank s, in order, get ``receives[s]`` back; differentiable.

        Shapes:
            rows [sum(sends), ..] -> [sum(receives), ..]
        """
        assert len(sends) == len(receives) == self.size
        if self.size == 1:
            return rows
        out: Tensor = _Swap.apply(rows, list(sends), list(receives), self)  # type: ignore[no-untyped-call]
        return out

    @torch.no_grad()
    def gather(self, x: Tensor) -> Tensor:
        """The x of every rank, which all have one shape: [R, ..]."""
        if self.size == 1:
            return x[None]
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(self.size)]
        self.call(lambda: dist.all_gather(parts, x))
        self.traffic.sent += (self.size - 1) * x.numel() * x.element_size()
        return torch.stack(parts)

    def texts(self, own: str) -> list[str]:
        """What every rank has to say, in their order."""
        data = torch.tensor(list(own.encode()), dtype=torch.uint8, device=self.device)
        sizes = self.gather(torch.tensor(len(data), device=self.device)).tolist()
        padded = data.new_zeros(max(sizes))
        padded[: len(data)] = data
        rows = self.gather(padded).cpu()
        return [bytes(row[:n].tolist()).decode() for row, n in zip(rows, sizes, strict=True)]

    def sent_by(self, source: int, data: bytes = b"") -> bytes:
        """The bytes that rank ``source`` has; what others give is passed over."""
        if self.size == 1:
            return data
        size = torch.tensor([len(data)], device=self.device)
        self.call(lambda: dist.broadcast(size, source))
        buffer = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        if self.rank == source:
            buffer.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else buffer)
            self.traffic.sent += (self.size - 1) * len(data)
        self.call(lambda: dist.broadcast(buffer, source))
        return buffer.cpu().numpy().tobytes()

    def wait(self) -> None:
        """Until all ranks are here."""
        self.total(torch.zeros(1, device=self.device)).sum().item()

    def _sum_(self, x: Tensor) -> Tensor:
        self.call(lambda: dist.all_reduce(x))
        self.traffic.sent += 2 * (self.size - 1) / self.size * x.numel() * x.element_size()
        return x

    def _swap(self, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        rows = rows.contiguous()
        out = rows.new_empty(sum(receives), *rows.shape[1:])
        self.call(lambda: dist.all_to_all_single(out, rows, receives, sends))
        away = sum(sends) - sends[self.rank]
        self.traffic.sent += away * rows[:1].numel() * rows.element_size() if away else 0
        return out

    def call(self, collective: Callable[[], T]) -> T:
        """Run a collective; say in one sentence what its failure means."""
        began = time.monotonic()
        try:
            return collective()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise self._lost(time.monotonic() - began) from error

    def _lost(self, waited: float) -> Exception:
        """What to raise where another rank is lost: its reason, if it could leave one."""
        with suppress(RuntimeError):  # the store may be gone too
            if self.store is not None and self.store.check([WORDS]):
                who, blamed, words = json.loads(self.store.get(WORDS))
                kind = HeardError if blamed else RankLostError
                return kind(f"rank {who} of {self.size} has ended: {words}")
        own = f"rank {self.rank} of {self.size} lost another one, which"
        if waited < 0.9 * self.timeout_seconds:
            return RankLostError(f"{own} ended")
        return RankLostError(
            f"all ranks must answer within {self.timeout_seconds:g} s (GRAPHGLOW_RANK_TIMEOUT); "
            f"{own} has ended or hangs"
        )

    def leave_words(self, error: BaseException) -> None:
        """Let the others know why this rank ends: they will miss it in their next exchange."""
        if self.store is None or isinstance(error, RankLostError | HeardError):
            return
        words = str(error) if isinstance(error, InputError | StoppedError) else repr(error)
        with suppress(RuntimeError):
            self.store.set(WORDS, json.dumps([self.rank, isinstance(error, InputError), words]))


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks._sum_(x.clone(memory_format=torch.contiguous_format))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks._sum_(grad.clone(memory_format=torch.contiguous_format)), None


class _Swap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sends: list[int], receives: list[int], ranks: Ranks
    ) -> Tensor:
        ctx.sends, ctx.receives, ctx.ranks = sends, receives, ranks
        return ranks._swap(rows, sends, receives)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.ranks._swap(grad, ctx.receives, ctx.sends), None, None, None


@dataclass(frozen=True, eq=False)
class Halo:
    """Which rows a rank sends to each other one, and how many it gets.

    Shapes:
        rows [S] local rows in the order they are sent; sends, receives: [R] counts
    """

    ranks: Ranks
    rows: Tensor
    sends: tuple[int, ...]
    receives: tuple[int, ...]

    def __call__(self, v: Tensor) -> Tensor:
        """The values of the halo's nodes: v [N_r, F] of the own ones -> [H, F]."""
        return self.ranks.swap(v.index_select(0, self.rows), self.sends, self.receives)

    @property
    def size(self) -> int:
        """H: nodes of others that the own rows name."""
        return sum(self.receives)

    @property
    def sent(self) -> int:
        """S: rows sent in one product."""
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class HaloMatrix(SparseMatrix):
    """A rank's rows of an ``[N, N]`` matrix: its columns are the own nodes, then the halo.

    ``@`` takes and gives what belongs to the own nodes, like that of the whole matrix: a backbone
    that only multiplies by the adjacency need not know of shards.

    Shapes:
        [N_r, N_r + H];  v [N_r, F] -> [N_r, F]
    """

    halo: Halo = field(kw_only=True)

    def __matmul__(self, dense: Tensor) -> Tensor:
        assert dense.ndim == 2  # one run
        if self.halo.ranks.size == 1:
            return super().__matmul__(dense)
        return super().__matmul__(torch.cat([dense, self.halo(dense)]))

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "HaloMatrix":
        halo = replace(self.halo, rows=self.halo.rows.to(device))
        return _with_halo(super().to(device, dtype), halo)


def halo_matrix(crow: Array, col: Array, values: Array, starts: Array, ranks: Ranks) -> HaloMatrix:
    """Lay out this rank's rows and agree with the others on what to send; on the rank's device.

    Columns are numbers of the whole matrix; rank s owns the nodes ``starts[s] .. starts[s+1] - 1``.

    Shapes:
        crow [N_r + 1], col [E_r], values [E_r], starts [R + 1]
    """
    begin, end = int(starts[ranks.rank]), int(starts[ranks.rank + 1])
    away = (col < begin) | (col >= end)
    halo = distinct(col[away])  # sorted, so by owner
    receives = np.diff(np.searchsorted(halo, starts))
    ones = [1] * ranks.size
    sends = ranks.swap(torch.from_numpy(receives).to(ranks.device), ones, ones).tolist()
    wanted = ranks.swap(torch.from_numpy(halo).to(ranks.device), receives.tolist(), sends)
    local = np.where(away, end - begin + np.searchsorted(halo, col), col - begin)
    shape = (end - begin, end - begin + len(halo))
    matrix = SparseMatrix.from_scipy(sp.csr_array((values, local, crow), shape=shape))
    exchange = Halo(ranks, wanted - begin, tuple(sends), tuple(receives.tolist()))
    return _with_halo(matrix.to(ranks.device), exchange)


def _with_halo(matrix: SparseMatrix, halo: Halo) -> HaloMatrix:
    parts = {f.name: getattr(matrix, f.name) for f in fields(SparseMatrix)}
    return HaloMatrix(**parts, halo=halo)
