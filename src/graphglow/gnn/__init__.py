"""Graph-specific GNNs: encoder, message passing over mixed structures (Alg. 1), backbones."""

from graphglow.gnn.backbones import BACKBONES, backbone_class, backbones_that
from graphglow.gnn.backbones.backbone import Backbone, LastLayer, Shape
from graphglow.gnn.dropout import Dropout
from graphglow.gnn.latent_gnn import Encoded, Encoder, MixedPropagation, encode
from graphglow.structure.learner import stack

__all__ = [
    "BACKBONES",
    "Backbone",
    "Dropout",
    "Encoded",
    "Encoder",
    "LastLayer",
    "MixedPropagation",
    "Shape",
    "backbone_class",
    "backbones_that",
    "encode",
    "stack",
]
