"""What a backbone is: the graph-specific GNN h_w that runs on the mixed structure."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphglow.gnn.encoder import Encoded, Encoder
from graphglow.gnn.latent_gnn import MixedPropagation
from graphglow.graphs import Graph


@dataclass(frozen=True, kw_only=True)
class BackboneShape:
    """What a backbone is built from, beside the graph's own sizes."""

    hidden: int
    """d: width of the embeddings, equal to the structure learner's embedding size."""
    num_layers: int = 2
    """L."""
    dropout: float = 0.5
    """Share of entries dropped in training."""
    encoder: Encoder = "gcn"
    """How Z^0 is made."""


class Backbone(nn.Module, ABC):
    """A GNN in two parts: what a pass computes once, and what each refinement repeats.

    To add one: subclass, implement the two methods, add the class to ``BACKBONES``; the command
    line, the checks and the tests pick it up from there. Randomness comes only from the generator
    that is passed in; None means evaluation.

    Args:
        num_features: Width of the input features.
        num_classes: Number of classes C.
        shape: Hidden width, depth, dropout, encoder.
        generator: Draws the initial weights.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        shape: BackboneShape,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape = shape

    @abstractmethod
    def encode(self, graph: Graph, generator: torch.Generator | None) -> Encoded:
        """Compute what does not depend on the latent structure, with z0 [N, hidden]."""

    @abstractmethod
    def forward(
        self, encoded: Encoded, mix: MixedPropagation, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings z [N, hidden] for the next structure, and logits [N, C]."""


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A weight matrix with Glorot's uniform initial values."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))
