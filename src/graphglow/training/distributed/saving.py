"""Checkpoints of a job on several ranks: rank 0 keeps them, and the others need not see its disk.

Rank 0 reads on going on, and sends what it found to all.
"""

import json
from collections.abc import Callable
from typing import Any

import safetensors.torch
from torch import Tensor

from graphglow.training.checkpoint import Checkpoints, Saved
from graphglow.training.distributed.agreement import together
from graphglow.training.distributed.ranks import Ranks


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
    tensors = ranks.sent_by(0, b"" if found is None else packed(found.tensors))
    if found is None:
        found = Saved(unpacked(tensors), json.loads(facts))
        restore(found)
    return found


class Tensors(dict[str, Tensor]):
    """Named tensors as a part of a checkpoint."""

    def state(self) -> dict[str, Tensor]:
        return self

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.update(state)


def packed(tensors: dict[str, Tensor]) -> bytes:
    """Named tensors, on any device, as bytes to send."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    data: bytes = safetensors.torch.save(plain)
    return data


def unpacked(data: bytes) -> dict[str, Tensor]:
    """What :func:`packed` made, on the CPU."""
    tensors: dict[str, Tensor] = safetensors.torch.load(data)
    return tensors
