"""The one door to Eq. 11, the hot operation of the package."""

import math
from typing import Literal, get_args

from torch import Tensor

from graphglow.ops.chunked import chunked
from graphglow.ops.eager import eager
from graphglow.ops.linear import linear
from graphglow.ops.similarity import Kernel

Backend = Literal["auto", "eager", "chunked", "linear"]
BACKENDS: tuple[str, ...] = get_args(Backend)

EAGER_LIMIT = 64_000_000
"""``auto`` keeps Gamma in memory up to this many entries (256 MB in float32)."""


def pivot_propagate(
    v: Tensor,
    q: Tensor,
    k: Tensor,
    *,
    threshold: float | None = 0.0,
    kernel: Kernel = "identity",
    heads: int = 1,
    backend: Backend = "auto",
) -> Tensor:
    """Pass messages from nodes to pivots and back over the latent graph (Eq. 11)::

        Gamma = delta(mean_h phi(q_h k_h^T))
        out   = RowNorm(Gamma) RowNorm(Gamma^T) v

    A node with no pivot above the threshold receives zero.

    Args:
        v: Node values.
        q: Node factors of the similarity (:class:`graphglow.StructureLearner` makes them).
        k: Pivot factors.
        threshold: delta: similarities at or below it become zero; at least 0. None cuts nothing:
            the factors must then give non-negative similarities.
        kernel: phi, applied to each head's inner product.
        heads: H, for kernels other than ``identity``.
        backend: A named backend is used or refused, never silently replaced; ``auto`` takes
            ``linear`` where nothing is cut, else ``eager`` while Gamma is small, else ``chunked``.

    Shapes:
        v [.., N, F], q [.., N, W], k [.., P, W] -> [.., N, F]
    """
    _check(v, q, k, threshold, kernel, heads)
    if backend == "auto":
        backend = choose_backend(q, k, threshold=threshold, kernel=kernel, heads=heads)
    if backend == "eager":
        return eager(v, q, k, threshold, kernel, heads)
    if backend == "chunked":
        return chunked(v, q, k, threshold, kernel, heads)
    if backend == "linear":
        if threshold is not None or kernel != "identity":
            raise ValueError(
                "backend 'linear' needs threshold=None and kernel='identity'; "
                f"got threshold={threshold}, kernel={kernel!r}"
            )
        return linear(v, q, k)
    raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")


def choose_backend(
    q: Tensor, k: Tensor, *, threshold: float | None, kernel: Kernel, heads: int
) -> Backend:
    """Say what ``auto`` picks for these factors."""
    if threshold is None and kernel == "identity":
        return "linear"
    entries = q.shape[:-1].numel() * k.shape[-2] * (1 if kernel == "identity" else heads)
    return "eager" if entries <= EAGER_LIMIT else "chunked"


def _check(
    v: Tensor, q: Tensor, k: Tensor, threshold: float | None, kernel: str, heads: int
) -> None:
    if v.ndim < 2 or q.ndim < 2 or k.ndim < 2:
        raise ValueError(
            f"v, q and k must be matrices; got v {_shape(v)}, q {_shape(q)}, k {_shape(k)}"
        )
    if v.shape[:-1] != q.shape[:-1]:
        raise ValueError(f"v and q must have one row per node; got v {_shape(v)}, q {_shape(q)}")
    if q.shape[-1] != k.shape[-1] or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"q and k must have the same width; got q {_shape(q)}, k {_shape(k)}")
    if k.shape[-2] < 1:
        raise ValueError(f"k must have at least one pivot; got k {_shape(k)}")
    if not v.dtype == q.dtype == k.dtype or not v.is_floating_point():
        raise ValueError(
            f"v, q and k must share one floating type; got {v.dtype}, {q.dtype}, {k.dtype}"
        )
    if not v.device == q.device == k.device:
        raise ValueError(f"v, q and k must share a device; got {v.device}, {q.device}, {k.device}")
    if threshold is not None and not 0 <= threshold < math.inf:
        raise ValueError(f"threshold must be None or a number >= 0; got {threshold}")
    if kernel not in get_args(Kernel):
        raise ValueError(f"kernel must be one of {', '.join(get_args(Kernel))}; got {kernel!r}")
    if heads < 1 or q.shape[-1] % heads:
        raise ValueError(
            f"heads must divide the width of q; got heads={heads}, width {q.shape[-1]}"
        )


def _shape(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape)
