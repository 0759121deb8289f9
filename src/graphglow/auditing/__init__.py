"""The auditor: which edges of a graph look false, which are missing, without training on it.

``ground`` prepares a graph, ``pairs`` says what is known of two nodes with the edge between them
taken out, ``standing`` what that means on this graph; ``auditor`` answers, on ``candidates`` too.
``episodes`` and ``pretrain`` are how it learned.
"""

from graphglow.auditing.auditor import AUDIT_VERSION, Auditor, FalseShare, Findings
from graphglow.auditing.episodes import damaged

__all__ = ["AUDIT_VERSION", "Auditor", "FalseShare", "Findings", "damaged"]
