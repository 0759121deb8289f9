"""The structure learner (Eq. 9) and its objective (Eq. 13-18)."""

from graphglow.structure.config import LearnerConfig, ObjectiveConfig
from graphglow.structure.latent import (
    BlendedStructure,
    FixedStructure,
    PivotStructure,
    SampledStructure,
    Structure,
)
from graphglow.structure.learner import StructureLearner

__all__ = [
    "BlendedStructure",
    "FixedStructure",
    "LearnerConfig",
    "ObjectiveConfig",
    "PivotStructure",
    "SampledStructure",
    "Structure",
    "StructureLearner",
]
