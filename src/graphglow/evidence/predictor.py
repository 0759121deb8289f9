"""Votes: mix the predictions of all channels, weighted at each node by how reliable each is.

Channels are closed forms with exact leave-one-out predictions, so the same labels fit and judge
them. A frozen :class:`Voter` weighs each channel by its record on this graph. In the last vote the
labels of the graph update these weights: the maximum a posteriori of their leave-one-out log-loss
under a normal prior around the frozen weights, so that few labels change little. Where labels were
drawn evenly over classes, the class shares are estimated from the predictions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.evidence.channels import (
    Channel,
    absent,
    leave_one_out_mask,
    leave_one_out_scores,
    log_loss,
)
from graphglow.evidence.pair_features import FIRST_CHANNELS, FIRST_CONTEXT, SECOND_CHANNELS
from graphglow.graph.graph import Graph

if TYPE_CHECKING:  # which imports this
    from graphglow.evidence.refined import GraphEvidence

VOTERS = (*FIRST_CHANNELS, *SECOND_CHANNELS)
FINAL_CHANNELS = ("ffx", "ppr", "ppr_f", "spread_f", "community_f", "hidden_f")
CHANNELS = (*VOTERS, *FINAL_CHANNELS)
"""All channels of the predictor."""
MIXED = {"vote": VOTERS, "predictor": CHANNELS}
"""The channels that the learner's voters mix."""
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
RECORDS = ("agreement", "smoothness", "mean_sureness", "skew")
"""Measures of a channel that need no labels: they count where labels are few."""
TRUST = (
    "accuracy", "likelihood", "accuracy_behind", "likelihood_behind", *RECORDS,
    *(f"{name}_behind" for name in RECORDS[:2]), "sureness", "agreement_here", "degree",
    "labels_per_class", "classes",
)  # fmt: skip
"""The inputs that weigh a channel at a node; the same for all channels."""
MOST_EDGES = 2**18
HIDDEN = 32
SHARPNESS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
AT_ONCE = 2**16  # probabilities, nodes times classes, in one block
FOLDS, STEPS, MOST_LABELS = 5, 8, 4096  # of the update by labels; Newton steps
WEIGHT_PRECISION, SCALE_PRECISION = 30.0, 10.0
"""Precisions of the normal priors around the frozen weights and around their common factor."""
EVEN, SHARE_STEPS, SHARE_PRIOR, LEAST_GAIN = 0.05, 50, (0.02, 1.0), 0.03
"""Labels count as drawn evenly over classes below this probability of counts as equal; steps of
EM; weight of the labels' shares against the predictions': a constant, and one over the labels per
class, both over the predictions' gain in accuracy."""


class Voter(nn.Module):
    """``logits_k = tau sum_c alpha_c log(P_c(v, k) / pi_k)``, a weighted product of predictions.

    alpha is a softmax over channels of a small network that reads :data:`TRUST`. All channels share
    the network except for one vector each, so it learns how much a good record counts rather than
    which channel was good on the sources.

    Shapes:
        odds [K, C, V], trust [K, V, T]  ->  [K, C]
    """

    def __init__(self, channels: int = len(VOTERS), *, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(len(TRUST), HIDDEN, generator=generator)
        self.trust = nn.Parameter(drawn / len(TRUST) ** 0.5)
        self.channel = nn.Parameter(torch.zeros(channels, HIDDEN))
        self.out = nn.Parameter(torch.randn(HIDDEN, generator=generator) / HIDDEN**0.5)
        self.preference = nn.Parameter(torch.zeros(channels))
        self.log_tau = nn.Parameter(torch.tensor(0.7))
        self.tau_trust = nn.Parameter(torch.zeros(len(TRUST)))

    def weights(self, trust: Tensor, update: Tensor | None = None) -> Tensor:
        """Return the weight of each channel at each node: [K, V, T] -> [K, V].

        ``update`` [V + 1] or [K, V + 1] is what :func:`label_update` adds to the weights, and to
        their common factor of 1.
        """
        h = F.gelu(trust @ self.trust + self.channel)  # [K, V, H]
        alpha = (h @ self.out + self.preference).softmax(-1)
        tau = (self.log_tau + trust.mean(-2) @ self.tau_trust).clamp(-3, 3).exp()  # [K]
        weights = tau[..., None] * alpha
        return weights if update is None else weights * (1 + update[..., -1:]) + update[..., :-1]

    def forward(self, odds: Tensor, trust: Tensor, update: Tensor | None = None) -> Tensor:
        return (odds @ self.weights(trust, update)[..., None])[..., 0]


def unlabelled_records(graph: Graph, channels: list[Channel]) -> Tensor:
    """Compute :data:`RECORDS` of V channels from their predictions for all nodes: [V, 4].

    Agreement with the mean of the others, and between neighbours, both corrected for chance; mean
    confidence; divergence of the predicted class shares from the labels'.
    """
    if len(graph.seen) < 2:
        return torch.zeros(len(channels), len(RECORDS), device=graph.device)
    mean = sum((channel.probabilities for channel in channels), torch.zeros(())) / len(channels)
    step = max(1, len(graph.low) // MOST_EDGES)
    low, high = graph.low[::step].long(), graph.high[::step].long()
    records = []
    for channel in channels:
        p, count = channel.probabilities, len(channels)
        rest = (mean * count - p) / max(1, count - 1)
        share = p.mean(0)
        chance = (share * rest.mean(0)).sum()
        agreement = ((p * rest).sum(1).mean() - chance) / (1 - chance).clamp_min(1e-3)
        smoothness = torch.zeros_like(chance)
        if len(low):
            chance = share.square().sum()
            smoothness = ((p[low] * p[high]).sum(1).mean() - chance) / (1 - chance).clamp_min(1e-3)
        skew = (share * (share.clamp_min(1e-6) / graph.prior.clamp_min(1e-6)).log()).sum()
        records.append(torch.stack([agreement, smoothness, p.amax(1).mean(), skew.clamp(0, 4) / 2]))
    return torch.stack(records)


def vote_inputs(known: "GraphEvidence", voter: str, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of ``vote`` or ``predictor`` at nodes [K]: odds [K, C, V], trust [K, V, T].

    The log-odds are ``log P / pi``, clipped to -8 .. 8.
    """
    graph, records = known.graph, known.records[voter]
    channels = [known.channels[name] for name in MIXED[voter]]
    p = torch.stack([channel.probabilities[nodes] for channel in channels], 2)
    odds = (p.clamp_min(1e-6) / graph.prior[:, None]).log().clamp(-8, 8)
    scores = torch.stack([channel.scores for channel in channels])  # [V, 2]
    behind, less = scores - scores.amax(0), records[:, :2] - records[:, :2].amax(0)
    fixed = torch.cat([scores, behind, records, less], 1).expand(len(p), -1, -1)  # [K, V, 10]
    sureness = p.amax(1)  # [K, V]
    agreement = (p * p.mean(2, keepdim=True)).sum(1)
    degree = (graph.degree[nodes].log1p() / 4)[:, None].expand_as(sureness)
    place = FIRST_CONTEXT.index("labels_per_class")  # and the number of classes
    rest = known.context[place : place + 2].expand(*sureness.shape, 2)
    trust = torch.cat([fixed, torch.stack([sureness, agreement, degree], 2), rest], 2)
    return odds, trust


def sharpened(graph: Graph, logits: Tensor) -> Channel:
    """Make a channel of logits relative to the class shares [N, C], with the best sharpness.

    The logits of labelled nodes must be leave-one-out predictions.
    """
    sharpness = torch.tensor(SHARPNESS, device=logits.device)
    loo = sharpness[:, None, None] * logits[graph.labelled] + graph.prior.log()  # [S, L, C]
    cost = 2 * sharpness.log().square() + log_loss(graph, lambda some: loo[:, some])
    best = sharpness[cost.argmin()]
    probabilities = (best * logits + graph.prior.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"sharpness": best})


def predict_classes(
    graph: Graph, predictor: Voter, inputs_of: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Channel:
    """Predict all nodes; the weights of a labelled node are updated by the other folds' labels.

    ``inputs_of`` returns the :func:`vote_inputs` at some nodes.
    """
    if len(graph.seen) < 2:
        return absent(graph)
    fold = folds(graph)
    fair = leave_one_out_mask(graph).nonzero()[:, 0]
    fair = fair[torch.linspace(0, len(fair) - 1, min(len(fair), MOST_LABELS)).long()]
    nodes = graph.labelled[fair]
    kept = torch.stack([fold[nodes] != k for k in range(1 + FOLDS)])
    update = label_update(predictor, *inputs_of(nodes), graph.classes[fair], graph.prior, kept)
    every = torch.arange(graph.num_nodes, device=graph.device)
    blocks = torch.split(every, max(1, AT_ONCE // len(graph.seen)))
    logits = torch.cat([predictor(*inputs_of(some), update[fold[some]]) for some in blocks])
    shares = class_shares(graph, logits)
    probabilities = (logits + shares.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"update": update, "shares": shares})


def class_shares(graph: Graph, logits: Tensor) -> Tensor:
    """Estimate the share of each class among all nodes.

    Labels drawn at random have the shares of the graph. If their counts are more equal than chance
    allows (chi-squared below its 5 % quantile), they were drawn per class. The shares are then
    estimated from the predictions by EM (Saerens, Latinne and Decaestecker, 2002), shrunk towards
    the labels' shares, the more the less the predictions are right. Log-odds are halved there: what
    a few labels say is less sure than it looks.

    Shapes:
        logits [N, C] over the labels' shares -> [C]
    """
    mean = graph.counts.mean()
    spread = (graph.counts - mean).square().sum() / mean
    freedom = torch.full_like(spread, (len(graph.counts) - 1) / 2)
    if float(torch.special.gammainc(freedom, spread / 2)) >= EVEN:
        return graph.prior
    right = (logits[graph.labelled] + graph.prior.log()).argmax(1) == graph.classes
    majority = graph.prior.max()
    gain = ((right.float().mean() - majority) / (1 - majority)).clamp_min(LEAST_GAIN)
    shares, weight = graph.prior, (SHARE_PRIOR[0] + SHARE_PRIOR[1] / mean) / gain
    for _ in range(SHARE_STEPS):
        predicted = (logits / 2 + shares.log()).softmax(1).mean(0)
        shares = (predicted + weight * graph.prior) / (1 + weight)
    return shares


def folds(graph: Graph) -> Tensor:
    """Number the update for each node: 0 uses all labels, k all but those of fold k: [N]."""
    fold = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    fold[graph.labelled] = 1 + torch.arange(len(graph.labelled), device=graph.device) % FOLDS
    return fold


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
