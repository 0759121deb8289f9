"""Backbones by name. A new one is a class in a file of its own and a line in this table."""

from graphglow.errors import InputError
from graphglow.gnn.backbones.backbone import Backbone, BackboneShape, stack
from graphglow.gnn.backbones.gcn import GCN

BACKBONES: dict[str, type[Backbone]] = {"gcn": GCN}


def backbone_class(name: str) -> type[Backbone]:
    """Look a backbone up; an unknown name is refused with the known ones."""
    if name not in BACKBONES:
        raise InputError(f"backbone must be one of {', '.join(sorted(BACKBONES))}; got {name!r}")
    return BACKBONES[name]


__all__ = ["BACKBONES", "GCN", "Backbone", "BackboneShape", "backbone_class", "stack"]
