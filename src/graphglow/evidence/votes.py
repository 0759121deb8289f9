"""Votes: mix the predictions of all channels, weighted per node by how reliable each is."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.evidence.channels import Channel, leave_one_out_scores, log_loss
from graphglow.evidence.context import FIRST_CONTEXT
from graphglow.evidence.pair_features import FIRST_CHANNELS, SECOND_CHANNELS
from graphglow.graph.graph import Graph

VOTERS = (*FIRST_CHANNELS, *SECOND_CHANNELS)
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


class Voter(nn.Module):
    """``logits_k = tau sum_c alpha_c log(P_c(v, k) / pi_k)``, a weighted product of predictions.

    alpha is a softmax over channels of a small network that reads :data:`TRUST`. All channels share
    the network except for one vector each, so it learns how much a good record counts rather than
    which channel was good on the sources.

    Shapes:
        odds [.., C, V], trust [.., V, T]  ->  [.., C]
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

    def weights(self, trust: Tensor) -> Tensor:
        """Return the weight of each channel at each node: [.., V, T] -> [.., V]."""
        h = F.gelu(trust @ self.trust + self.channel)  # [.., V, H]
        alpha = (h @ self.out + self.preference).softmax(-1)
        tau = (self.log_tau + trust.mean(-2) @ self.tau_trust).clamp(-3, 3).exp()  # [..]
        return tau[..., None] * alpha

    def forward(self, odds: Tensor, trust: Tensor) -> Tensor:
        return (odds @ self.weights(trust)[..., None])[..., 0]


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


def vote_evidence(
    graph: Graph, channels: list[Channel], records: Tensor, context: Tensor, nodes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the inputs of a :class:`Voter` at nodes [K]: log-odds [K, C, V], trust [K, V, T].

    Args:
        graph: The graph.
        channels: The V channels.
        records: Of :func:`unlabelled_records`: [V, 4].
        context: Of :mod:`graphglow.evidence.context`: [G].
        nodes: The nodes.
    """
    p = torch.stack([channel.probabilities[nodes] for channel in channels], 2)
    odds = log_odds(p, graph.prior)
    scores = torch.stack([channel.scores for channel in channels])  # [V, 2]
    behind, less = scores - scores.amax(0), records[:, :2] - records[:, :2].amax(0)
    fixed = torch.cat([scores, behind, records, less], 1).expand(len(p), -1, -1)  # [K, V, 10]
    sureness = p.amax(1)  # [K, V]
    agreement = (p * p.mean(2, keepdim=True)).sum(1)
    degree = (graph.degree[nodes].log1p() / 4)[:, None].expand_as(sureness)
    place = FIRST_CONTEXT.index("labels_per_class")  # and the number of classes
    rest = context[place : place + 2].expand(*sureness.shape, 2)
    trust = torch.cat([fixed, torch.stack([sureness, agreement, degree], 2), rest], 2)
    return odds, trust


def log_odds(p: Tensor, prior: Tensor) -> Tensor:
    """Return ``log P / pi``, clipped to -8 .. 8: [K, C, V], [C] -> [K, C, V]."""
    return (p.clamp_min(1e-6) / prior[:, None]).log().clamp(-8, 8)


def sharpened(graph: Graph, logits: Tensor) -> Channel:
    """Make a channel of logits relative to the class shares [N, C], with the best sharpness.

    The logits of labelled nodes must be leave-one-out predictions.
    """
    sharpness = torch.tensor(SHARPNESS, device=logits.device)
    loo = sharpness[:, None, None] * logits[graph.labelled] + graph.prior.log()  # [S, L, C]
    cost = 2 * sharpness.log().square() + log_loss(graph, lambda some: loo[:, some])
    best = sharpness[cost.argmin()[None]]
    probabilities = (best * logits + graph.prior.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"sharpness": best})
