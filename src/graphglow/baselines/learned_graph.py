"""A learned graph as a dense matrix: messages over it, and what it costs."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphglow.baselines.weighted_cosine import CollectedGradient, CutSimilarity
from graphglow.ops import EPS
from graphglow.ops.dense import CLAMPED


class PenaltyRates(NamedTuple):
    """alpha, beta and gamma of L_G, not yet divided by the number of nodes; None of them < 0."""

    smoothness: float
    connectivity: float
    sparsity: float

    def per_entry(self, n: int) -> "PenaltyRates":
        """As the sums over n nodes are weighted: alpha/(2n^2), beta/n, gamma/n^2."""
        alpha, beta, gamma = self
        return PenaltyRates(alpha / (2 * n * n), beta / n, gamma / (n * n))


class Latent(Protocol):
    """What a step needs of a learned graph."""

    @property
    def similarity(self) -> CutSimilarity: ...

    def propagate(self, v: Tensor) -> Tensor:
        """Pass messages over it: [N, F] -> [N, F]."""
        ...

    def penalty(self, distances: Tensor | None, rates: PenaltyRates) -> Tensor:
        """L_G: []; ``distances`` between the features of its nodes, None where alpha is 0."""
        ...


class LearnedGraph(NamedTuple):
    """A [N, N], symmetric, with the inverses of its row sums [N, 1] (clamped at EPS)."""

    similarity: CutSimilarity
    inverse: Tensor

    @classmethod
    def of(cls, similarity: CutSimilarity) -> "LearnedGraph":
        # the gradient of these sums is part of what uses them
        total = similarity.weights.sum(1, keepdim=True)
        return cls(similarity, total.clamp_min(EPS).reciprocal())

    def propagate(self, v: Tensor) -> Tensor:
        """f(A) v, f the row normalisation: [N, F] -> [N, F]."""
        s = self.similarity
        parts = (v, s.turn, s.weights, self.inverse, s.gradient)
        out: Tensor = _RowNormalised.apply(*parts)  # type: ignore[no-untyped-call]
        return out

    def penalty(self, distances: Tensor | None, rates: PenaltyRates) -> Tensor:
        """alpha/(2n^2) sum A_ij |x_i - x_j|^2 - beta/n 1.log(A 1) + gamma/n^2 |A|_F^2: []."""
        if not any(rates):
            return self.inverse.new_zeros(())
        s, per_entry = self.similarity, rates.per_entry(len(self.inverse))
        parts = (s.turn, s.weights, self.inverse, distances, per_entry, s.gradient)
        out: Tensor = _Penalty.apply(*parts)  # type: ignore[no-untyped-call]
        return out


class _Penalty(torch.autograd.Function):
    """alpha sum A_ij d_ij - beta 1.log(A 1) + gamma |A|_F^2, and no matrix beside A and d."""

    @staticmethod
    def forward(
        ctx: Any,
        turn: Tensor,
        weights: Tensor,
        inverse: Tensor,
        distances: Tensor | None,
        rates: PenaltyRates,
        gradient: CollectedGradient,
    ) -> Tensor:
        ctx.rates, ctx.gradient = rates, gradient
        ctx.save_for_backward(weights, inverse, distances)
        alpha, beta, gamma = rates
        out = beta * inverse.log().sum()
        if distances is not None:
            out = out + alpha * inner(weights, distances)
        return out + gamma * inner(weights, weights) if gamma > 0 else out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, inverse, distances = ctx.saved_tensors
        alpha, beta, gamma = ctx.rates
        if beta > 0:
            d_degree = inverse.masked_fill(inverse > CLAMPED, 0.0) * (-beta * grad)
            ctx.gradient.add_product(d_degree, torch.ones_like(inverse))
        if distances is not None:
            ctx.gradient.add_scaled(alpha * grad, distances)
        if gamma > 0:
            ctx.gradient.add_scaled(2 * gamma * grad, weights)
        return torch.zeros_like(grad), None, None, None, None, None


class _RowNormalised(torch.autograd.Function):
    """A v / A 1 for a symmetric A, whose gradient is [g, dr] [v, 1]^T."""

    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        turn: Tensor,
        weights: Tensor,
        inverse: Tensor,
        gradient: CollectedGradient,
    ) -> Tensor:
        out = (weights @ v).mul_(inverse)
        ctx.gradient = gradient
        ctx.save_for_backward(v, weights, inverse, out)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        v, weights, inverse, out = ctx.saved_tensors
        g = grad * inverse
        d_total = -(g * out).sum(1, keepdim=True).masked_fill_(inverse > CLAMPED, 0.0)
        left, right = (g, d_total), (v, torch.ones_like(inverse))
        ctx.gradient.add_product(torch.cat(left, dim=1), torch.cat(right, dim=1))
        return weights @ g, torch.zeros_like(grad[0, 0]), None, None, None


def inner(one: Tensor, other: Tensor) -> Tensor:
    """sum_ij of the products of two matrices' entries, row by row: no third matrix is made."""
    return torch.bmm(one[:, None], other[:, :, None]).sum()


def squared(weights: Tensor) -> Tensor:
    """|A|_F^2."""
    norm: Tensor = torch.linalg.vector_norm(weights)
    return norm.square()
