"""What a backbone is: the graph-specific GNN h_w that runs on the mixed structure."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphglow.gnn.dropout import Dropout
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
    encoder: Encoder = "gcn"
    """How Z^0 is made."""
    num_nodes: int | None = None
    """N, for a backbone with a weight per node."""
    attention_heads: int = 8
    """Most heads of gat; 8 in its paper."""
    teleport: float = 0.1
    """alpha of appnp, gpr and gcnii; 0.1 in their papers, for citation graphs."""
    steps: int = 10
    """K of appnp and gpr; 10 in their papers."""


class Backbone(nn.Module, ABC):
    """A GNN in two parts: what a pass computes once, and what each refinement repeats.

    To add one: subclass, implement the two methods, add the class to ``BACKBONES``; the command
    line, the checks and the tests pick it up from there. Randomness comes only from the ``dropout``
    that is passed in; None means evaluation. Write tensor code for leading dimensions (``..``):
    a batch of runs is one backbone whose parameters are stacked (:func:`stack`).

    Args:
        num_features: Width of the input features.
        num_classes: Number of classes C.
        shape: Hidden width, depth, encoder.
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
    def encode(self, graph: Graph, dropout: Dropout | None) -> Encoded:
        """Compute what does not depend on the latent structure, with z0 [.., N, hidden]."""

    @abstractmethod
    def forward(
        self, encoded: Encoded, mix: MixedPropagation, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings z [.., N, hidden] for the next structure, and logits [.., N, C]."""


def stack(backbones: Sequence[Backbone]) -> Backbone:
    """One backbone for a batch of runs: each parameter gets a leading dimension B.

    A single one is returned as it is, without a batch dimension.
    """
    if len(backbones) == 1:
        return backbones[0]
    stacked = copy.deepcopy(backbones[0])
    states = [backbone.state_dict() for backbone in backbones]
    for name, parameter in stacked.named_parameters():
        parameter.data = torch.stack([state[name] for state in states])
    return stacked


def glorot(rows: int, columns: int, generator: torch.Generator) -> nn.Parameter:
    """A weight matrix with Glorot's uniform initial values."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns), generator=generator))


def vector(*size: int) -> nn.Parameter:
    """A bias: zeros."""
    return nn.Parameter(torch.zeros(*size))


def row(bias: Tensor) -> Tensor:
    """A bias [.., F] as the row [.., 1, F] that all nodes share."""
    return bias[..., None, :]
