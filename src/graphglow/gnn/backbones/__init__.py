"""Backbones by name. A new one is a class, a line in this table and its name in the settings."""

from collections.abc import Callable

import torch

from graphglow.checks import one_of
from graphglow.gnn.backbones.backbone import Backbone, Shape
from graphglow.gnn.backbones.gat import GAT
from graphglow.gnn.backbones.gcn import GCN
from graphglow.gnn.backbones.gcnii import GCNII
from graphglow.gnn.backbones.h2gcn import H2GCN
from graphglow.gnn.backbones.linkx import LINKX
from graphglow.gnn.backbones.propagated_mlp import APPNP, GPR
from graphglow.gnn.backbones.sage import SAGE
from graphglow.graph import Graph
from graphglow.settings import Model

BACKBONES: dict[str, type[Backbone]] = {
    "appnp": APPNP,
    "gat": GAT,
    "gcn": GCN,
    "gcnii": GCNII,
    "gpr": GPR,
    "h2gcn": H2GCN,
    "linkx": LINKX,
    "sage": SAGE,
}


def backbone_class(name: str) -> type[Backbone]:
    """Look a backbone up; an unknown name is refused, with the nearest."""
    one_of("backbone", name, sorted(BACKBONES))
    return BACKBONES[name]


def backbones_that(can: Callable[[type[Backbone]], bool]) -> str:
    """The names of those that can do something, for a sentence that refuses another."""
    return ", ".join(sorted(name for name, kind in BACKBONES.items() if can(kind)))


def build_gnn(config: Model, graph: Graph, hidden: int, generator: torch.Generator) -> Backbone:
    """A new GNN for a graph, ``hidden`` wide."""
    shape = Shape(
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_nodes=graph.num_nodes,
        hidden=hidden,
        num_layers=config.num_layers,
        encoder=config.encoder,
        attention_heads=config.attention_heads,
        teleport=config.teleport,
        steps=config.steps,
    )
    return backbone_class(config.backbone)(shape, generator)
