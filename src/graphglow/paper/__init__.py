"""The structure learner (Eq. 9) and its objective (Eq. 13-18)."""

from graphglow.paper.latent import (
    BlendedStructure,
    FixedStructure,
    PivotStructure,
    SampledStructure,
    Structure,
)
from graphglow.paper.learner import StructureLearner

__all__ = [
    "BlendedStructure",
    "FixedStructure",
    "PivotStructure",
    "SampledStructure",
    "Structure",
    "StructureLearner",
]
