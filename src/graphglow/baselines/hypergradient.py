"""The truncated hypergradient of LDS: from a loss on held-out nodes back to every possible edge.

A GCN with weights w is trained for T steps, w_t+1 = Adam(w_t, dL/dw (w_t, A_t)), on graphs A_t, and
is then judged by F(w_T, A_T). Reverse mode carries p = dF/d(w, m, v) back through the steps; each
adds p E_t, the part of F that flows through its own graph. Two things keep this cheap:

- p times the second derivatives of L is the gradient of one number, the directional derivative
  of L along p. It is written out (forward over reverse), so that a first-order pass is enough.
- A enters only by products Y = A V, degrees among them (V = 1). So the gradient with respect to
  A is a sum of G V^T with G = d/dY: two thin factors, never an N x N matrix.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.ops.sparse import SparseMatrix
from graphglow.structure.objective import supervised_loss
from graphglow.training.adam import BETA_1, BETA_2

EPSILON = 1e-8
"""Added to Adam's squares under the root, where a derivative exists for a gradient of zero too."""


class Factors(NamedTuple):
    """A gradient with respect to A, as ``left @ right.T``: [N, K] each."""

    left: Tensor
    right: Tensor


class Weights(NamedTuple):
    """Of the GCN: first [D, H], bias [H], second [H, C], last_bias [C]."""

    first: Tensor
    bias: Tensor
    second: Tensor
    last_bias: Tensor


class AdamState(NamedTuple):
    """The weights and Adam's two moments, flat, and the steps done: [S], [S], [S], []."""

    weights: Tensor
    mean: Tensor
    square: Tensor
    done: Tensor


class Objective(NamedTuple):
    """Cross-entropy on nodes [M] with labels [M], and an L2 penalty on the first layer."""

    nodes: Tensor
    labels: Tensor
    weight_decay: float = 0.0


class Inputs(NamedTuple):
    """What one pass of the GCN reads beside its weights: graph, features, mask of hidden units."""

    adjacency: SparseMatrix | Tensor
    features: SparseMatrix | Tensor
    mask: Tensor | None


class InnerStep(NamedTuple):
    """One update, as the reverse pass needs it."""

    inputs: Inputs
    before: AdamState
    gradient: Tensor
    after: AdamState


class Propagation:
    """V -> D^-1/2 (A + I) D^-1/2 V, which remembers its products with A.

    Args:
        adjacency: A [N, N], symmetric: sparse, dense, or dense and bool.
        dtype: To compute in.
    """

    def __init__(self, adjacency: SparseMatrix | Tensor, dtype: torch.dtype) -> None:
        if isinstance(adjacency, SparseMatrix):
            self.adjacency: SparseMatrix | Tensor = adjacency
            degree = adjacency.crow.diff().to(dtype)[:, None]
        else:
            self.adjacency = adjacency.to(dtype)
            degree = self.adjacency.sum(1, keepdim=True)  # [N, 1]
        if torch.is_grad_enabled():
            degree.requires_grad_()
        self.scale = (1 + degree).rsqrt()
        self.products = [(degree, torch.ones_like(degree))]

    def __call__(self, v: Tensor) -> Tensor:
        v = self.scale * v
        product = self.adjacency @ v
        self.products.append((product, v))
        return self.scale * (product + v)

    def backward(self, value: Tensor, weights: Tensor) -> tuple[Tensor, Factors]:
        """Differentiate ``value`` with respect to the weights [S], and to A in factors."""
        outputs = [output for output, _ in self.products]
        grad, *left = torch.autograd.grad(value, [weights, *outputs])
        right = [v.detach() for _, v in self.products]
        return grad, Factors(torch.cat(left, 1), torch.cat(right, 1))


def gcn(weights: Weights, propagate: Propagation, xw: Tensor, mask: Tensor | None) -> Tensor:
    """A two-layer GCN (Kipf and Welling) from X W_1 [N, H] on: [N, C]."""
    hidden = torch.relu(propagate(xw) + weights.bias)
    hidden = hidden if mask is None else hidden * mask
    return propagate(hidden @ weights.second) + weights.last_bias


@dataclass(frozen=True, eq=False)
class Bilevel:
    """A GCN of D features, H hidden units and C classes, trained on L and judged by F."""

    widths: tuple[int, int, int]
    inner: Objective
    """L."""
    outer: Objective
    """F."""
    rate: float
    """Adam's step size."""

    @property
    def sizes(self) -> list[int]:
        d, h, c = self.widths
        return [d * h, h, h * c, c]

    def unpack(self, flat: Tensor) -> Weights:
        """Views of one flat vector."""
        first, bias, second, last_bias = torch.split(flat, self.sizes)
        _, h, c = self.widths
        return Weights(first.view(-1, h), bias, second.view(-1, c), last_bias)

    def loss_and_factors(
        self, flat: Tensor, inputs: Inputs, objective: Objective
    ) -> tuple[Tensor, Tensor, Factors]:
        """The objective, its gradient [S] with respect to the weights, and that to A."""
        flat = flat.detach().requires_grad_()
        weights = self.unpack(flat)
        propagate = Propagation(inputs.adjacency, flat.dtype)
        logits = gcn(weights, propagate, inputs.features @ weights.first, inputs.mask)
        value = supervised_loss(logits, objective.nodes, objective.labels)
        value = value + objective.weight_decay / 2 * weights.first.square().sum()
        grad, factors = propagate.backward(value, flat)
        return value.detach(), grad, factors

    def second_order(self, flat: Tensor, along: Tensor, inputs: Inputs) -> tuple[Tensor, Factors]:
        """``along`` times the derivatives of dL/dw: with respect to w [S], and to A."""
        flat = flat.detach().requires_grad_()
        w, d = self.unpack(flat), self.unpack(along)
        propagate = Propagation(inputs.adjacency, flat.dtype)
        xw = inputs.features @ torch.cat([w.first, d.first], 1)  # [N, 2H]: value and derivative
        z, dz = torch.chunk(propagate(xw), 2, dim=1)
        alive = (z.detach() + w.bias.detach() > 0).to(flat.dtype)
        alive = alive if inputs.mask is None else alive * inputs.mask
        h, dh = (z + w.bias) * alive, (dz + d.bias) * alive
        hw = torch.cat([h @ w.second, dh @ w.second + h @ d.second], 1)  # [N, 2C]
        nodes, labels, weight_decay = self.inner
        logits, change = torch.chunk(propagate(hw).index_select(0, nodes), 2, dim=1)
        p, change = (logits + w.last_bias).softmax(1), change + d.last_bias
        own = change.gather(1, labels[:, None])
        value = ((p * change).sum(1, keepdim=True) - own).mean()
        value = value + weight_decay * (w.first * d.first).sum()
        return propagate.backward(value, flat)

    def step(self, state: AdamState, inputs: Inputs) -> tuple[Tensor, InnerStep]:
        """One Adam step on the inner objective; return its value before the step."""
        value, grad, _ = self.loss_and_factors(state.weights, inputs, self.inner)
        return value, InnerStep(inputs, state, grad, adam(state, grad, self.rate))

    def hypergradient(self, steps: list[InnerStep], inputs: Inputs) -> Factors:
        """dF/dA summed over all graphs of these steps and of the outer objective (Algorithm 1).

        With the straight-through estimator, dA/dtheta = I, it is the gradient in theta.

        Args:
            steps: The last tau inner steps; earlier ones count as constant (truncation).
            inputs: What F is evaluated on: A_T, the features, no dropout.
        """
        last = steps[-1].after
        _, p_weights, factors = self.loss_and_factors(last.weights, inputs, self.outer)
        p_mean, p_square = torch.zeros_like(p_weights), torch.zeros_like(p_weights)
        parts = [factors]
        for step in reversed(steps):
            p_grad, p_mean, p_square = adam_backward(step, (p_weights, p_mean, p_square), self.rate)
            change, factors = self.second_order(step.before.weights, p_grad, step.inputs)
            p_weights = p_weights + change
            parts.append(factors)
        return Factors(*(torch.cat(side, 1) for side in zip(*parts, strict=True)))


def adam(state: AdamState, grad: Tensor, rate: float) -> AdamState:
    """Adam with epsilon under the root."""
    done = state.done + 1
    mean = torch.lerp(state.mean, grad, 1 - BETA_1)
    square = torch.lerp(state.square, grad * grad, 1 - BETA_2)
    first, second = _corrections(done, grad.dtype)
    step = rate * (mean / first) / (square / second + EPSILON).sqrt()
    return AdamState(state.weights - step, mean, square, done)


def adam_backward(
    step: InnerStep, p: tuple[Tensor, Tensor, Tensor], rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """From dF/d(w, m, v) after a step to dF/d(gradient, m, v) before it."""
    p_weights, p_mean, p_square = p
    first, second = _corrections(step.after.done, p_weights.dtype)
    root = (step.after.square / second + EPSILON).sqrt()
    scaled = rate * p_weights / (first * root)
    p_mean = p_mean - scaled
    p_square = p_square + scaled * step.after.mean / (2 * second * root * root)
    p_grad = (1 - BETA_1) * p_mean + 2 * (1 - BETA_2) * step.gradient * p_square
    return p_grad, BETA_1 * p_mean, BETA_2 * p_square


def _corrections(done: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """What Adam divides its moments by after so many steps."""
    return (1 - BETA_1**done).to(dtype), (1 - BETA_2**done).to(dtype)
