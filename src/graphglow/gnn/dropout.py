"""Dropout with an explicit generator: training if one is given, evaluation if not."""

import torch
from torch import Tensor

from graphglow.graphs.sparse import SparseMatrix


def dropout(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    if generator is None or p == 0:
        return x
    keep = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) >= p
    return x * keep / (1 - p)


def dropout_features(
    x: SparseMatrix | Tensor, p: float, generator: torch.Generator | None
) -> SparseMatrix | Tensor:
    """Drop entries of a feature matrix; a sparse one stays sparse."""
    if isinstance(x, SparseMatrix):
        return x.with_values(dropout(x.values, p, generator))
    return dropout(x, p, generator)
