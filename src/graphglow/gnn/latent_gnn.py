"""Algorithm 1: the first embeddings, messages over input graph and latent graph at once, dropout.

Dropout has explicit generators: training where a :class:`Dropout` is given, else evaluation.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from graphglow.graph import Graph
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper import Structure
from graphglow.settings import Encoder


@dataclass(frozen=True)
class Dropout:
    """What training drops, in one run or in a batch of runs.

    Each run draws from a generator of its own, so that it sees the same masks alone and in a batch.

    Args:
        rates: Share of entries dropped, one number per run.
        generators: One per run; several make a batch.
    """

    rates: tuple[float, ...]
    generators: tuple[torch.Generator, ...]

    def __post_init__(self) -> None:
        assert len(self.rates) == len(self.generators) >= 1

    def mask(self, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Draw 0 (dropped) or 1 / (1 - rate) for each entry: ``shape``, or [B, *shape]."""
        batch = () if len(self.rates) == 1 else (len(self.rates),)
        mask = (like.new_empty if all(self.rates) else like.new_ones)((*batch, *shape))
        runs = mask if batch else [mask]
        for run, rate, generator in zip(runs, self.rates, self.generators, strict=True):
            if rate > 0:  # alone, a run that drops nothing draws nothing
                _keep(run, 1 - rate, generator)
        if len(set(self.rates)) == 1:
            return mask.div_(1 - self.rates[0])
        parts = zip(mask, self.rates, strict=True)
        torch._foreach_div_([run for run, _ in parts], [1 - rate for rate in self.rates])
        return mask

    def only(self, active: Tensor) -> "Dropout":
        """For a step that counts in the ``active`` runs [..] only: the others draw nothing."""
        flags = active.reshape(-1).tolist()
        rates = tuple(r if a else 0.0 for r, a in zip(self.rates, flags, strict=True))
        return replace(self, rates=rates)


def _keep(mask: Tensor, share: float, generator: torch.Generator) -> None:
    """Fill with 1 in this share of places, else 0: one kernel on a GPU, a fast draw on a CPU."""
    if mask.is_cuda:
        mask.bernoulli_(share, generator=generator)
    else:  # PyTorch's bernoulli_ draws one number at a time there, at a quarter of the speed
        mask.uniform_(generator=generator).add_(share).floor_()


def drop(x: Tensor, dropout: Dropout | None) -> Tensor:
    """Drop entries of x [.., N, F]."""
    if dropout is None or not any(dropout.rates):
        return x
    return x * dropout.mask(x, tuple(x.shape[-2:]))


def drop_features(x: SparseMatrix | Tensor, dropout: Dropout | None) -> SparseMatrix | Tensor:
    """Drop entries of the features [N, D] that all runs share; a sparse matrix stays sparse."""
    if dropout is None or not any(dropout.rates):
        return x
    if isinstance(x, SparseMatrix):
        return x.with_values(x.values * dropout.mask(x.values, tuple(x.values.shape)))
    return x * dropout.mask(x, tuple(x.shape))


class Encoded(NamedTuple):
    """What one forward pass computes once, whatever the number of refinements.

    Beside z0, the tensors and the graph's operators that a backbone's own ``forward`` asks for:
    it knows their number and order, nobody else reads them.

    Shapes:
        z0 [.., N, D] embeddings for the first structure; cached: the backbone's own;
        operators [N, N] each
    """

    z0: Tensor
    cached: tuple[Tensor, ...]
    operators: tuple[SparseMatrix, ...] = ()


def encode(graph: Graph, weight: Tensor, *, kind: Encoder, dropout: Dropout | None) -> Encoded:
    """Z^0 = A_norm X W0 (``gcn``) or X W0 (``mlp``); W0 is the first layer's weight, no activation.

    Cached are X W0 and A_norm X W0.

    Shapes:
        weight [.., features, D] -> z0 and both cached [.., N, D]
    """
    xw = drop_features(graph.x, dropout) @ weight
    axw = graph.adj @ xw
    return Encoded(axw if kind == "gcn" else xw, (xw, axw))


@dataclass(frozen=True)
class MixedPropagation:
    """lambda * MP_1(v, A) + (1 - lambda) * MP_2(v, A_hat): Eq. 12 before weights and activation.

    Algorithm 1 multiplies by W after propagating; both propagations are linear, so backbones
    here multiply first, where the result is narrower. ``input_weight`` is lambda: one number, or
    [B, 1, 1] where the runs of a batch differ.
    """

    adj: SparseMatrix
    latent: Structure | None
    input_weight: float | Tensor

    def __call__(self, v: Tensor, *, input_part: Tensor | None = None) -> Tensor:
        """Propagate v [.., N, F]; pass ``input_part = A_norm v`` where it is already known."""
        shared = self.input_weight if isinstance(self.input_weight, float) else None
        if self.latent is None or shared == 1:
            return self.adj @ v if input_part is None else input_part
        through_latent = self.latent.propagate(v)
        if shared == 0:
            return through_latent
        through_input = self.adj @ v if input_part is None else input_part
        return torch.lerp(through_latent, through_input, self.input_weight)
