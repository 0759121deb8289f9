"""The paper's structure learner (Eq. 9-12), its objective (Eq. 13-18) and its algorithms."""

from graphglow.paper.learner import StructureLearner
from graphglow.paper.pivots import BlendedStructure, PivotStructure

__all__ = ["BlendedStructure", "PivotStructure", "StructureLearner"]
