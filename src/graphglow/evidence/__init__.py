"""The evidence learner: a structure learner whose inputs mean the same on every graph.

``views`` and ``channels`` say what is known of nodes, ``candidates`` which pairs are looked at,
``pairs`` what is known of a pair and ``context`` how far to trust it; ``scorer`` answers, in two
``rounds``. ``episodes`` and ``random_graphs`` are what it learns from.
"""

from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pretraining import pretrain_evidence
from graphglow.evidence.random_graphs import random_graph
from graphglow.evidence.refined import RefinedGraph, explain_pairs

__all__ = [
    "EVIDENCE_VERSION",
    "EvidenceLearner",
    "RefinedGraph",
    "explain_pairs",
    "pretrain_evidence",
    "random_graph",
]
