"""Operations on plain tensors. :func:`pivot_propagate` is Eq. 11; ``eager`` is the truth."""

from graphglow.ops.eager import propagate_over
from graphglow.ops.pivot_propagate import BACKENDS, Backend, choose_backend, pivot_propagate
from graphglow.ops.similarity import EPS, Kernel, similarity

__all__ = [
    "BACKENDS",
    "EPS",
    "Backend",
    "Kernel",
    "choose_backend",
    "pivot_propagate",
    "propagate_over",
    "similarity",
]
