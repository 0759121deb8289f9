"""The auditor: which edges of a graph look false, which are missing, without training on it.

``pair_inputs`` prepares a graph, ``pair_features`` computes evidence about two nodes as it is
without an edge between them, ``reference_tables`` compares it with this graph's other pairs, and
``auditor`` judges edges and ``candidates``. ``episodes`` and ``pretraining`` are how it learned.
"""

from graphglow.auditing.auditor import AUDIT_VERSION, Auditor, FalseShare, Findings
from graphglow.auditing.episodes import damaged

__all__ = ["AUDIT_VERSION", "Auditor", "FalseShare", "Findings", "damaged"]
