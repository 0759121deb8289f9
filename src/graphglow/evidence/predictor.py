"""The predictor: channels over the refined graph, and a frozen vote over those of all rounds.

Channels are closed forms with exact leave-one-out predictions, so the same labels fit and judge
them. The vote (:class:`graphglow.evidence.votes.Voter`) weighs each channel at each node by its
record on this graph. The labels of the graph then update these weights: the maximum a posteriori
of their leave-one-out log-loss under a normal prior around the frozen weights, so that few labels
change little. Where labels were drawn evenly over classes, the class shares are estimated from the
predictions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.evidence.channels import (
    Channel,
    absent,
    community_channel,
    leave_one_out_mask,
    leave_one_out_scores,
    ridge_channel,
    spread_channel,
)
from graphglow.evidence.communities import communities
from graphglow.evidence.rounds import GraphEvidence
from graphglow.evidence.views import hidden_layer
from graphglow.evidence.votes import VOTERS, Voter, unlabelled_records, vote_evidence
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import entries, times, unit_
from graphglow.linalg.sparse import SparseMatrix

HIDDEN_F = ("x", "fx", "ffx", "aax", "link")
"""The views that the channel ``hidden_f`` reads."""
FINAL_CHANNELS = ("ffx", "ppr", "ppr_f", "spread_f", "community_f", "hidden_f")
CHANNELS = (*VOTERS, *FINAL_CHANNELS)
"""All channels of the predictor."""
CHANNEL_NAMES = {
    "x": "features",
    "ax": "features around it",
    "aax": "features two steps away",
    "diff": "features against its neighbours'",
    "link": "who its neighbours are",
    "alink": "who its neighbours' neighbours are",
    "spectral": "spectral embedding of the edges",
    "role": "part it has in the graph",
    "all": "features and edges together",
    "spread": "labels spread over the edges",
    "community": "labels in its community",
    "hidden_x": "hidden layer over features",
    "hidden_all": "hidden layer over features and edges",
    "sx": "features around it, refined once",
    "ssx": "features two steps away, refined once",
    "again": "all views together, refined once",
    "spread_s": "labels spread over edges refined once",
    "hidden_again": "hidden layer over all views, refined once",
    "vote": "weighted vote of the channels",
    "ffx": "features two steps away, refined",
    "ppr": "features in the wider neighbourhood",
    "ppr_f": "features in the wider refined neighbourhood",
    "spread_f": "labels spread over refined edges",
    "community_f": "labels in its refined community",
    "hidden_f": "hidden layer over refined features",
}
"""Channels in plain words."""
PPR_STEPS, PPR_TELEPORT = 8, 0.1
AT_ONCE = 2**18  # probabilities, nodes times classes, in one block
FOLDS, STEPS, MOST_LABELS = 5, 8, 4096  # of the update by labels; Newton steps
WEIGHT_PRECISION, SCALE_PRECISION = 30.0, 10.0
"""Precisions of the normal priors around the frozen weights and around their common factor."""
EVEN, SHARE_STEPS, SHARE_PRIOR = 0.05, 50, 2.0
"""Labels count as drawn evenly over classes below this probability of counts as equal; steps of
EM; the labels' shares weigh as much as this number over the labels per class times all nodes."""


@dataclass(frozen=True, eq=False)
class FinalRound:
    """Views and channels over the refined graph.

    Shapes:
        adjacency [N, N], records [V, 4] of all channels
    """

    known: GraphEvidence
    adjacency: SparseMatrix
    views: dict[str, Tensor]
    channels: dict[str, Channel]
    records: Tensor

    @property
    def graph(self) -> Graph:
        return self.known.graph

    def inputs(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the predictor's inputs at nodes [K]: log-odds [K, C, V], trust [K, V, T]."""
        channels = [self.channels[name] for name in CHANNELS]
        return vote_evidence(self.graph, channels, self.records, self.known.context, nodes)


def final_round(known: GraphEvidence, adjacency: SparseMatrix) -> FinalRound:
    """Compute the channels over the refined graph S [N, N]."""
    graph, views = known.graph, final_views(known, adjacency)
    channels = dict(known.channels)
    for name in ("ffx", "ppr", "ppr_f"):
        channels[name] = ridge_channel(graph, views[name])
    channels["spread_f"] = spread_channel(graph, adjacency)
    channels["hidden_f"] = ridge_channel(graph, hidden_layer(known.views | views, HIDDEN_F))
    row, col, values = entries(adjacency)
    once = row < col
    member = communities(row[once], col[once], values[once], graph.num_nodes)
    channels["community_f"] = community_channel(graph, member)
    records = unlabelled_records(graph, [channels[name] for name in CHANNELS])
    return FinalRound(known, adjacency, views, channels, records)


def final_views(known: GraphEvidence, adjacency: SparseMatrix) -> dict[str, Tensor]:
    """Compute feature means over one and two hops of S, and PageRank over both graphs."""
    x = known.views["x"]
    fx = times(adjacency, x)
    return {
        "ffx": unit_(times(adjacency, fx)),
        "ppr": unit_(page_rank(known.graph.adj, x)),
        "ppr_f": unit_(page_rank(adjacency, x)),
        "fx": unit_(fx),
    }


def page_rank(adjacency: SparseMatrix, x: Tensor) -> Tensor:
    """Personalised PageRank, ``sum_k a (1 - a)^k S^k x`` (Gasteiger et al., 2019): [N, D]."""
    rank = x
    for _ in range(PPR_STEPS):
        rank = times(adjacency, rank).mul_(1 - PPR_TELEPORT).add_(x, alpha=PPR_TELEPORT)
    return rank


def predict_classes(predictor: Voter, final: FinalRound) -> Channel:
    """Predict all nodes; the weights of a labelled node are updated by the other folds' labels."""
    graph = final.graph
    if len(graph.seen) < 2:
        return absent(graph)
    fold = folds(graph)
    fair = leave_one_out_mask(graph).nonzero()[:, 0]
    fair = fair[torch.linspace(0, len(fair) - 1, min(len(fair), MOST_LABELS)).long()]
    nodes = graph.labelled[fair]
    kept = torch.stack([fold[nodes] != k for k in range(1 + FOLDS)])
    update = label_update(predictor, *final.inputs(nodes), graph.classes[fair], graph.prior, kept)
    every = torch.arange(graph.num_nodes, device=graph.device)
    blocks = torch.split(every, max(1, AT_ONCE // len(graph.seen)))
    logits = torch.cat(
        [answer(predictor, *final.inputs(block), update[fold[block]]) for block in blocks]
    )
    shares = class_shares(graph, logits)
    probabilities = (logits + shares.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"update": update, "shares": shares})


def class_shares(graph: Graph, logits: Tensor) -> Tensor:
    """Estimate the share of each class among all nodes.

    Labels drawn at random have the shares of the graph. If their counts are more equal than chance
    allows (chi-squared below its 5 % quantile), they were drawn per class. The shares are then
    estimated from the predictions by EM (Saerens, Latinne and Decaestecker, 2002), shrunk towards
    the labels' shares.

    Shapes:
        logits [N, C] over the labels' shares -> [C]
    """
    mean = graph.counts.mean()
    spread = (graph.counts - mean).square().sum() / mean
    freedom = torch.full_like(spread, (len(graph.counts) - 1) / 2)
    if float(torch.special.gammainc(freedom, spread / 2)) >= EVEN:
        return graph.prior
    shares, weight = graph.prior, SHARE_PRIOR / mean
    for _ in range(SHARE_STEPS):
        predicted = (logits + shares.log()).softmax(1).mean(0)
        shares = (predicted + weight * graph.prior) / (1 + weight)
    return shares


def folds(graph: Graph) -> Tensor:
    """Number the update for each node: 0 uses all labels, k all but those of fold k: [N]."""
    fold = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    fold[graph.labelled] = 1 + torch.arange(len(graph.labelled), device=graph.device) % FOLDS
    return fold


def weights(predictor: Voter, trust: Tensor, update: Tensor) -> Tensor:
    """Return updated channel weights: [K, V, T], [V + 1] or [K, V + 1] -> [K, V]."""
    return predictor.weights(trust) * (1 + update[..., -1:]) + update[..., :-1]


def answer(predictor: Voter, odds: Tensor, trust: Tensor, update: Tensor) -> Tensor:
    """Return logits relative to the class shares, shapes as in :func:`weights`: [K, C]."""
    return (odds @ weights(predictor, trust, update)[..., None])[..., 0]


def label_update(
    predictor: Voter, odds: Tensor, trust: Tensor, classes: Tensor, prior: Tensor, kept: Tensor
) -> Tensor:
    """Fit the change of each channel's weight, and a common factor, to subsets of the labels.

    The maximum a posteriori of a multinomial regression, by Newton's method.

    Shapes:
        odds [L, C, V], trust [L, V, T], classes [L], prior [C], kept [B, L] of bool -> [B, V + 1]
    """
    frozen = predictor(odds, trust).double()  # [L, C]
    x = torch.cat([odds.double(), frozen[..., None]], 2)
    base, one_hot = frozen + prior.double().log(), F.one_hot(classes, len(prior)).double()
    precision = x.new_full((x.shape[2],), WEIGHT_PRECISION)
    precision[-1] = SCALE_PRECISION
    updates = []
    for subset in kept:
        rows, offset, wanted = x[subset], base[subset], one_hot[subset]
        update = torch.zeros_like(precision)
        for _ in range(STEPS):
            p = (offset + rows @ update).softmax(1)
            slope = torch.einsum("lcv,lc->v", rows, p - wanted) + precision * update
            mean = torch.einsum("lcv,lc->lv", rows, p)
            weighted = (rows * p.sqrt()[..., None]).flatten(0, 1)
            curvature = weighted.T @ weighted - mean.T @ mean + precision.diag()
            update = update - torch.linalg.solve(curvature, slope).clamp(-0.5, 0.5)
        updates.append(update)
    return torch.stack(updates).float()
