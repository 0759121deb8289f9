"""The parts of Algorithm 1: the first embeddings, messages over two graphs, and dropout.

Dropout has an explicit generator: a forward pass that is given a :class:`Dropout` is one of
training, any other one of evaluation.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import BackboneConfig, Encoder

Values = TypeVar("Values", bound=SparseMatrix | Tensor)


class Structure(Protocol):
    """Anything that passes messages over a latent graph: v [N, F] -> [N, F]."""

    def propagate(self, v: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class FixedStructure:
    """A given graph S [N, N], such as the one that the evidence learner infers before training."""

    matrix: SparseMatrix

    def propagate(self, v: Tensor) -> Tensor:
        return self.matrix @ v


class Dropout(NamedTuple):
    """The share of entries that training drops, and the generator that draws them."""

    rate: float
    generator: torch.Generator


def drop(x: Values, dropout: Dropout | None) -> Values:
    """Multiply entries by 0 (dropped) or 1 / (1 - rate); a sparse matrix stays sparse."""
    if dropout is None or dropout.rate == 0:
        return x
    values: Tensor = x.values if isinstance(x, SparseMatrix) else x
    keep, mask = 1 - dropout.rate, torch.empty_like(values, memory_format=torch.contiguous_format)
    if mask.is_cuda:
        mask.bernoulli_(keep, generator=dropout.generator)
    else:  # PyTorch's bernoulli_ draws one number at a time there, at a quarter of the speed
        mask.uniform_(generator=dropout.generator).add_(keep).floor_()
    left = values * mask.div_(keep)
    return x.with_values(left) if isinstance(x, SparseMatrix) else left  # type: ignore[return-value]


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
    xw = drop(graph.x, dropout) @ weight
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


Outputs = tuple[Tensor, Tensor]
"""Embeddings for the next structure [N, hidden], and logits [N, C]."""


class Backbone(nn.Module, ABC):
    """A GNN in two parts: what a pass computes once, and what each refinement repeats.

    To add one: subclass, implement ``encode`` and ``forward``, add the class to ``BACKBONES`` and
    its name to ``settings.BackboneName``; the command line, the checks and the tests find it there.
    Randomness comes only from the ``dropout`` that is passed in; None means evaluation.

    The weights have the sizes of ``graph``, and are drawn by ``generator``; embeddings are
    ``hidden`` wide.
    """

    def __init__(
        self, config: BackboneConfig, graph: Graph, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.config = config
        sizes = [graph.num_features, *[hidden] * (config.num_layers - 1), graph.num_classes]
        self.widths = list(pairwise(sizes))
        """Of each layer: before it and behind it."""
        self.make_weights(graph, hidden, generator)

    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        """Create the weights with their initial values; here, a matrix and a bias per layer."""
        self.weights = glorots(self.widths, generator)
        self.biases = nn.ParameterList([torch.zeros(behind) for _, behind in self.widths])

    @abstractmethod
    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        """Compute what does not depend on the latent structure, with z0 [N, hidden]."""

    @abstractmethod
    def forward(self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None) -> Outputs:
        """Send messages over the mixed structure."""


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A weight matrix with Glorot's uniform initial values."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))


def glorots(widths: Sequence[tuple[int, int]], generator: torch.Generator) -> nn.ParameterList:
    """A weight matrix per layer."""
    start, values = nn.init.xavier_uniform_, [torch.empty(shape) for shape in widths]
    return nn.ParameterList([start(matrix, generator=generator) for matrix in values])


def vector(size: int) -> nn.Parameter:
    """A bias, zero at first."""
    return nn.Parameter(torch.zeros(size))
