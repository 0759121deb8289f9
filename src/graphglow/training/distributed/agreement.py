"""Ranks that do different things hang or mix two jobs: they compare what they were asked first.

Of their checkpoints rank 0 alone keeps and reads the files, and sends what it found to all.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import safetensors.torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.graphs.check import CHECKED
from graphglow.storage import checksum
from graphglow.training.checkpoint import DIFFERENCES_SHOWN as SHOWN
from graphglow.training.checkpoint import Checkpoints, Saved, versions
from graphglow.training.config import RunConfig
from graphglow.training.distributed.ranks import HeardError, Ranks

LONGEST = 60
"""Letters of a value that are shown; longer ones are compared by their digest."""


def agree(ranks: Ranks, facts: Mapping[str, Any]) -> None:
    """Raise on every rank, naming what differs, unless all have the same facts; one exchange."""
    own = json.dumps({name: _shown(value) for name, value in {**facts, **versions()}.items()})
    first, *others = (json.loads(text) for text in ranks.texts(own))
    differing = []
    for rank, other in enumerate(others, start=1):
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
    for rank, words in enumerate(ranks.texts("" if failure is None else f"{failure} ")):
        if words and rank == ranks.rank and failure is not None:
            raise failure
        if words:
            raise HeardError(f"rank {rank} of {ranks.size} has ended: {words.strip()}")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Every setting by its name; the device is the ranks' own affair."""
    return {f"setting {n}": v for n, v in asdict(config).items() if n != "device"}


def data_identity(data: Data) -> dict[str, str]:
    """The name of a checked graph, and a fingerprint of all that a model is made from."""
    tensors = {name: data[name] for name in CHECKED if data.get(name) is not None}
    return {"name": str(data.get("name", "graph")), "content": checksum(tensors)[:16]}


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= LONGEST else hashlib.sha256(text.encode()).hexdigest()[:16]


def anyone_saves(checkpoints: Checkpoints | None, ranks: Ranks) -> bool:
    """Whether rank 0 was given a place for checkpoints; what others were given is passed over."""
    return bool(ranks.texts("" if checkpoints is None else "yes")[0])


def begin_together(
    checkpoints: Checkpoints | None,
    run: dict[str, Any],
    ranks: Ranks,
    restore: Callable[[Saved], None],
) -> Saved | None:
    """Let all ranks go on from the newest whole checkpoint of ``run`` that rank 0 has.

    Args:
        checkpoints: Rank 0's; those of others are passed over.
        run: All that its result depends on, as JSON can hold it.
        ranks: This rank and the others.
        restore: Called on every rank with what was found; nothing changes where it raises.
    """
    found: Saved | None = None
    with together(ranks):
        if ranks.rank == 0 and checkpoints is not None:
            found = checkpoints.begin(run, restore)
    facts = ranks.sent_by(0, b"" if found is None else json.dumps(found.facts).encode())
    if not facts:
        return None
    tensors = tensors_of(0, {} if found is None else found.tensors, ranks)
    if found is None:
        found = Saved(tensors, json.loads(facts))
        restore(found)
    return found


def tensors_of(source: int, own: dict[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """The named tensors of rank ``source``, on the CPU; what others give is passed over."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in own.items()}
    found: dict[str, Tensor] = safetensors.torch.load(
        ranks.sent_by(source, safetensors.torch.save(plain))
    )
    return found
