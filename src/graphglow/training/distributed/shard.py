"""One rank's share of a graph."""

from dataclasses import dataclass

from torch import Tensor

from graphglow.graphs import Graph


@dataclass(frozen=True, eq=False)
class Shard:
    """The nodes of one rank, as a :class:`Graph` whose adjacency is a ``HaloMatrix``.

    Its ``train``, ``val`` and ``test`` are rows of the shard. What it must know of the whole
    are a few counts.

    Shapes:
        nodes [N_r] the numbers of its nodes in the whole graph, ascending
    """

    graph: Graph
    nodes: Tensor
    num_nodes: int
    """N, of the whole graph."""
    train_count: int
    """Training nodes of the whole graph."""
    val_count: int
    test_count: int
