"""The one door to Eq. 11, the hot operation of the package."""

import math
from typing import get_args

import torch
from torch import Tensor

from graphglow.checks import one_of
from graphglow.linalg.triton_support import triton_usable
from graphglow.ops.chunked import chunked
from graphglow.ops.dense import dense_gamma, propagate_dense
from graphglow.ops.eager import Kernel, eager, linear
from graphglow.settings import Backend, Precision

BACKENDS: tuple[str, ...] = get_args(Backend)

DENSE_LIMIT = 64_000_000
"""``auto`` keeps Gamma in memory up to this many entries (256 MB in float32)."""
DENSE_LIMIT_BESIDE_TRITON = 8_000_000
"""The same per run where the fused kernels can take over: beyond, their memory wins."""


def pivot_propagate(
    v: Tensor,
    q: Tensor,
    k: Tensor,
    *,
    threshold: float | None = 0.0,
    kernel: Kernel = "identity",
    heads: int = 1,
    backend: Backend = "auto",
    precision: Precision = "float32",
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
            ``linear`` where nothing is cut, else ``dense`` while Gamma is small, else ``triton``
            on a GPU that can run it, else ``chunked``. ``linear`` and ``triton`` take the kernel
            ``identity`` only.
        precision: Of the products of float32 inputs: ``float32``, or ``tf32`` to round their
            factors to 10 bits on the way into a GPU's tensor cores (in ``dense`` and ``triton``).
            ``bfloat16`` casts v, q and k for the operation, and the result back.

    Shapes:
        v [.., N, F], q [.., N, W], k [.., P, W] -> [.., N, F]
    """
    _check(v, q, k, threshold, kernel, heads)
    one_of("precision", precision, get_args(Precision))
    if backend == "auto":
        backend = choose_backend(q, k, threshold=threshold, kernel=kernel, heads=heads)
    _refuse_unusable(backend, v.device, threshold, kernel)
    dtype = v.dtype
    if precision == "bfloat16" and backend != "dense":  # which casts where it pays
        v, q, k = v.bfloat16(), q.bfloat16(), k.bfloat16()
    if backend == "eager":
        out = eager(v, q, k, threshold, kernel, heads)
    elif backend == "dense":
        out = propagate_dense(v, dense_gamma(q, k, threshold, kernel, heads, precision))
    elif backend == "chunked":
        out = chunked(v, q, k, threshold, kernel, heads)
    elif backend == "triton":
        from graphglow.ops.triton_fused import triton_fused  # triton is an optional dependency

        out = triton_fused(v, q, k, threshold, "tf32" if precision == "tf32" else "bf16x3")
    else:
        out = linear(v, q, k)
    return out.to(dtype)


def available_backends(device: torch.device | str) -> tuple[Backend, ...]:
    """The backends that run on this device."""
    usable: tuple[Backend, ...] = ("eager", "dense", "chunked", "linear")
    return (*usable, "triton") if triton_usable(torch.device(device)) else usable


def _refuse_unusable(
    backend: str, device: torch.device, threshold: float | None, kernel: str
) -> None:
    one_of("backend", backend, BACKENDS)
    usable = available_backends(device)
    if backend not in usable:
        raise RuntimeError(
            f"backend {backend!r} cannot run on {device}; usable here: {', '.join(usable)}"
        )
    if backend in ("linear", "triton") and kernel != "identity":
        raise ValueError(f"backend {backend!r} needs kernel='identity'; got {kernel!r}")
    if backend == "linear" and threshold is not None:
        raise ValueError(f"backend 'linear' needs threshold=None; got {threshold}")


def choose_backend(
    q: Tensor, k: Tensor, *, threshold: float | None, kernel: Kernel, heads: int
) -> Backend:
    """Say what ``auto`` picks for these factors."""
    if threshold is None and kernel == "identity":
        return "linear"
    entries = q.shape[-2] * k.shape[-2]  # of one run
    if kernel != "identity":
        entries *= heads
    elif q.is_cuda and q.dtype != torch.float64 and "triton" in available_backends(q.device):
        return "dense" if entries <= DENSE_LIMIT_BESIDE_TRITON else "triton"
    return "dense" if entries * q.shape[:-2].numel() <= DENSE_LIMIT else "chunked"


def _check(
    v: Tensor, q: Tensor, k: Tensor, threshold: float | None, kernel: str, heads: int
) -> None:
    shapes = f"got v {tuple(v.shape)}, q {tuple(q.shape)}, k {tuple(k.shape)}"
    if v.ndim < 2 or q.ndim < 2 or k.ndim < 2:
        raise ValueError(f"v, q and k must be matrices; {shapes}")
    if v.shape[:-1] != q.shape[:-1]:
        raise ValueError(f"v and q must have one row per node; {shapes}")
    if q.shape[-1] != k.shape[-1] or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"q and k must have the same width; {shapes}")
    if k.shape[-2] < 1:
        raise ValueError(f"k must have at least one pivot; {shapes}")
    if not v.dtype == q.dtype == k.dtype or not v.is_floating_point():
        raise ValueError(
            f"v, q and k must share one floating type; got {v.dtype}, {q.dtype}, {k.dtype}"
        )
    if not v.device == q.device == k.device:
        raise ValueError(f"v, q and k must share a device; got {v.device}, {q.device}, {k.device}")
    if threshold is not None and not 0 <= threshold < math.inf:
        raise ValueError(f"threshold must be None or a number >= 0; got {threshold}")
    one_of("kernel", kernel, get_args(Kernel))
    if heads < 1 or q.shape[-1] % heads:
        raise ValueError(
            f"heads must divide the width of q; got heads={heads}, width {q.shape[-1]}"
        )
