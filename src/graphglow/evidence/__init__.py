"""The evidence learner: a structure learner whose inputs mean the same on every graph.

``views`` and ``channels`` describe nodes, ``pair_features`` the pairs that ``candidates`` finds,
``context`` the graph. A ``scorer`` reads them in each of two ``rounds``, and the ``predictor``
mixes the channels. ``pretraining`` draws ``episodes``.
"""

from graphglow.evidence.episodes import random_graph
from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pretraining import pretrain_evidence
from graphglow.evidence.refined import RefinedGraph, explain_pairs

__all__ = [
    "EVIDENCE_VERSION",
    "EvidenceLearner",
    "RefinedGraph",
    "explain_pairs",
    "pretrain_evidence",
    "random_graph",
]
