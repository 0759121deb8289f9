"""The predictor: channels over the refined graph, and one frozen vote over the channels of all.

Channels are closed forms with exact leave-one-out predictions, so every label trains them and
judges them at once. The vote (:class:`graphglow.evidence.votes.Voter`) gives each channel a weight
at each node, by the channel's record on this graph. Then the labels of this graph move the weights
by as much as their leave-one-out log-loss asks for, against a normal prior around what is frozen:
few labels move them hardly at all, many as they like. Last, where labels were drawn evenly over
the classes, the class shares of the graph are estimated from the predictions themselves.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.evidence.channels import (
    Channel,
    absent,
    community_channel,
    leave_one_out_scores,
    ridge_channel,
    scored,
    spread_channel,
)
from graphglow.evidence.communities import communities
from graphglow.evidence.context import FIRST_CONTEXT
from graphglow.evidence.rounds import GraphEvidence
from graphglow.evidence.views import hidden_layer
from graphglow.evidence.votes import VOTERS, Voter, unlabelled_records, vote_evidence
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import entries, times, unit_
from graphglow.linalg.sparse import SparseMatrix

HIDDEN_F = ("x", "fx", "ffx", "aax", "link")
"""What the hidden layer over refined features reads."""
FINAL_CHANNELS = ("ffx", "ppr", "ppr_f", "spread_f", "community_f", "hidden_f")
CHANNELS = (*VOTERS, *FINAL_CHANNELS)
"""All that the predictor weighs."""
PPR_STEPS, PPR_TELEPORT = 8, 0.1
AT_ONCE = 2**18  # classes of nodes that are answered at once
FOLDS, STEPS, MOST_LABELS = 5, 8, 4096  # of the update by labels
WEIGHT_PRECISION, SCALE_PRECISION = 30.0, 10.0
"""Of the normal priors around the frozen weights, and around their common factor."""
EVEN, SHARE_STEPS, SHARE_PRIOR = 0.05, 20, 0.2
"""Below which chance of equal counts labels count as drawn evenly over classes; steps of EM; and
how much the labels' shares count against all nodes."""


@dataclass(frozen=True, eq=False)
class FinalRound:
    """Views and channels over the refined graph S [N, N]; records [V, 4] of all channels."""

    known: GraphEvidence
    adjacency: SparseMatrix
    views: dict[str, Tensor]
    channels: dict[str, Channel]
    records: Tensor

    @property
    def graph(self) -> Graph:
        return self.known.graph

    def inputs(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """What the predictor reads of nodes [K]: log-odds [K, C, V], trust [K, V, T]."""
        channels = [self.channels[name] for name in CHANNELS]
        place = FIRST_CONTEXT.index("labels_per_class")
        context = self.known.context[place : place + 2]
        return vote_evidence(self.graph, channels, self.records, context, nodes)


def final_round(known: GraphEvidence, adjacency: SparseMatrix) -> FinalRound:
    """Channels over the refined graph S [N, N]."""
    graph, views = known.graph, final_views(known, adjacency)
    channels = dict(known.channels)
    for name in ("ffx", "ppr", "ppr_f"):
        channels[name] = ridge_channel(graph, views[name])
    channels["spread_f"] = spread_channel(graph, adjacency)
    channels["hidden_f"] = ridge_channel(graph, hidden_layer(known.views | views, HIDDEN_F))
    channels["community_f"] = community_channel(graph, _communities(adjacency))
    records = unlabelled_records(graph, [channels[name] for name in CHANNELS])
    return FinalRound(known, adjacency, views, channels, records)


def final_views(known: GraphEvidence, adjacency: SparseMatrix) -> dict[str, Tensor]:
    """One- and two-hop means over S, and what personalised PageRank reaches over both graphs."""
    x = known.views["x"]
    fx = times(adjacency, x)
    return {
        "ffx": unit_(times(adjacency, fx)),
        "ppr": unit_(page_rank(known.graph.adj, x)),
        "ppr_f": unit_(page_rank(adjacency, x)),
        "fx": unit_(fx),
    }


def page_rank(adjacency: SparseMatrix, x: Tensor) -> Tensor:
    """``sum_k a (1 - a)^k S^k x``, personalised PageRank of Gasteiger et al. (2019): [N, D]."""
    reached = x
    for _ in range(PPR_STEPS):
        reached = times(adjacency, reached).mul_(1 - PPR_TELEPORT).add_(x, alpha=PPR_TELEPORT)
    return reached


def _communities(adjacency: SparseMatrix) -> list[Tensor]:
    row, col, values = entries(adjacency)
    once = row < col
    if not bool(once.any()):
        return []
    edges = row[once], col[once], values[once], adjacency.shape[0]
    return [communities(*edges)]


def predict_classes(predictor: Voter, final: FinalRound) -> Channel:
    """The predictor's answer about every node; labelled nodes by the update of other folds."""
    graph = final.graph
    if len(graph.seen) < 2:
        return absent(graph)
    fold = folds(graph)
    fair = scored(graph).nonzero()[:, 0]
    fair = fair[torch.linspace(0, len(fair) - 1, min(len(fair), MOST_LABELS)).long()]
    nodes = graph.labelled[fair]
    kept = torch.stack([fold[nodes] != k for k in range(1 + FOLDS)])
    update = label_update(predictor, *final.inputs(nodes), graph.classes[fair], graph.prior, kept)
    every = torch.arange(graph.num_nodes, device=graph.device)
    logits = []
    for some in torch.split(every, max(1, AT_ONCE // len(graph.seen))):
        logits.append(answer(predictor, *final.inputs(some), update[fold[some]]))
    shares = class_shares(graph, torch.cat(logits))
    probabilities = (torch.cat(logits) + shares.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"update": update, "shares": shares})


def class_shares(graph: Graph, logits: Tensor) -> Tensor:
    """Estimate the share of each class among all nodes.

    Labels drawn at random have the shares of the graph. If their counts are more equal than chance
    would make them (chi-squared below its 5 % quantile), so many were drawn of each class, and the
    shares are those that the predictions of all nodes agree with: EM for a shift of the class
    distribution (Saerens, Latinne and Decaestecker, 2002), held back by the labels' shares.

    Shapes:
        logits [N, C] over the labels' shares -> [C]
    """
    mean = graph.counts.mean()
    spread = (graph.counts - mean).square().sum() / mean
    freedom = torch.full_like(spread, (len(graph.counts) - 1) / 2)
    if float(torch.special.gammainc(freedom, spread / 2)) >= EVEN:
        return graph.prior
    shares = graph.prior
    for _ in range(SHARE_STEPS):
        found = (logits + shares.log()).softmax(1).mean(0)
        shares = (found + SHARE_PRIOR * graph.prior) / (1 + SHARE_PRIOR)
    return shares


def folds(graph: Graph) -> Tensor:
    """Which update answers each node: 0, that of all labels, or that of other folds: [N]."""
    fold = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    fold[graph.labelled] = 1 + torch.arange(len(graph.labelled), device=graph.device) % FOLDS
    return fold


def weights(predictor: Voter, trust: Tensor, update: Tensor) -> Tensor:
    """The weight of each channel at each node: [K, V, T], [V + 1] or [K, V + 1] -> [K, V]."""
    return predictor.weights(trust) * (1 + update[..., -1:]) + update[..., :-1]


def answer(predictor: Voter, odds: Tensor, trust: Tensor, update: Tensor) -> Tensor:
    """Logits over the class shares: [K, C, V], [K, V, T], [V + 1] or [K, V + 1] -> [K, C]."""
    return (odds @ weights(predictor, trust, update)[..., None])[..., 0]


def label_update(
    predictor: Voter, odds: Tensor, trust: Tensor, own: Tensor, prior: Tensor, kept: Tensor
) -> Tensor:
    """What leave-one-out predictions at labelled nodes change: one number a channel, and a factor.

    The largest posterior of a multinomial regression, by Newton's method, for several subsets of
    the labels at once.

    Shapes:
        odds [L, C, V], trust [L, V, T], own [L], prior [C], kept [B, L] of bool -> [B, V + 1]
    """
    frozen = predictor(odds, trust).double()  # [L, C]
    x = torch.cat([odds.double(), frozen[..., None]], 2)
    base, one_hot = frozen + prior.double().log(), F.one_hot(own, len(prior)).double()
    precision = x.new_full((x.shape[2],), WEIGHT_PRECISION)
    precision[-1] = SCALE_PRECISION
    updates = []
    for some in kept:
        x_some, base_some, wanted = x[some], base[some], one_hot[some]
        update = torch.zeros_like(precision)
        for _ in range(STEPS):
            p = (base_some + x_some @ update).softmax(1)
            slope = torch.einsum("lcv,lc->v", x_some, p - wanted) + precision * update
            mean = torch.einsum("lcv,lc->lv", x_some, p)
            rows = (x_some * p.sqrt()[..., None]).flatten(0, 1)
            curve = rows.T @ rows - mean.T @ mean + precision.diag()
            update = update - torch.linalg.solve(curve, slope).clamp(-0.5, 0.5)
        updates.append(update)
    return torch.stack(updates).float()
