"""IDGL-Anchor: IDGL with a learned graph between nodes and a few anchors, linear in the nodes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphglow.baselines.idgl import IDGL, SPACE, IDGLConfig, memory_of
from graphglow.baselines.learned_graph import Latent, PenaltyRates, inner
from graphglow.baselines.method import Method, of_model
from graphglow.baselines.weighted_cosine import CollectedGradient, CutSimilarity
from graphglow.checks import at_least
from graphglow.graphs import Graph
from graphglow.ops import EPS
from graphglow.ops.dense import CLAMPED


@dataclass(frozen=True, kw_only=True)
class IDGLAnchorConfig(IDGLConfig):
    """IDGL-Anchor; the defaults are IDGL's for Cora."""

    num_anchors: int = 1000
    """s: nodes that all others are compared with; at most the number of nodes is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("num_anchors", self.num_anchors, 1)


class AnchorGraph(NamedTuple):
    """R [N, s] with the inverses of its row sums Delta [N, 1] and column sums Lambda [s, 1]."""

    similarity: CutSimilarity
    inverse_rows: Tensor
    inverse_columns: Tensor

    @classmethod
    def of(cls, similarity: CutSimilarity) -> "AnchorGraph":
        rows, columns = (similarity.weights.sum(dim)[:, None] for dim in (1, 0))
        inverses = (total.clamp_min(EPS).reciprocal() for total in (rows, columns))
        return cls(similarity, *inverses)

    def propagate(self, v: Tensor) -> Tensor:
        """Delta^-1 R Lambda^-1 R^T v, from nodes to anchors and back: [N, F] -> [N, F]."""
        s = self.similarity
        parts = (v, s.turn, s.weights, self.inverse_rows, self.inverse_columns, s.gradient)
        out: Tensor = _ThroughAnchors.apply(*parts)  # type: ignore[no-untyped-call]
        return out

    def penalty(self, distances: Tensor | None, rates: PenaltyRates) -> Tensor:
        """L_G of the anchors' graph R^T Delta^-1 R, n becoming s: []."""
        if not any(rates):
            return self.inverse_rows.new_zeros(())
        s, per_entry = self.similarity, rates.per_entry(len(self.inverse_columns))
        inverses = (self.inverse_rows, self.inverse_columns)
        parts = (s.turn, s.weights, *inverses, distances, per_entry, s.gradient)
        out: Tensor = _AnchorPenalty.apply(*parts)  # type: ignore[no-untyped-call]
        return out


class IDGLAnchor(IDGL):
    """IDGL-Anchor (Chen, Wu and Zaki, NeurIPS 2020, section 3.4): O(N s), never N x N.

    As :class:`IDGL`, with R_up between nodes and s anchors in place of A, and messages in two
    steps, ``f(A)`` becoming ``Delta^-1 R Lambda^-1 R^T``. With all nodes as anchors, R is IDGL's A
    (its columns in the anchors' order) and a message takes two steps of IDGL's, ``f(A) f(A)``:
    "anchors = all nodes is IDGL" holds for what is learned, not for how far it reaches.

    The graph that is regularised is the anchors': ``R^T Delta^-1 R`` [s, s], whose row sums are
    Lambda, in O(N s^2) time. The stopping rule compares R^(t), as IDGL compares A^(t). Anchors are
    drawn once per run.

    Shapes:
        R [N, s], anchors [s]
    """

    config: IDGLAnchorConfig

    def draw_anchors(self, generator: torch.Generator) -> Tensor:
        order = torch.randperm(self.graph.num_nodes, generator=generator)
        return order[: self.config.num_anchors].to(self.graph.y.device)

    def latent(self, similarity: CutSimilarity) -> Latent:
        return AnchorGraph.of(similarity)


class _ThroughAnchors(torch.autograd.Function):
    """The gradient of R is [g, v, dr, 1] [c, d, 1, dm]^T, as in :mod:`graphglow.ops.dense`."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        turn: Tensor,
        weights: Tensor,
        inverse_rows: Tensor,
        inverse_columns: Tensor,
        gradient: CollectedGradient,
    ) -> Tensor:
        c = (weights.T @ v).mul_(inverse_columns)  # [s, F] at the anchors
        out = (weights @ c).mul_(inverse_rows)  # [N, F]
        ctx.gradient = gradient
        ctx.save_for_backward(v, weights, inverse_rows, inverse_columns, c, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, weights, inverse_rows, inverse_columns, c, out = ctx.saved_tensors
        g = grad * inverse_rows
        d = (weights.T @ g).mul_(inverse_columns)  # [s, F]
        dr = -(g * out).sum(1, keepdim=True).masked_fill_(inverse_rows > CLAMPED, 0.0)
        dm = -(d * c).sum(1, keepdim=True).masked_fill_(inverse_columns > CLAMPED, 0.0)
        left = torch.cat([g, v, dr, torch.ones_like(dr)], dim=1)
        right = torch.cat([c, d, torch.ones_like(dm), dm], dim=1)
        ctx.gradient.add_product(left, right)
        return weights @ d, torch.zeros_like(grad[0, 0]), None, None, None, None


class _AnchorPenalty(torch.autograd.Function):
    """alpha sum E_pq d_pq - beta 1.log(Lambda) + gamma |E|_F^2 for E = R^T Delta^-1 R.

    With H = alpha d + 2 gamma E, the gradient of R is 2 Delta^-1 R H less, in each row u,
    (r_u . H r_u) / Delta_u^2, and less beta / Lambda_p in each column.
    """

    @staticmethod
    def forward(
        ctx: Any,
        turn: Tensor,
        weights: Tensor,
        inverse_rows: Tensor,
        inverse_columns: Tensor,
        distances: Tensor | None,
        rates: PenaltyRates,
        gradient: CollectedGradient,
    ) -> Tensor:
        ctx.rates, ctx.gradient = rates, gradient
        alpha, beta, gamma = rates
        anchors = None
        out = beta * inverse_columns.log().sum()
        if alpha > 0 or gamma > 0:
            anchors = weights.T @ (weights * inverse_rows)  # [s, s]
        if distances is not None and anchors is not None:
            out = out + alpha * inner(anchors, distances)
        if gamma > 0 and anchors is not None:
            out = out + gamma * inner(anchors, anchors)
        saved = (weights, inverse_rows, inverse_columns, distances, anchors)
        ctx.save_for_backward(*saved)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, inverse_rows, inverse_columns, distances, anchors = ctx.saved_tensors
        alpha, beta, gamma = ctx.rates
        if beta > 0:
            d_degree = inverse_columns.masked_fill(inverse_columns > CLAMPED, 0.0)
            ctx.gradient.add_product(torch.ones_like(inverse_rows), d_degree * (-beta * grad))
        if anchors is not None:
            h = anchors * (2 * gamma * grad)  # [s, s]
            if distances is not None:
                h.addcmul_(distances, alpha * grad)
            scaled = weights * inverse_rows  # [N, s]
            d_row = -((scaled @ h).mul_(scaled)).sum(1, keepdim=True)
            d_row.masked_fill_(inverse_rows > CLAMPED, 0.0)
            right = torch.cat([h, torch.ones_like(inverse_columns)], dim=1)
            ctx.gradient.add_product(torch.cat([scaled.mul_(2), d_row], dim=1), right)
        return (torch.zeros_like(grad), *(None,) * 6)


def _memory(graph: Graph, config: IDGLAnchorConfig) -> int:
    anchors = min(config.num_anchors, graph.num_nodes)
    regularised = anchors * (3 * graph.num_nodes + (config.refinements + 2) * anchors)
    return memory_of(graph, config, anchors) + 4 * regularised


METHOD = Method(
    family="structure",
    summary="IDGL-Anchor: IDGL through anchors, linear in the nodes (Chen et al., NeurIPS 2020)",
    config=IDGLAnchorConfig,
    build=of_model(IDGLAnchor),
    space={**SPACE, "num_anchors": (700, 1000, 1400)},
    backbone="gcn",
    memory=_memory,
)
