"""Random draws that do not depend on how nodes are spread over ranks.

Every rank has a generator with the same seed, on the host. A draw takes one number from it, its
key; what a node gets is a function of the key and the node's own number: a hash. So a job on two
ranks drops and picks what a job on one does.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphglow.gnn import Dropout
from graphglow.ops.chunked import row_blocks
from graphglow.training.distributed.ranks import Ranks
from graphglow.training.distributed.structure import Pivots
from graphglow.training.task import by_weight

BLOCK_ELEMENTS = 4_000_000
"""Entries of a mask that are hashed at a time."""
_BITS = 24
"""Of a hash that decide whether an entry is kept."""


@dataclass(frozen=True)
class NodeDropout(Dropout):
    """Dropout of one run whose masks depend on a node's number, not on the rank that has it.

    Args:
        rates: Share of entries dropped: one number.
        generators: One, on the host, with the same seed on all ranks.
        nodes: Numbers of the rank's nodes.
        entries: Row and column of each entry of sparse features, the row as a node's number.

    Shapes:
        nodes [N_r], entries: [E], [E]
    """

    nodes: Tensor
    entries: tuple[Tensor, Tensor] | None = None

    def mask(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """0 (dropped) or 1 / (1 - rate) for each entry: [N_r, F], or [E] of sparse features."""
        (rate,) = self.rates
        key = draw_key(self.generators[0])
        mask = like.new_empty(shape)
        if len(shape) == 1:
            assert self.entries is not None
            rows, columns = (_mixed(key, part) for part in self.entries)
            for block in row_blocks(shape[0], BLOCK_ELEMENTS):
                mask[block] = _kept(rows[block] ^ _spread(columns[block]), rate)
        else:
            rows = _mixed(key, self.nodes)[:, None]
            columns = _mixed(key, torch.arange(shape[1], device=like.device))
            for block in row_blocks(shape[0], max(1, BLOCK_ELEMENTS // shape[1])):
                mask[block] = _kept(rows[block] ^ _spread(columns), rate)
        return mask.div_(1 - rate)


def draw_key(generator: torch.Generator) -> int:
    """What one draw has of its own; the same on all ranks."""
    return int(torch.randint(2**62, (), generator=generator))


def uniform(key: int, nodes: Tensor) -> Tensor:
    """A number in (0, 1) for each node, in float64: [N_r] -> [N_r]."""
    return ((hashed(key, nodes) >> 11 & (2**52 - 1)).double() + 0.5) / 2**52


def draw_pivots(key: int, nodes: Tensor, weight: Tensor | None, count: int, ranks: Ranks) -> Pivots:
    """Draw ``count`` different nodes of the whole graph, alike or in proportion to ``weight``.

    Each rank offers those of its own with the largest keys; all ranks pick from what is offered.

    Shapes:
        nodes [N_r], weight [N_r] or None
    """
    score = uniform(key, nodes)
    if weight is not None:
        score = by_weight(score, weight.double())
    best, rows = score.topk(min(count, len(nodes)))
    offers = torch.full((count,), -torch.inf, dtype=torch.float64, device=nodes.device)
    names = torch.zeros(count, dtype=torch.int64, device=nodes.device)
    offers[: len(best)], names[: len(best)] = best, nodes[rows]
    offered, named = ranks.gather(offers).flatten(), ranks.gather(names).flatten()  # [R * P]
    chosen = offered.topk(count).indices  # [P]
    places = (chosen.div(count, rounding_mode="floor") == ranks.rank).nonzero()[:, 0]
    return Pivots(named[chosen], rows[chosen[places] % count], places)


def own_pivots(pivots: Tensor, nodes: Tensor) -> Pivots:
    """Given pivots, as numbers of the whole graph, seen by a rank with the sorted ``nodes``."""
    rows = torch.searchsorted(nodes, pivots).clamp_max(len(nodes) - 1)
    places = (nodes[rows] == pivots).nonzero()[:, 0]
    return Pivots(pivots, rows[places], places)


def hashed(key: int, numbers: Tensor) -> Tensor:
    """64 mixed bits of each number and the key (the finaliser of splitmix64): [..] -> [..]."""
    x: Tensor = numbers.long() * -7046029254386353131 + key  # products wrap around
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    x ^= _shifted(x, 31)
    return x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x >> bits`` with zeros from above, which PyTorch has for unsigned numbers only."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _mixed(key: int, numbers: Tensor) -> Tensor:
    """32 bits of the hash: [..] int64 -> [..] int32."""
    return (hashed(key, numbers) >> 32).int()


def _spread(columns: Tensor) -> Tensor:
    """Columns are hashed with the rows' key, so they need another turn to differ from rows."""
    return columns * -1640531535 ^ 0x5BD1E995


def _kept(x: Tensor, rate: float) -> Tensor:
    """Mix 32 bits once more (the finaliser of murmur3) and compare with the share to keep."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * -2048144789
    x = (x ^ ((x >> 13) & 0x7FFFF)) * -1028477387
    x ^= (x >> 16) & 0xFFFF
    kept: Tensor = (x & (2**_BITS - 1)) < round((1 - rate) * 2**_BITS)
    return kept
