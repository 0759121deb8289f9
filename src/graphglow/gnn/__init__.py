"""Graph-specific GNNs: message passing over mixed structures (Alg. 1), backbones, training."""

from graphglow.gnn.backbone import Backbone
from graphglow.gnn.backbones import BACKBONES, backbone_class, build_gnn
from graphglow.gnn.propagation import Dropout, FixedStructure, MixedPropagation, Structure

__all__ = [
    "BACKBONES",
    "Backbone",
    "Dropout",
    "FixedStructure",
    "MixedPropagation",
    "Structure",
    "backbone_class",
    "build_gnn",
]
