"""The processes of one job: who is there, how they sum and swap tensors, and what it cost.

    torchrun --nproc-per-node 2 -m graphglow transfer --learner universal --target FOLDER

The loss of a job is the sum of what its ranks compute. So the gradient of a sum over ranks is again
a sum over ranks, and the gradient of rows that were sent comes back to where they came from.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from graphglow.errors import InputError, StoppedError

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
    """This process among ``size`` of them. Alone, nothing is sent and no group is needed.

    Args:
        rank: From 0.
        size: R.
        device: Where this rank computes.
        timeout_seconds: How long it waits for the others.
        traffic: What it has sent.
        store: A ``torch.distributed`` store, or None: what is said there outlives the rank.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    timeout_seconds: float = TIMEOUT_SECONDS
    traffic: Traffic = field(default_factory=Traffic)
    store: Any = None

    def total(self, x: Tensor) -> Tensor:
        """The sum of x over all ranks, the same bits on each; differentiable."""
        if self.size == 1:
            return x
        out: Tensor = _Total.apply(x, self)  # type: ignore[no-untyped-call]
        return out

    def swap(self, rows: Tensor, sends: Sequence[int], receives: Sequence[int]) -> Tensor:
        """Send ``sends[s]`` of the rows to rank s, in order, and get ``receives[s]`` from it.

        Differentiable.

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

    def call(self, collective: Callable[[], Any]) -> None:
        """Run a collective; say in one sentence what its failure means."""
        began = time.monotonic()
        try:
            collective()
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
        if waited < 0.9 * self.timeout_seconds:
            return RankLostError(f"rank {self.rank} of {self.size} lost another one, which ended")
        return RankLostError(
            f"all ranks must answer within {self.timeout_seconds:g} s (GRAPHGLOW_RANK_TIMEOUT); "
            f"rank {self.rank} of {self.size} lost another one, which has ended or hangs"
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
