"""What a backbone is: the graph-specific GNN h_w that runs on the mixed structure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation
from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.settings import BackboneConfig


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a backbone is built from."""

    config: BackboneConfig
    """Depth, encoder, and what some kinds have besides."""
    num_features: int
    num_classes: int
    num_nodes: int
    hidden: int
    """d: width of the embeddings, equal to the structure learner's embedding size."""

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Widths before and behind each layer: features, hidden, .., hidden, classes."""
        inner = [self.hidden] * (self.config.num_layers - 1)
        return list(pairwise([self.num_features, *inner, self.num_classes]))


class LastLayer(NamedTuple):
    """A last propagation with nothing nonlinear behind it: the logits of u are a sum over nodes.

    With M = lambda A + (1 - lambda) L: ``logits_u = sum_v M_uv messages_v + own_u + bias``, where
    ``adj`` is A as the backbone has it in its last layer.

    Shapes:
        adj [N, N]; messages [N, C]; own [N, C]; bias [C]
    """

    adj: SparseMatrix
    messages: Tensor
    own: Tensor
    bias: Tensor


class Backbone(nn.Module, ABC):
    """A GNN in two parts: what a pass computes once, and what each refinement repeats.

    To add one: subclass, implement the two methods, add the class to ``BACKBONES`` and its name to
    ``settings.BackboneName``; the command line, the checks and the tests pick it up from there.
    Randomness comes only from the ``dropout`` that is passed in; None means evaluation.

    Args:
        shape: Its settings and sizes.
        generator: Draws the initial weights.
    """

    inductive: ClassVar[bool] = True
    """Whether a trained one can run on more nodes; False where it has a weight per node."""

    def __init__(self, shape: Shape, generator: torch.Generator) -> None:
        super().__init__()
        self.shape = shape

    @abstractmethod
    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        """Compute what does not depend on the latent structure, with z0 [N, hidden]."""

    @abstractmethod
    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings z [N, hidden] for the next structure, and logits [N, C]."""

    def last_layer(self, encoded: Encoded, mix: MixedPropagation) -> LastLayer:
        """Take an evaluation pass apart, where its logits are a sum over nodes.

        They are none where a nonlinearity stands behind the last propagation; then there is no
        such method, and nothing can be explained.
        """
        raise NotImplementedError

    @classmethod
    def explainable(cls) -> bool:
        return cls.last_layer is not Backbone.last_layer


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A weight matrix with Glorot's uniform initial values."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))


def glorots(widths: Sequence[tuple[int, int]], generator: torch.Generator) -> nn.ParameterList:
    """A weight matrix per layer."""
    return nn.ParameterList([glorot(a, b, generator) for a, b in widths])


def vector(*size: int) -> nn.Parameter:
    """A bias: zeros."""
    return nn.Parameter(torch.zeros(*size))


def vectors(widths: Sequence[tuple[int, int]]) -> nn.ParameterList:
    """A bias per layer."""
    return nn.ParameterList([vector(b) for _, b in widths])
