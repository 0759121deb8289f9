"""Graph-specific GNNs: message passing over mixed structures (Alg. 1), backbones, training."""

from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.propagation import Backbone, Dropout, FixedStructure, MixedPropagation, Structure

__all__ = [
    "BACKBONES",
    "Backbone",
    "Dropout",
    "FixedStructure",
    "MixedPropagation",
    "Structure",
]
