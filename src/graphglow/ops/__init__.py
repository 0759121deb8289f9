"""Operations on plain tensors. :func:`pivot_propagate` is Eq. 11; ``eager`` is the truth."""

from graphglow.ops.eager import EPS, Kernel, propagate_over, similarity
from graphglow.ops.pivot_propagate import (
    BACKENDS,
    available_backends,
    choose_backend,
    pivot_propagate,
)

__all__ = [
    "BACKENDS",
    "EPS",
    "Kernel",
    "available_backends",
    "choose_backend",
    "pivot_propagate",
    "propagate_over",
    "similarity",
]
