"""Graphs drawn from a relaxed posterior: one number in (0, 1) for each pair of nodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LEAST = -40.0
"""Below, sigmoid(y) counts as 4e-18: a CPU is slow with numbers near the end of float32."""


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """Two binary Concrete distributions over graphs, but for the posterior's logits.

    Shapes:
        places [N, N], of :func:`unfolding`; edges [E], the pairs that the prior takes for edges
    """

    places: Tensor
    temperature: float
    """tau, of the posterior."""
    prior_temperature: float
    """tau_0."""
    edges: Tensor
    edge_logit: float
    """The prior's logit of ``edges``."""
    other_logit: float
    """The prior's logit of all other pairs."""
    compare: bool = True
    """False leaves the KL out: it is then zero."""

    @property
    def ratio(self) -> float:
        return self.prior_temperature / self.temperature

    def prior_logits(self, like: Tensor) -> Tensor:
        """alpha_0: [M]."""
        return torch.full_like(like, self.other_logit).index_fill_(0, self.edges, self.edge_logit)

    def compared(self, drawn: Tensor) -> Tensor:
        """Where the prior sees a draw, x = tau_0 y - alpha_0, of ``drawn`` = alpha + L: [M]."""
        x = (drawn * self.ratio).sub_(self.other_logit)
        step = x.new_full((), self.other_logit - self.edge_logit)
        return x.index_add_(0, self.edges, step.expand(len(self.edges)))


class DrawnGraph:
    """D^-1/2 (A + I) D^-1/2 of a drawn A, to multiply with.

    For training it has ``taps``, one per product to come: see :class:`_Draw`.

    Shapes:
        adjacency [N, N], degrees [N], taps [N, F] each; graph @ v: [N, F] -> [N, F]
    """

    def __init__(
        self,
        adjacency: Tensor,
        degrees: Tensor,
        taps: Sequence[Tensor] = (),
        sources: list[Tensor] | None = None,
    ) -> None:
        self.adjacency, self.scale = adjacency, degrees.rsqrt()[:, None]
        self.taps, self.sources = taps, sources

    def __matmul__(self, v: Tensor) -> Tensor:
        v = v * self.scale
        if self.sources is None:
            return (self.adjacency @ v + v) * self.scale
        tap = self.taps[len(self.sources)]
        self.sources.append(v.detach())
        product: Tensor = _Product.apply(self.adjacency, v, tap)  # type: ignore[no-untyped-call]
        return (product + v) * self.scale


def draw(
    posterior: Tensor, relaxation: Relaxation, generator: torch.Generator, widths: Sequence[int]
) -> tuple[DrawnGraph, Tensor]:
    """A graph from q, and what this draw alone says of KL(q || p), to be averaged over draws.

    A = sigmoid(y), y = (alpha + L) / tau, L = logit(u), u uniform. KL is the same for y as for A,
    and y is logistic: log q(y) = log tau + log u(1 - u), which alpha does not move, and log p(y) =
    log tau_0 + log s(1 - s), s = sigmoid(tau_0 y - alpha_0).

    Args:
        posterior: alpha.
        relaxation: Temperatures and prior.
        generator: Draws u.
        widths: F of each product with the graph that will be taken, in order.

    Shapes:
        posterior [M] -> graph of [N, N], KL []
    """
    sources: list[Tensor] = []
    drawn = _Draw.apply(posterior, relaxation, generator, widths, sources)  # type: ignore[no-untyped-call]
    adjacency, degrees, kl, *taps = drawn
    return DrawnGraph(adjacency, degrees, taps, sources), kl


def drawn_with(y: Tensor, places: Tensor) -> DrawnGraph:
    """The graph of y [M] = (alpha + L) / tau, for evaluation; y is overwritten."""
    adjacency = unfolded(_relaxed(y), places)
    return DrawnGraph(adjacency, _degrees(adjacency))


class _Draw(torch.autograd.Function):
    """Draw A, its degrees and the KL's estimate, with few passes over the pairs both ways.

    A is used in products A v alone, so its gradient is a sum of outer products g v^T, which need
    not be formed at N x N one by one. Instead ``taps`` are handed out, one for each product: its
    backward sends g there, v waits in ``sources``, and here all become one product of thin
    matrices, over the pairs only. Saved is alpha + L; the rest is computed anew.
    """

    @staticmethod
    def forward(
        ctx: Any,
        posterior: Tensor,
        relaxation: Relaxation,
        generator: torch.Generator,
        widths: Sequence[int],
        sources: list[Tensor],
    ) -> tuple[Tensor, ...]:
        eps = torch.finfo(posterior.dtype).eps
        uniform = torch.empty_like(posterior).uniform_(generator=generator).clamp_(eps, 1 - eps)
        density = torch.addcmul(uniform, uniform, uniform, value=-1) if relaxation.compare else None
        drawn = uniform.logit_().add_(posterior)
        kl = drawn.new_zeros(())
        if density is not None:  # -log s(1 - s) = |x| - 2 log sigmoid(|x|), without overflow
            x = relaxation.compared(drawn).abs_()
            sigmoid = x.sigmoid()
            kl = x.add_(density.div_(sigmoid).div_(sigmoid).log_()).sum()
            kl -= len(x) * math.log(relaxation.ratio)
        adjacency = unfolded(_relaxed(drawn / relaxation.temperature), relaxation.places)
        taps = [drawn.new_zeros(()).expand(len(adjacency), width) for width in widths]
        ctx.save_for_backward(drawn)
        ctx.relaxation, ctx.sources = relaxation, sources
        ctx.mark_non_differentiable(adjacency)
        return adjacency, _degrees(adjacency), kl, *taps

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        _, of_degrees, of_kl, *of_products = grads
        (drawn,) = ctx.saved_tensors
        relaxation: Relaxation = ctx.relaxation
        left = torch.cat([*of_products, of_degrees[:, None]], dim=1)  # [N, K]
        right = torch.cat([*ctx.sources, torch.ones_like(of_degrees)[:, None]], dim=1)
        grad = outer_on_pairs(left / relaxation.temperature, right)
        value = _relaxed(drawn / relaxation.temperature)
        grad.mul_(value)
        grad.addcmul_(grad, value, value=-1)  # times a (1 - a), the sigmoid's derivative
        if relaxation.compare:
            kl = relaxation.compared(drawn).sigmoid_().sub_(0.5)  # half of -d log s(1 - s) / dx
            grad.add_(kl.mul_(2 * relaxation.ratio * of_kl))
        return grad, None, None, None, None


class _Product(torch.autograd.Function):
    """A v for a symmetric A; the gradient of A v goes to ``tap``."""

    @staticmethod
    def forward(ctx: Any, adjacency: Tensor, v: Tensor, tap: Tensor) -> Tensor:
        ctx.save_for_backward(adjacency)
        return adjacency @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        (adjacency,) = ctx.saved_tensors
        return None, adjacency @ grads[0], grads[0]


def unfolding(num_nodes: int, device: torch.device | str) -> Tensor:
    """Which number of a list of all pairs of nodes stands at each place of the symmetric matrix.

    Nodes are cut into two halves of a = N // 2 and b = N - a. The list holds the pairs across as
    [a, b], then those within as [b - 1, a]: above its diagonal entry (r, c) is the pair (r, c)
    of the first half, and on and below it the pair (r + 1, c) of the second. So nothing is kept
    twice, and all is whole matrices: thin ones can be multiplied into it. On the matrix's own
    diagonal, which no pair stands for, is 0.

    Shapes:
        [N, N], of 32 bits, into M = N (N - 1) / 2 pairs
    """
    a, b = _halves(num_nodes)
    pairs = torch.arange(num_nodes * (num_nodes - 1) // 2, dtype=torch.int32, device=device)
    across, within = pairs[: a * b].view(a, b), pairs[a * b :].view(b - 1, a)
    out = pairs.new_zeros(num_nodes, num_nodes)
    out[:a, a:], out[a:, :a] = across, across.T
    upper, lower = within.triu(1), within.tril()
    out[: b - 1, :a] += upper
    out[:a, : b - 1] += upper.T
    out[a + 1 :, a : 2 * a] += lower
    out[a : 2 * a, a + 1 :] += lower.T
    return out


def unfolded(pairs: Tensor, places: Tensor) -> Tensor:
    """The symmetric matrix of ``pairs``, zero on its diagonal, by the ``places`` of `unfolding`.

    Shapes:
        pairs [M], places [N, N] -> [N, N]
    """
    return pairs.index_select(0, places.view(-1)).view_as(places).fill_diagonal_(0)


def outer_on_pairs(left: Tensor, right: Tensor) -> Tensor:
    """l_i . r_j + l_j . r_i for each pair of nodes, in the order of :func:`unfolding`.

    Shapes:
        left [N, K], right [N, K] -> [M]
    """
    nodes = len(left)
    a, b = _halves(nodes)
    rows, columns = torch.cat([left, right], dim=1), torch.cat([right, left], dim=1)
    out = left.new_empty(nodes * (nodes - 1) // 2)
    torch.mm(rows[:a], columns[a:].T, out=out[: a * b].view(a, b))
    within = torch.mm(rows[a + 1 :], columns[a : 2 * a].T, out=out[a * b :].view(b - 1, a))
    within.tril_().add_((rows[: b - 1] @ columns[:a].T).triu_(1))
    return out


def _halves(num_nodes: int) -> tuple[int, int]:
    return num_nodes // 2, num_nodes - num_nodes // 2


def _relaxed(y: Tensor) -> Tensor:
    """The sigmoid, in place."""
    return y.clamp_min_(LEAST).sigmoid_()


def _degrees(adjacency: Tensor) -> Tensor:
    """Of A + I: [N]."""
    return adjacency.sum(1).add_(1)
