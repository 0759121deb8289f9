"""How ranks find each other, also where torchrun has started them once before.

torchrun keeps one store of keys for all its starts. A rank that starts again would find there the
addresses of ranks that are dead; so the living first agree on a name for their keys.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from graphglow.errors import InputError
from graphglow.training.distributed.ranks import TIMEOUT_SECONDS, RankLostError, Ranks

LONGEST_TIMEOUT = 30 * 86_400.0
"""Seconds: what a clock can count is not unlimited."""
PAUSE = 0.02
"""Seconds between two looks at the store."""


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
        rank: By default what torchrun says, and so is ``size``.
        size: How many there are.
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
    ranks, in_order = _group(Ranks(rank, size, here, seconds), init_method), True
    try:
        ranks.wait()
        yield ranks
        ranks.wait()  # none leaves while another still works
    except BaseException as error:
        ranks.leave_words(error)
        in_order = not isinstance(error, RankLostError)  # else it would wait for the lost one
        raise
    finally:
        # gloo's threads may need the interpreter to give back the last tensors: older versions
        # (PyTorch 2.6) wait for those threads without letting them have it, for ever
        time.sleep(0.2)
        if in_order:
            with suppress(RuntimeError):
                dist.destroy_process_group()


def _group(ranks: Ranks, init_method: str) -> Ranks:
    """Make the group of all ranks, and give them a store."""
    kind, patience = ranks.device.type, timedelta(seconds=ranks.timeout_seconds)

    def make() -> tuple[Store, list[str]]:
        store, rank, size = next(rendezvous(init_method, ranks.rank, ranks.size, timeout=patience))
        store.set_timeout(patience)
        store, kinds = meet(store, rank, size, kind, ranks.timeout_seconds)
        if len(set(kinds)) == 1:
            backend = "nccl" if kind == "cuda" else "gloo"
            dist.init_process_group(
                backend, store=store, timeout=patience, rank=rank, world_size=size
            )
        return store, kinds

    store, kinds = ranks.call(make)
    if len(set(kinds)) > 1:
        raise InputError(f"ranks must all compute on cpu, or all on cuda; got {', '.join(kinds)}")
    return replace(ranks, store=PrefixStore("graphglow", store))


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
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise InputError(
            "GRAPHGLOW_RANK_TIMEOUT must be a number of seconds > 0, and at most "
            f"{LONGEST_TIMEOUT:.0f}; got {text!r}"
        )
    return seconds


def meet(store: Store, rank: int, size: int, word: str, seconds: float) -> tuple[Store, list[str]]:
    """Return keys of the store that no earlier start has used, and the word of every rank.

    Each rank says that it is here, under a number of its own. Rank 0 makes a plan of whom it sees;
    one that finds its number in the plan agrees, and with all agreed it holds. A plan with a dead
    rank in it is agreed to by nobody in its place, and is made again.

    Raises:
        RuntimeError: Not all ranks came in time.
    """
    own, end = uuid4().hex, time.monotonic() + seconds
    store.set(f"here {rank}", json.dumps([own, word]))
    name = ""
    here: list[Any] = []
    while time.monotonic() < end:
        if rank == 0:
            seen = [_read(store, f"here {r}") for r in range(size)]
            if None not in seen and seen != here:
                name, here = uuid4().hex, seen
                store.set("plan", json.dumps([name, here]))
            if here and store.check([f"{name} {r}" for r in range(1, size)]):
                store.set(f"{name} holds", "1")
                break
        else:
            plan = _read(store, "plan")
            if plan is not None and plan[0] != name and plan[1][rank][0] == own:
                name, here = plan
                store.set(f"{name} {rank}", "1")
            if here and store.check([f"{name} holds"]):
                break
        time.sleep(PAUSE)
    else:
        raise RuntimeError(f"rank {rank} of {size} did not meet all others")
    return PrefixStore(name, store), [said for _, said in here]


def _read(store: Store, key: str) -> Any:
    """What is under a key, or None."""
    return json.loads(store.get(key)) if store.check([key]) else None
