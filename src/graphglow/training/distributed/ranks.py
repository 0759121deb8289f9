"""The processes of one job: who is there, how they sum and swap tensors, and what it cost.

    torchrun --nproc-per-node 2 -m graphglow transfer --learner universal --target FOLDER

The loss of a job is the sum of what its ranks compute. So the gradient of a sum over ranks is again
a sum over ranks, and the gradient of rows that were sent comes back to where they came from.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from graphglow.errors import InputError, StoppedError

TIMEOUT_SECONDS = 600.0
"""A rank waits so long for the others; ``GRAPHGLOW_RANK_TIMEOUT`` says otherwise."""


class RankLostError(StoppedError):
    """Another rank has ended, or does not answer in time: this one cannot go on."""


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
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    timeout_seconds: float = TIMEOUT_SECONDS
    traffic: Traffic = field(default_factory=Traffic)

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
        self._call(lambda: dist.all_gather(parts, x))
        self.traffic.sent += (self.size - 1) * x.numel() * x.element_size()
        return torch.stack(parts)

    def wait(self) -> None:
        """Until all ranks are here."""
        self.total(torch.zeros(1, device=self.device)).sum().item()

    def _sum_(self, x: Tensor) -> Tensor:
        self._call(lambda: dist.all_reduce(x))
        self.traffic.sent += 2 * (self.size - 1) / self.size * x.numel() * x.element_size()
        return x

    def _swap(self, rows: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        rows = rows.contiguous()
        out = rows.new_empty(sum(receives), *rows.shape[1:])
        self._call(lambda: dist.all_to_all_single(out, rows, receives, sends))
        away = sum(sends) - sends[self.rank]
        self.traffic.sent += away * rows[:1].numel() * rows.element_size() if away else 0
        return out

    def _call(self, collective: Callable[[], Any]) -> None:
        """Run a collective; say in one sentence what its failure means."""
        try:
            collective()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise RankLostError(
                f"all ranks must answer within {self.timeout_seconds:g} s; rank {self.rank} of "
                f"{self.size} lost another one, which has ended or hangs ({_first_line(error)})"
            ) from error


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


def world_size() -> int:
    """How many processes ``torchrun`` has started; 1 without it."""
    return _from_environment("WORLD_SIZE", 1)


@contextmanager
def join(
    device: str = "auto",
    *,
    timeout_seconds: float | None = None,
    init_method: str = "env://",
    rank: int | None = None,
    size: int | None = None,
) -> Iterator[Ranks]:
    """Meet the other ranks: NCCL between GPUs, gloo between CPUs.

    A group that is there already, from an outer ``join`` or made by the caller, is used and left.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``; on GPUs, each rank of a machine has one of its own.
        timeout_seconds: How long a rank waits for the others before it gives up; by default
            ``GRAPHGLOW_RANK_TIMEOUT``, else :data:`TIMEOUT_SECONDS`.
        init_method: Where the ranks find each other; by default where torchrun says.
        rank: By default what torchrun says.
        size: By default what torchrun says.
    """
    size = world_size() if size is None else size
    rank = _from_environment("RANK", 0) if rank is None else rank
    seconds = _timeout() if timeout_seconds is None else timeout_seconds
    here = _device(device)
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size(), here, seconds)
        return
    if size == 1:
        yield Ranks(device=here, timeout_seconds=seconds)
        return
    if init_method == "env://" and "MASTER_ADDR" not in os.environ:
        raise InputError(
            f"several processes must be started by torchrun; got WORLD_SIZE={size} alone"
        )
    ranks = Ranks(rank, size, here, seconds)
    ranks._call(
        lambda: dist.init_process_group(
            "nccl" if here.type == "cuda" else "gloo",
            init_method=init_method,
            timeout=timedelta(seconds=seconds),
            rank=rank,
            world_size=size,
        )
    )
    try:
        ranks.wait()
        yield ranks
        ranks.wait()  # none leaves while another still works
    except RankLostError:
        _let_threads_finish()
        raise  # leaving in order would wait for the lost one
    except BaseException:
        _let_threads_finish()
        with suppress(RuntimeError):
            dist.destroy_process_group()
        raise
    else:
        _let_threads_finish()
        dist.destroy_process_group()


def _let_threads_finish() -> None:
    """Before a group goes: gloo's threads may need the interpreter to give back the last tensors.

    Older versions (PyTorch 2.6) wait for those threads without letting them have it, for ever.
    """
    time.sleep(0.2)


def _device(name: str) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    local, count = _from_environment("LOCAL_RANK", 0), torch.cuda.device_count()
    if local >= count:
        raise InputError(
            f"each rank of a machine must have a GPU of its own ({count} here), or pass "
            f"--device cpu; got local rank {local}"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _from_environment(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise InputError(f"{name} must be a whole number, as torchrun sets it; got {text!r}")
    return int(text)


def _timeout() -> float:
    text = os.environ.get("GRAPHGLOW_RANK_TIMEOUT", str(TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"GRAPHGLOW_RANK_TIMEOUT must be a number of seconds > 0; got {text!r}")
    return seconds


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
