"""Graph-specific GNNs: encoder, message passing over mixed structures (Alg. 1), backbones."""

from graphglow.gnn.backbones import BACKBONES, backbone_class, backbones_that, build_gnn
from graphglow.gnn.backbones.backbone import Backbone, LastLayer, Shape, glorot, vector
from graphglow.gnn.latent_gnn import Dropout, Encoded, MixedPropagation, drop, drop_features
from graphglow.paper.learner import stack

__all__ = [
    "BACKBONES",
    "Backbone",
    "Dropout",
    "Encoded",
    "LastLayer",
    "MixedPropagation",
    "Shape",
    "backbone_class",
    "backbones_that",
    "build_gnn",
    "drop",
    "drop_features",
    "glorot",
    "stack",
    "vector",
]
