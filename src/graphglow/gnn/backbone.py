"""What a backbone is: the graph-specific GNN h_w, which runs on the mixed structure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from graphglow.gnn.propagation import Dropout, Encoded, MixedPropagation
from graphglow.graph import Graph
from graphglow.settings import BackboneConfig

Outputs = tuple[Tensor, Tensor]
"""Embeddings for the next structure [N, hidden], and logits [N, C]."""


class Backbone(nn.Module, ABC):
    """A GNN in two parts: what a pass computes once, and what each refinement repeats.

    To add one: subclass, implement the three abstract methods, add the class to ``BACKBONES`` and
    its name to ``settings.BackboneName``; the command line, the checks and the tests find it there.
    Randomness comes only from the ``dropout`` that is passed in; None means evaluation.

    Args:
        config: Depth, encoder, and the settings of some kinds.
        graph: The graph, whose sizes the weights have.
        hidden: Width of the embeddings.
        generator: Draws the initial weights.
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

    @abstractmethod
    def make_weights(self, graph: Graph, hidden: int, generator: torch.Generator) -> None:
        """Create the weights with their initial values."""

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
    return nn.ParameterList([glorot(a, b, generator) for a, b in widths])


def vector(size: int) -> nn.Parameter:
    """A bias, zero at first."""
    return nn.Parameter(torch.zeros(size))


def vectors(widths: Sequence[tuple[int, int]]) -> nn.ParameterList:
    """A bias per layer."""
    return nn.ParameterList([vector(b) for _, b in widths])
