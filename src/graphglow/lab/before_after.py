"""A refined graph beside the graph that it was made of: in numbers, by edges, around one node."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.audit import audit
from graphglow.evidence.refined import RefinedGraph
from graphglow.lab.structure_metrics import GraphFacts, graph_facts
from graphglow.refine import chosen

EDGES_SHOWN = 6
DEGREES = 6, 12
"""Least and most edges of the node whose neighbourhood is drawn: fewer say little."""
NEW_NEIGHBOURS = 6


class Edge(NamedTuple):
    """An edge with the classes of its ends, and how likely these are one."""

    ends: tuple[int, int]
    classes: tuple[str, str]
    probability: float
    injected: bool = False


class Node(NamedTuple):
    """A node of a drawing."""

    node: int
    label: int


@dataclass(frozen=True)
class Neighbourhood:
    """A node, the first of ``nodes``, and what it is joined to, before and after; ends are places.

    An edge of the input is ``kept`` or ``dropped``.
    """

    nodes: list[Node]
    kept: list[tuple[int, int]]
    dropped: list[tuple[int, int]]
    added: list[tuple[int, int]]


@dataclass(frozen=True)
class Refined:
    """What the refined graph of one target looks like."""

    target: str
    class_names: list[str]
    before: GraphFacts
    after: GraphFacts
    """Of the edges that ``graphglow.refine`` hands back: as many as the input has."""
    dropped_injected: float | None
    """The share of injected edges that are gone; None where none was injected."""
    dropped_own: float
    """The share of the graph's own edges that are gone."""
    added: list[Edge]
    """The most probable ones."""
    dropped: list[Edge]
    """The least probable ones."""
    around: Neighbourhood
    audited: "Audited | None"
    """What the audit finds of the injected edges; None where none was injected."""


class Audited(NamedTuple):
    """The audit of a graph whose false edges are known."""

    auc: float
    """How likely an injected edge is more doubtful than one of the graph's own."""
    worst: int
    """The most doubtful edges: a tenth of all."""
    injected: float
    """The share of injected ones among them."""
    said: str
    """Its verdict."""


def describe_refined(made: RefinedGraph, data: Data, name: str, own_edges: Tensor) -> Refined:
    """Set the refined graph beside the input graph, whose ``own_edges`` [2, E] are not injected."""
    nodes = made.num_nodes
    own, given = _edges(own_edges, nodes), _edges(data.edge_index, nodes)
    injected = given[~torch.isin(given, own)]
    dropped = made.dropped()
    gone = made.pairs[:, dropped]
    gone_keys = _keys(gone, nodes).cpu()
    new = made.edges[~made.pair_in_input[made.edges]]
    kept = chosen(made, None, 0.0, add=True, drop=True)
    refined = Data(y=data.y, edge_index=kept.edge_index.cpu(), num_nodes=nodes)
    before, after = graph_facts(data), graph_facts(refined)
    known = data.train_mask | data.val_mask

    def listed(pairs: Tensor, probability: Tensor, *, best: bool) -> list[Edge]:
        """The surest pairs of which not both labels were given."""
        fair = ~known[pairs.cpu()].all(0)
        pairs, probability = pairs.cpu()[:, fair], probability.cpu()[fair]
        order = probability.argsort(descending=best, stable=True)[:EDGES_SHOWN]
        false = torch.isin(_keys(pairs[:, order], nodes), injected).tolist()
        found = zip(pairs[:, order].T.tolist(), probability[order].tolist(), false, strict=True)
        names = data.class_names
        return [
            Edge((u, v), (names[data.y[u]], names[data.y[v]]), chance, was_injected)
            for (u, v), chance, was_injected in found
        ]

    def share_gone(of: Tensor) -> float:
        return float(torch.isin(of, gone_keys).double().mean())

    return Refined(
        target=name,
        class_names=list(data.class_names),
        before=before,
        after=after,
        dropped_injected=share_gone(injected) if len(injected) else None,
        dropped_own=share_gone(own),
        added=listed(made.pairs[:, new], made.pair_probability[new], best=True),
        dropped=listed(gone, made.pair_probability[dropped], best=False),
        around=_around(made, data, gone_keys, (before.homophily or 0, after.homophily or 0)),
        audited=_audited(data, injected) if len(injected) else None,
    )


def _audited(data: Data, injected: Tensor) -> Audited:
    """Ask the auditor, which knows nothing of what was injected; it reads no labels here."""
    from sklearn.metrics import roc_auc_score

    found = audit(Data(x=data.x, edge_index=data.edge_index, num_nodes=data.num_nodes))
    false = torch.isin(_keys(found.edges, int(data.num_nodes)), injected)
    real = found.probability_real
    worst = max(1, len(real) // 10)
    share = float(false[real.argsort()[:worst]].double().mean())
    auc = float(roc_auc_score(false.numpy(), -real.numpy()))
    return Audited(auc, worst, share, found.verdict)


def _keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """A number for each pair of nodes, whatever its direction: [2, M] -> [M]."""
    return pairs.amin(0) * num_nodes + pairs.amax(0)


def _edges(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Each undirected edge once, by its number, loops left out: [2, E] -> [M]."""
    keys: Tensor = torch.unique(_keys(edge_index[:, edge_index[0] != edge_index[1]], num_nodes))
    return keys


def _around(
    made: RefinedGraph, data: Data, gone: Tensor, shares: tuple[float, float]
) -> Neighbourhood:
    """A test node like the whole graph: as many of its edges, before and after, within a class.

    Drawn are its neighbours in the input and the surest of the new ones, the input's edges among
    all these, and new edges of the node itself. ``gone`` are the numbers of dropped edges,
    ``shares`` those of edges within a class in the whole graph.
    """
    given = _edges(data.edge_index, made.num_nodes)
    both = torch.stack([given // made.num_nodes, given % made.num_nodes])
    degree = torch.bincount(both.flatten(), minlength=len(data.y))
    drawable = data.test_mask & (degree >= DEGREES[0]) & (degree <= DEGREES[1])

    def neighbours(node: int) -> tuple[list[int], list[int], list[int]]:
        """Those that are kept, dropped and added."""
        mine = (both == node).any(0)
        dropped = torch.isin(given[mine], gone)
        near = both[:, mine].sum(0) - node
        fresh = (made.edge_index[0] == node) & ~made.edge_in_input
        order = made.edge_probability[fresh].argsort(descending=True, stable=True)
        new = made.edge_index[1, fresh][order[:NEW_NEIGHBOURS]]
        return near[~dropped].tolist(), near[dropped].tolist(), new.tolist()

    def unlike(node: int) -> float:
        """How far the node's own shares are from the whole graph's."""
        kept, dropped, new = neighbours(node)
        own = (_share(data.y, node, [*kept, *dropped]), _share(data.y, node, [*kept, *new]))
        return sum(abs(mine - whole) for mine, whole in zip(own, shares, strict=True))

    choice = drawable if bool(drawable.any()) else data.test_mask
    centre = min(choice.nonzero()[:, 0].tolist(), key=unlike)
    kept, dropped, new = neighbours(centre)
    ring = sorted([*kept, *dropped, *new], key=lambda node: (int(data.y[node]), node))
    nodes = [centre, *ring]
    place = {node: at for at, node in enumerate(nodes)}

    def among(some: Tensor) -> list[tuple[int, int]]:
        ends = torch.stack([some // made.num_nodes, some % made.num_nodes])
        inside = torch.isin(ends, torch.tensor(nodes)).all(0)
        return [(place[u], place[v]) for u, v in ends[:, inside].T.tolist()]

    return Neighbourhood(
        nodes=[Node(node, int(data.y[node])) for node in nodes],
        kept=among(given[~torch.isin(given, gone)]),
        dropped=among(gone),
        added=[(0, place[node]) for node in new],
    )


def _share(y: Tensor, node: int, others: list[int]) -> float:
    """How many of the others are of the node's class."""
    return float((y[others] == y[node]).double().mean()) if others else 0.0
