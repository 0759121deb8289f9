"""Graph-specific GNNs: message passing over mixed structures (Alg. 1), backbones, training."""

from graphglow.gnn.backbone import Backbone, LastLayer, Shape, glorot, vector
from graphglow.gnn.backbones import BACKBONES, backbone_class, backbones_that, build_gnn
from graphglow.gnn.propagation import (
    Dropout,
    Encoded,
    FixedStructure,
    MixedPropagation,
    Structure,
    drop,
    drop_features,
)

__all__ = [
    "BACKBONES",
    "Backbone",
    "Dropout",
    "Encoded",
    "FixedStructure",
    "LastLayer",
    "MixedPropagation",
    "Shape",
    "Structure",
    "backbone_class",
    "backbones_that",
    "build_gnn",
    "drop",
    "drop_features",
    "glorot",
    "vector",
]
