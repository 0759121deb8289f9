"""Who does the blocks of a refinement or an audit: this process, several, or a Ray cluster."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.errors import InputError
from graphglow.evidence.candidates import Each, in_turn
from graphglow.storage import checksum
from graphglow.training.checkpoint import Parts, held
from graphglow.workers.blocks import Blocks

SEEN = ("x", "y", "train_mask", "edge_index", "edge_weight")
"""What is read of a graph."""


@contextmanager
def sharing(
    data: Data,
    device: torch.device,
    run: dict[str, Any],
    workers: int | None,
    ray: str | None,
    parts: Parts | None,
) -> Iterator[Each]:
    """Let the blocks of one job be done by others, and kept: see :func:`graphglow.refine`.

    ``run`` is what the result depends on, beside the graph and the device.
    """
    with held(parts, Parts, "parts"):
        if parts is not None:
            parts.begin({**run, "graph": fingerprint(data), "device": device.type})
        with workers_or_here(workers, ray, device, parts) as each:
            yield each


def workers_or_here(
    workers: int | None, ray: str | None, device: torch.device, parts: Parts | None = None
) -> AbstractContextManager[Each]:
    """Who does blocks: other processes, or this one."""
    if workers is not None:
        workers = at_least("workers", workers, 1)
    if not isinstance(ray, str | None):
        raise InputError(f"ray must be the address of a cluster, as text; got {ray!r}")
    if workers is None and ray is None and parts is None:
        return nullcontext(in_turn)
    processes = 1 if workers is None and ray is None else workers
    return Blocks(processes, ray, device="cuda" if device.type == "cuda" else "cpu", parts=parts)


def fingerprint(data: Data) -> str:
    """Of all that is read of a graph."""
    tensors: dict[str, Tensor] = {}
    for name in SEEN:
        value = data.get(name)
        if isinstance(value, Tensor) and value.layout != torch.strided:
            entries = value.to_sparse().coalesce()
            tensors[f"{name}.at"], tensors[name] = entries.indices(), entries.values()
        elif isinstance(value, Tensor):
            tensors[name] = value
    return checksum(tensors, int(data.num_nodes))[:16]
