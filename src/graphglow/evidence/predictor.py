"""The predictor: one frozen network that reads what all channels say of a node, and answers.

Channels are closed forms with exact leave-one-out predictions, so every label trains them and
judges them at once. The network has the same weights for every node and every class: it knows
neither their number nor their order. It is a weighted product of the channels' answers, with the
weights by each channel's record on this graph, and a correction that starts at zero.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
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
from graphglow.evidence.votes import VOTERS, Voter, log_odds, sharpened, vote_evidence
from graphglow.graph.graph import Graph
from graphglow.linalg.rows import entries, times, unit_
from graphglow.linalg.sparse import SparseMatrix

FINAL = ("fx", "ffx")
"""Views: one- and two-hop means over the graph of the second round."""
FINAL_CHANNELS = ("ffx", "spread_f", "community_f", "hidden_f")
CHANNELS = (*VOTERS, "vote", *FINAL_CHANNELS, "stack")
"""All that the network reads."""
STACK = CHANNELS.index("stack")
RESIDUALS = ("label", "vote", "hidden_f")
"""What is taken off the labels that are carried to a node: the class shares, or an answer."""
CARRIED = tuple(f"{what}_{graph}{step}" for graph in "af" for step in (1, 2) for what in RESIDUALS)
OF_CLASS = ("log_share", "predicted_share", "backbone", "probability", "behind")
OF_NODE = (*(f"labels_{graph}{step}" for graph in "af" for step in (1, 2)), "degree", "sureness",
           "disagreement")  # fmt: skip
OF_GRAPH = ("labels_per_class", "classes", "chance", "degree", "has_features", "has_edges")
WIDTH, LAYERS = 32, 2
AT_ONCE = 2**18  # numbers of a hidden layer are this many times WIDTH
STACK_FOLDS, STACK_STEPS, STACK_PRIOR, STACK_LABELS = 5, 8, 10.0, 4096


class Predictor(nn.Module):
    """Two members, whose logits over the class shares are averaged.

    The first is an attention over the channels alone. The second has an attention of its own and a
    correction that reads, for each class of each node, the channels' log-odds, what labels around
    the node say against them, and what is known of class, node and graph; hidden layers also read
    the mean and the greatest over the classes. The first is ahead where labels are few, the second
    where they are many, and the mean of both is ahead of either; :meth:`answer` adds the stack
    (docs/evidence.md).

    Shapes:
        odds [.., C, V], trust [.., V, T], more [.., C, F], present [.., C] of bool -> [2, .., C]
    """

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__()
        self.alone = Voter(len(CHANNELS), seed=seed)
        self.attention = Voter(len(CHANNELS), seed=seed)
        width = len(CHANNELS) + len(CARRIED) + len(OF_CLASS) + len(OF_NODE) + len(OF_GRAPH)
        generator = torch.Generator().manual_seed(seed)
        sizes = [width, *([3 * WIDTH] * (LAYERS - 1))]
        self.layers = nn.ParameterList(
            torch.randn(size, WIDTH, generator=generator) / size**0.5 for size in sizes
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in sizes)
        self.out = nn.Parameter(torch.zeros(WIDTH))

    def forward(
        self, odds: Tensor, trust: Tensor, more: Tensor, present: Tensor | None = None
    ) -> Tensor:
        backbone = self.attention(odds, trust)  # [.., C]
        corrected = backbone + self.correction(odds, backbone, more, present)
        return torch.stack([self.alone(odds, trust), corrected])

    def answer(self, odds: Tensor, trust: Tensor, more: Tensor) -> Tensor:
        """Logits over the class shares: the mean of both members, and half of the stack.

        A stack that is absent, for want of a label to test it on, does not count.

        Shapes:
            odds [.., C, V], trust [.., V, T], more [.., C, F] -> [.., C]
        """
        half = self._of_stack(odds)
        members: Tensor = self(odds, trust, more)
        return (1 - half) * members.mean(0) + half * odds[..., STACK]

    def parts(self, odds: Tensor, trust: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        """The answer taken apart, ``odds @ weight + added``: weights [.., V] and added [.., C]."""
        half = self._of_stack(odds)
        weight = (1 - half) * (self.alone.weights(trust) + self.attention.weights(trust)) / 2
        weight[..., STACK] += half[..., 0]
        added = (1 - half) * self.correction(odds, self.attention(odds, trust), more) / 2
        return weight, added

    @staticmethod
    def _of_stack(odds: Tensor) -> Tensor:
        """The share of the stack in the answer about each node: [.., 1]."""
        return 0.5 * odds[..., STACK].any(-1, keepdim=True).to(odds)

    def correction(
        self, odds: Tensor, backbone: Tensor, more: Tensor, present: Tensor | None = None
    ) -> Tensor:
        """What the network adds to the attention's answer: [.., C]."""
        if present is None:
            present = torch.ones_like(backbone, dtype=torch.bool)
        shifted = backbone + more[..., len(CARRIED)]  # log_share: over the class shares
        shifted = shifted.masked_fill(~present, -1e4)
        p = shifted.softmax(-1)
        top = p.amax(-1, keepdim=True)
        of_class = torch.stack([backbone / 4, p, p - top], -1)
        of_node = top[..., None].expand(*backbone.shape, 1)
        h = torch.cat([odds / 4, more, of_class, of_node], -1)
        keep = present[..., None].to(h)
        for i, (weight, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            if i == 0:
                h = F.gelu(norm(h @ weight)) * keep
            else:
                mean = h.sum(-2, keepdim=True) / keep.sum(-2, keepdim=True).clamp_min(1)
                most = h.amax(-2, keepdim=True).clamp_min(0)  # absent classes are 0
                both = torch.cat([mean, most], -1).expand(*h.shape[:-1], -1)
                h = (h + F.gelu(norm(torch.cat([h, both], -1) @ weight))) * keep
        return h @ self.out


class Inputs(NamedTuple):
    """What the network reads of K nodes.

    Shapes:
        odds [K, C, V], trust [K, V, T], more [K, C, F]
    """

    odds: Tensor
    trust: Tensor
    more: Tensor


@dataclass(frozen=True, eq=False)
class FinalRound:
    """What the refined graph lets the channels say, and what labels around each node say.

    Shapes:
        adjacency [N, N] = S; carried [N, C, R]; of_class [C, 2]; of_node [N, *]; of_graph [*]
    """

    known: GraphEvidence
    adjacency: SparseMatrix
    views: dict[str, Tensor]
    channels: dict[str, Channel]
    carried: Tensor
    of_class: Tensor
    of_node: Tensor
    of_graph: Tensor

    @property
    def graph(self) -> Graph:
        return self.known.graph

    def inputs(self, nodes: Tensor) -> Inputs:
        """Of nodes [K]."""
        channels = [self.channels[name] for name in CHANNELS]
        odds, trust = vote_evidence(self.graph, channels, self.of_graph[:2], nodes)
        shape = (*odds.shape[:2], -1)
        spread = odds.std(-1, keepdim=True).mean(1, keepdim=True)
        more = torch.cat(
            [
                self.carried[nodes],
                self.of_class.expand(len(nodes), -1, -1),
                self.of_node[nodes, None].expand(shape),
                spread.expand(shape),
                self.of_graph.expand(shape),
            ],
            2,
        )
        return Inputs(odds, trust, more)


def final_round(known: GraphEvidence, adjacency: SparseMatrix) -> FinalRound:
    """Channels over the refined graph S [N, N], the stack of all, and labels carried to nodes."""
    graph = known.graph
    fx = times(adjacency, known.views["x"])
    views = {"ffx": unit_(times(adjacency, fx)), "fx": unit_(fx)}
    channels = dict(known.channels)
    every = known.views | views
    channels["ffx"] = ridge_channel(graph, views["ffx"])
    channels["spread_f"] = spread_channel(graph, adjacency)
    channels["hidden_f"] = ridge_channel(
        graph, hidden_layer(every, ("x", "fx", "ffx", "aax", "link"))
    )
    channels["community_f"] = community_channel(graph, _communities(adjacency))
    channels["stack"] = stack_channel(graph, channels)
    carried, masses = _carried(graph, channels, adjacency)
    places = [FIRST_CONTEXT.index(name) for name in OF_GRAPH]
    prior = graph.prior.clamp_min(1e-6)
    share = channels["vote"].probabilities.mean(0) / prior
    degree = graph.degree.log1p()[:, None] / 4
    return FinalRound(
        known=known,
        adjacency=adjacency,
        views=views,
        channels=channels,
        carried=carried,
        of_class=torch.stack([prior.log(), share.clamp(1e-3, 1e3).log()], 1),
        of_node=torch.cat([masses, degree], 1),
        of_graph=known.context[places],
    )


def _communities(adjacency: SparseMatrix) -> list[Tensor]:
    row, col, values = entries(adjacency)
    once = row < col
    if not bool(once.any()):
        return []
    edges = row[once], col[once], values[once], adjacency.shape[0]
    return [communities(*edges)]


def stack_channel(graph: Graph, channels: dict[str, Channel]) -> Channel:
    """``P ~ pi exp(sum_k w_k log P_k / pi)`` with w by this graph's labels (Wolpert, 1992).

    The channels' leave-one-out predictions at labelled nodes are what w is fitted to, by Newton's
    method against a normal prior around even weights. Labelled nodes are answered by the w of
    other folds.

    Shapes:
        channels [N, C] each -> [N, C]
    """
    if len(graph.seen) < 2 or not bool(scored(graph).any()):
        return absent(graph)
    fair = scored(graph).nonzero()[:, 0]
    fair = fair[torch.linspace(0, len(fair) - 1, min(len(fair), STACK_LABELS)).long()]
    p = [channel.probabilities for channel in channels.values()]
    nodes, own = graph.labelled[fair], graph.classes[fair]
    odds = log_odds(torch.stack([one[nodes] for one in p], 2), graph.prior)  # [L, C, V]
    fold = torch.arange(len(fair), device=graph.device) % STACK_FOLDS
    kept = torch.stack([torch.ones_like(fold).bool(), *(fold != k for k in range(STACK_FOLDS))])
    weights = _stack_weights(odds, own, graph.prior, kept.float())  # [1 + folds, V]
    logits = torch.zeros_like(p[0])
    of_fold = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    place = torch.arange(len(graph.labelled), device=graph.device)
    of_fold[graph.labelled] = 1 + place % STACK_FOLDS
    of_fold[nodes] = 1 + fold
    for k, one in enumerate(p):
        logits += weights[of_fold, k, None] * log_odds(one[..., None], graph.prior)[..., 0]
    probabilities = (logits + graph.prior.log()).softmax(1)
    scores = leave_one_out_scores(graph, probabilities)
    return Channel(probabilities, scores, chosen={"weights": weights[0]})


def _stack_weights(odds: Tensor, own: Tensor, prior: Tensor, kept: Tensor) -> Tensor:
    """Of several subsets of the labels at once: [L, C, V], [L], [C], [B, L] -> [B, V]."""
    odds = odds.double()
    kept, log_prior = kept.double(), prior.double().log()
    one_hot = F.one_hot(own, len(prior)).double()
    start = odds.new_full((len(kept), odds.shape[2]), 1.5 / odds.shape[2])
    weights = start
    eye = STACK_PRIOR * torch.eye(odds.shape[2], dtype=odds.dtype, device=odds.device)
    for _ in range(STACK_STEPS):
        p = (torch.einsum("lcv,bv->blc", odds, weights) + log_prior).softmax(-1)
        slope = torch.einsum("blc,lcv->bv", (p - one_hot) * kept[..., None], odds)
        slope = slope + STACK_PRIOR * (weights - start)
        mean = torch.einsum("blc,lcv->blv", p, odds)
        curve = []
        for b in range(len(kept)):  # one subset at a time: [L, C, V] is large
            scaled = (odds * (p[b] * kept[b][:, None])[..., None]).flatten(0, 1)
            part = scaled.T @ odds.flatten(0, 1)
            curve.append(part - (mean[b] * kept[b][:, None]).T @ mean[b] + eye)
        step = torch.linalg.solve(torch.stack(curve), slope[..., None])[..., 0]
        weights = weights - step.clamp(-0.5, 0.5)
    return weights.float()


def _carried(
    graph: Graph, channels: dict[str, Channel], adjacency: SparseMatrix
) -> tuple[Tensor, Tensor]:
    """What the labels one and two steps away say against an answer, a node's own label left out.

    At labelled nodes the residual is ``onehot(y) - P``, P by leave-one-out; with symmetric weights
    W and their sums D: ``one = W r``, ``two = W D^-1 W r`` less what returns to the node itself.
    Both are divided by how many labels they come from, and one more.

    Shapes:
        [N, C, R], and the numbers of labels [N, 4] on a log scale
    """
    nodes, classes = graph.num_nodes, len(graph.seen)
    one_hot = torch.eye(classes, device=graph.device)[graph.classes]
    residuals = []
    for name in RESIDUALS:
        answer = graph.prior if name == "label" else channels[name].probabilities
        answer = answer if name == "label" else answer[graph.labelled]
        residuals.append(one_hot - answer)
    known = torch.ones(len(one_hot), 1, device=graph.device)
    values = torch.zeros(nodes, len(RESIDUALS) * classes + 1, device=graph.device)
    values[graph.labelled] = torch.cat([*residuals, known], 1)
    carried, masses = [], []
    for weights in (graph.links, _off_diagonal(adjacency)):
        row, col, weight = entries(weights)
        strength = torch.zeros(nodes, device=graph.device).index_add_(0, row, weight)
        inverse = strength.clamp_min(1e-9).reciprocal()
        back = torch.zeros(nodes, device=graph.device)
        back.index_add_(0, row, weight.square() * inverse[col])
        one = times(weights, values)
        two = times(weights, one * inverse[:, None]) - back[:, None] * values
        for reached in (one, two):
            mass = reached[:, -1:].clamp_min(0)
            carried.append(reached[:, :-1] / (mass + 1))
            masses.append(mass.log1p() / 2)
    parts = [part.view(nodes, len(RESIDUALS), classes) for part in carried]
    return torch.cat(parts, 1).mT, torch.cat(masses, 1)


def _off_diagonal(adjacency: SparseMatrix) -> SparseMatrix:
    """S without self-loops, of mean weight 1."""
    row, col, values = entries(adjacency)
    apart = (row != col).to(values)
    values = values * apart
    mean = values.sum() / apart.sum().clamp_min(1)
    return adjacency.with_values(values / mean.clamp_min(1e-9))


def predict_classes(predictor: Predictor, final: FinalRound) -> Channel:
    """The network's answer about every node; its sharpness by leave-one-out."""
    graph = final.graph
    if len(graph.seen) < 2:
        return absent(graph)
    step = max(1, AT_ONCE // len(graph.seen))
    every = torch.arange(graph.num_nodes, device=graph.device)
    parts = [predictor.answer(*final.inputs(some)) for some in torch.split(every, step)]
    logits = torch.cat(parts)
    return sharpened(graph, logits)
