"""The auditor: which edges of a graph look false, which are missing, without training on it.

``pair_features`` computes features of two nodes as if there were no edge between them,
``reference_tables`` compares them with this graph's other pairs, and ``auditor`` judges edges and
candidates. It learned that by ``pretraining`` over ``episodes``.
"""

from graphglow.auditing.auditor import Auditor, FalseShare, Findings
from graphglow.auditing.episodes import damaged
from graphglow.auditing.pair_features import GROUPS

__all__ = ["GROUPS", "Auditor", "FalseShare", "Findings", "damaged"]
