"""Graph-specific GNNs: encoder, message passing over mixed structures (Alg. 1), backbones."""

from graphglow.gnn.backbones import BACKBONES, Backbone, BackboneShape, backbone_class, stack
from graphglow.gnn.dropout import Dropout
from graphglow.gnn.encoder import Encoded, Encoder, encode
from graphglow.gnn.latent_gnn import MixedPropagation, by_degree

__all__ = [
    "BACKBONES",
    "Backbone",
    "BackboneShape",
    "Dropout",
    "Encoded",
    "Encoder",
    "MixedPropagation",
    "backbone_class",
    "by_degree",
    "encode",
    "stack",
]
