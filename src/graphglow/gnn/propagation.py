"""The parts of Algorithm 1: the first embeddings, messages over two graphs, and dropout.

Dropout has an explicit generator: a forward pass that is given a :class:`Dropout` is one of
training, any other one of evaluation.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import Encoder


class Structure(Protocol):
    """Anything that passes messages over a latent graph: v [N, F] -> [N, F]."""

    def propagate(self, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class FixedStructure:
    """A given graph S [N, N], such as the one that the evidence learner infers before training."""

    matrix: SparseMatrix

    def propagate(self, v: Tensor) -> Tensor:
        return self.matrix @ v


@dataclass(frozen=True)
class Dropout:
    """The share of entries that training drops, and the generator that draws them."""

    rate: float
    generator: torch.Generator

    def mask(self, like: Tensor) -> Tensor:
        """Draw 0 (dropped) or 1 / (1 - rate) for each entry."""
        keep = 1 - self.rate
        mask = torch.empty_like(like, memory_format=torch.contiguous_format)
        if mask.is_cuda:
            mask.bernoulli_(keep, generator=self.generator)
        else:  # PyTorch's bernoulli_ draws one number at a time there, at a quarter of the speed
            mask.uniform_(generator=self.generator).add_(keep).floor_()
        return mask.div_(keep)


def drop(x: Tensor, dropout: Dropout | None) -> Tensor:
    """Drop entries of x."""
    return x if dropout is None or dropout.rate == 0 else x * dropout.mask(x)


def drop_features(x: SparseMatrix | Tensor, dropout: Dropout | None) -> SparseMatrix | Tensor:
    """Drop entries of the features [N, D]; a sparse matrix stays sparse."""
    if dropout is None or dropout.rate == 0 or isinstance(x, Tensor):
        return x if isinstance(x, SparseMatrix) else drop(x, dropout)
    return x.with_values(drop(x.values, dropout))


class Encoded(NamedTuple):
    """What a forward pass computes once, whatever the number of refinements.

    Shapes:
        z0 [N, D] embeddings for the first structure; cached: what the backbone's ``forward`` needs
        besides
    """

    z0: Tensor
    cached: tuple[Any, ...]


def encode(graph: Graph, weight: Tensor, *, kind: Encoder, dropout: Dropout | None) -> Encoded:
    """Z^0 = A_norm X W0 (``gcn``) or X W0 (``mlp``), without activation; W0 [features, D].

    Cached are X W0 and A_norm X W0, [N, D] each.
    """
    xw = drop_features(graph.x, dropout) @ weight
    axw = graph.adj @ xw
    return Encoded(axw if kind == "gcn" else xw, (xw, axw))


@dataclass(frozen=True)
class MixedPropagation:
    """lambda * MP_1(v, A) + (1 - lambda) * MP_2(v, A_hat): Eq. 12 before weights and activation.

    Algorithm 1 multiplies by W after propagating; both propagations are linear, so backbones
    multiply first, where the result is narrower. ``input_weight`` is lambda.
    """

    adj: SparseMatrix
    latent: Structure | None
    input_weight: float

    def __call__(self, v: Tensor, *, input_part: Tensor | None = None) -> Tensor:
        """Propagate v [N, F]; pass ``input_part = A_norm v`` where it is already known."""
        if self.latent is None or self.input_weight == 1:
            return self.adj @ v if input_part is None else input_part
        through_latent = self.latent.propagate(v)
        if self.input_weight == 0:
            return through_latent
        through_input = self.adj @ v if input_part is None else input_part
        return torch.lerp(through_latent, through_input, self.input_weight)
