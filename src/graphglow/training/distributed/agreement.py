"""Ranks that do different things hang or mix two jobs: they compare what they were asked first."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.storage import checksum
from graphglow.training.checkpoint import versions
from graphglow.training.config import RunConfig
from graphglow.training.distributed.ranks import HeardError, Ranks

SHOWN = 3
"""Differences that are named."""
LONGEST = 60
"""Letters of a value that are shown; longer ones are compared by their digest."""


def agree(ranks: Ranks, facts: Mapping[str, Any]) -> None:
    """Raise on every rank, naming what differs, unless all have the same facts; one exchange."""
    own = json.dumps({name: _shown(value) for name, value in {**facts, **versions()}.items()})
    everyone: list[dict[str, str]] = [json.loads(text) for text in ranks.texts(own)]
    first, differing = everyone[0], []
    for rank, other in enumerate(everyone[1:], start=1):
        for name in {**first, **other}:
            here, there = first.get(name, "none"), other.get(name, "none")
            if here != there:
                differing.append(f"{name} ({here} on rank 0, {there} on rank {rank})")
    if not differing:
        return
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    sentence = f"all ranks must do the same job; got another {', '.join(differing[:SHOWN])}{more}"
    raise InputError(sentence) if ranks.rank == 0 else HeardError(sentence)


@contextmanager
def together(ranks: Ranks) -> Iterator[None]:
    """A block that all ranks enter and exchange nothing in: bad input on one ends it on all.

    The first rank that has come upon some raises it; the others hear of it.
    """
    failure: InputError | None = None
    try:
        yield
    except InputError as error:
        failure = error
    said = ranks.texts("" if failure is None else f"{failure} ")
    speaker = next((rank for rank, words in enumerate(said) if words), None)
    if speaker is None:
        return
    if speaker == ranks.rank:
        assert failure is not None
        raise failure
    raise HeardError(f"rank {speaker} of {ranks.size} has ended: {said[speaker].strip()}")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Every setting by its name; the device is the ranks' own affair."""
    return {f"setting {n}": v for n, v in asdict(config).items() if n != "device"}


def data_identity(data: Data) -> dict[str, str]:
    """The name of a checked graph, and a fingerprint of all that a model is made from."""
    tensors: dict[str, Tensor] = {}
    for name in ("x", "edge_index", "edge_weight", "y", "train_mask", "val_mask", "test_mask"):
        value = data.get(name)
        if isinstance(value, Tensor):
            tensors[name] = value
    return {"name": str(data.get("name", "graph")), "content": checksum(tensors)[:16]}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if len(text) <= LONGEST:
        return text
    return hashlib.sha256(text.encode()).hexdigest()[:16]
