"""VGCN: a posterior over graphs, one probability per pair of nodes, learned with the GCN."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphglow.competitors.method import Competitor, Method, two_layer_gcn
from graphglow.errors import InputError
from graphglow.gnn.propagation import Dropout, drop, glorot, vector
from graphglow.graph import Graph
from graphglow.settings import RunConfig

LEAST = -40.0
"""Below, sigmoid(y) counts as 4e-18: a CPU is slow with numbers near the end of float32."""


@dataclass(frozen=True, kw_only=True)
class VGCNConfig(RunConfig):
    """VGCN: how sure the input graph is, how graphs are drawn, and how it is optimised."""

    least: ClassVar = RunConfig.least | {"samples": 1}

    hidden: int = 16
    """Width of the GCN's hidden layer."""
    edge_probability: float = 0.99
    """rho_1: prior probability of a pair of nodes that the input graph connects."""
    other_probability: float = 1e-5
    """rho_0: prior probability of a pair that it does not connect."""
    temperature: float = 0.1
    """tau: how far drawn edges are from 0 or 1; near 0 they are all but binary."""
    prior_temperature: float = 0.1
    """tau_0: the same for the prior that they are compared with."""
    kl_weight: float = 1e-3
    """beta: weight of the prior against the labels; 0 lets the labels alone move the graph."""
    samples: int = 3
    """S: graphs drawn per training step."""
    eval_samples: int = 16
    """Graphs whose predictions are averaged in evaluation, the same every time."""
    posterior_learning_rate: float = 0.1
    """Step size of the edge probabilities' optimizer (Adam on their logits)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("edge_probability", "other_probability"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} must lie in (0, 1); got {getattr(self, name)}")


class VGCN(Competitor):
    """Variational GCN (Elinas, Bonilla and Tiao, NeurIPS 2020, arXiv:1906.01852).

    Each pair i < j is an edge with probability rho_ij; the prior has rho_1 where the input graph
    has the edge (whatever it weighs) and rho_0 elsewhere. Both are relaxed to binary Concrete
    distributions, of temperatures tau and tau_0. Training descends on minus the ELBO per label,

        mean_s ( - log p(Y | X, A_s) + beta KL_s(q || p) ) / |Y|,

    where p(Y | X, A) is a two-layer GCN on D^-1/2 (A + I) D^-1/2 and KL_s is the KL's estimate from
    draw s. The posterior starts at the prior. A prediction is the mean probability over
    ``eval_samples`` draws.

    Differs from the paper: the loss is per label, so that the penalty on the weights weighs what it
    does for a GCN, and evaluation has fixed noise, in pairs L and -L (both logistic), so that the
    scores of two epochs differ by their weights alone. The KL is least where
    alpha / tau = alpha_0 / tau_0: with tau < tau_0 the prior itself asks for far more edges than
    rho_0 says (0.1 and 0.5: a tenth of all pairs), and training can fail.

    Shapes:
        posterior [M], the logits of rho for all M = N (N - 1) / 2 pairs as :func:`symmetric`
        orders them; edges [E], the pairs that the prior takes for edges; noise [R, M]
    """

    config: VGCNConfig

    def __init__(self, graph: Graph, config: VGCNConfig) -> None:
        super().__init__(graph, config)
        n, device = graph.num_nodes, graph.y.device
        self.weight_in = glorot(graph.num_features, config.hidden, self.start)
        self.weight_out = glorot(config.hidden, graph.num_classes, self.start)
        self.bias_in, self.bias_out = vector(config.hidden), vector(graph.num_classes)
        target, source = graph.entries
        upper = target < source
        places = symmetric(torch.arange(n * (n - 1) // 2, device=device), n)
        self.edges = places[target[upper], source[upper]]
        pairs = torch.empty(n * (n - 1) // 2, device=device)
        self.posterior = nn.Parameter(self.prior_logits(pairs))
        # L / tau of every other evaluation draw, in 16 bits: noise needs no more
        rows = -(-config.eval_samples // 2)
        self.noise = pairs.new_empty((rows, len(pairs)), dtype=torch.float16)
        noisy = torch.Generator(device).manual_seed(2**32 - 1 - config.seed)
        for row in self.noise:
            uniform = pairs.uniform_(generator=noisy)
            row.copy_(uniform.logit_(torch.finfo(pairs.dtype).eps).div_(config.temperature))

    def prior_logits(self, like: Tensor) -> Tensor:
        """alpha_0: [M]."""
        chances = self.config.edge_probability, self.config.other_probability
        edge, other = (math.log(p) - math.log1p(-p) for p in chances)
        return torch.full_like(like, other).index_fill_(0, self.edges, edge)

    def forward(self, y: Tensor, dropout: Dropout | None) -> Tensor:
        """The GCN on the graph A = sigmoid(y), y = (alpha + L) / tau: [M] -> [N, C]."""
        adjacency = symmetric(y.clamp_min(LEAST).sigmoid(), self.graph.num_nodes)
        degree, xw = adjacency.sum(1, keepdim=True), drop(self.graph.x, dropout) @ self.weight_in
        weights = self.bias_in, self.weight_out, self.bias_out
        return two_layer_gcn(adjacency, degree, xw, weights, dropout)

    def kl(self, drawn: Tensor, uniform: Tensor) -> Tensor:
        """Estimate KL(q || p) from one draw, ``drawn`` = alpha + L with L = logit(uniform): [].

        It is the same for y as for A, and y is logistic: log q(y) = log tau + log u(1 - u), which
        alpha does not move, and log p(y) = log tau_0 + log s(1 - s), s = sigmoid(x) of
        x = tau_0 y - alpha_0; -log s(1 - s) = 2 softplus(x) - x.
        """
        ratio = self.config.prior_temperature / self.config.temperature
        x = drawn * ratio - self.prior_logits(uniform)
        density = (uniform - uniform * uniform).log_()
        return (2 * F.softplus(x) - x + density).sum() - len(x) * math.log(ratio)

    def loss(self) -> Tensor:
        weight = self.config.kl_weight / len(self.graph.train)
        eps = torch.finfo(self.posterior.dtype).eps
        losses = []
        for _ in range(self.config.samples):
            uniform = torch.empty_like(self.posterior).uniform_(generator=self.generator)
            uniform.clamp_(eps, 1 - eps)
            drawn = self.posterior + uniform.logit()
            loss = self.training_loss(self(drawn / self.config.temperature, self.dropout))
            if weight > 0:
                loss = loss + weight * self.kl(drawn, uniform)
            losses.append(loss)
        return torch.stack(losses).mean()

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Log of the mean probability over the fixed draws: [N, C]."""
        scaled = self.posterior / self.config.temperature
        draws = []
        for sample in range(self.config.eval_samples):
            noise, sign = self.noise[sample // 2], 1 - 2 * (sample % 2)
            drawn = torch.add(scaled, noise, alpha=sign)
            draws.append(self(drawn, None).log_softmax(-1))
        return torch.stack(draws).logsumexp(0) - math.log(self.config.eval_samples)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The penalty is on the first layer's weights alone; the posterior has its own step."""
        others = [self.weight_out, self.bias_in, self.bias_out]
        step = self.config.posterior_learning_rate
        return [
            {"params": [self.weight_in]},
            {"params": others, "weight_decay": 0.0},
            {"params": [self.posterior], "weight_decay": 0.0, "lr": step},
        ]


def symmetric(pairs: Tensor, num_nodes: int) -> Tensor:
    """The symmetric matrix [N, N], zero on its diagonal, of numbers for all pairs of nodes [M].

    Nodes are cut into two halves of a = N // 2 and b = N - a. First come the pairs across, [a, b];
    then those within, [b - 1, a]: above its diagonal entry (r, c) is the pair (r, c) of the first
    half, and on and below it the pair (r + 1, c) of the second. So all is whole matrices.
    """
    a, b = num_nodes // 2, num_nodes - num_nodes // 2
    across, within = pairs[: a * b].view(a, b), pairs[a * b :].view(b - 1, a)
    first = F.pad(within.triu(1), (0, 0, 0, a - b + 1))
    second = F.pad(within.tril(), (0, b - a, 1, 0))
    upper = torch.cat([first + first.T, across], dim=1)
    return torch.cat([upper, torch.cat([across.T, second + second.T], dim=1)])


METHOD = Method(
    family="structure",
    summary="VGCN: a posterior over graphs, by variational inference (Elinas et al., NeurIPS 2020)",
    config=VGCNConfig,
    build=VGCN.build,
    backbone="gcn",
    pair_bytes=42,  # half as many pairs: the posterior and its Adam, one draw, noise
)
