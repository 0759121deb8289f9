"""The evidence learner: a structure learner whose inputs mean the same on every graph.

``views`` and ``channels`` describe nodes, ``pair_features`` pairs of near ones and the graph. The
``learner`` reads them in two rounds that end in a ``refined`` graph, and its ``predictor`` mixes
the channels. ``insertion`` predicts new nodes. ``pretraining`` draws ``episodes``.
"""

from graphglow.evidence.episodes import random_graph
from graphglow.evidence.learner import EVIDENCE_VERSION, EvidenceLearner
from graphglow.evidence.pretraining import pretrain_evidence
from graphglow.evidence.refined import RefinedGraph

__all__ = [
    "EVIDENCE_VERSION",
    "EvidenceLearner",
    "RefinedGraph",
    "pretrain_evidence",
    "random_graph",
]
