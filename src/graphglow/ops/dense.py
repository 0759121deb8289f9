"""Eq. 11 with Gamma in memory, made once for all layers: for graphs where it is small.

The same numbers as ``eager``, with a backward pass written out. With m and r the column and row
sums of Gamma, c = Gamma^T v / m, o = Gamma c / r and g the gradient of o::

    g'  = g / r,              dr = -(g' . o)
    ds  = Gamma^T g' / m,     dm = -(ds . c)
    dv  = Gamma ds
    dGamma = g' c^T + v ds^T + dr 1^T + 1 dm^T = [g', v, dr, 1] [c, ds, 1, dm]^T

so that the gradient of Gamma is a single matrix product; autograd on ``eager`` passes over [N, P]
nine times instead. A sum that was clamped passes no gradient: its dr or dm is zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from graphglow.linalg.triton_support import kernels_for, launching_on
from graphglow.ops.eager import EPS, Kernel, similarity
from graphglow.settings import Precision

CLAMPED = 0.999999 / EPS
"""An inverse sum above this was clamped: no gradient goes through the sum."""
FUSED_WIDTH, FUSED_COLUMNS = 128, 128
"""The kernels take up to so many features, and a Gamma with a multiple of so many columns."""


@contextmanager
def tf32_products(wanted: bool) -> Iterator[None]:
    """Let a GPU round the factors of float32 products to 10 bits, and undo it at the end.

    PyTorch has two switches for it, and refuses to read the older one once the newer has been set.
    """
    if not wanted:
        yield
        return
    switch = torch.backends.cuda.matmul
    on: bool | str
    try:
        name, on, before = "allow_tf32", True, switch.allow_tf32
    except RuntimeError:  # the caller uses the newer one
        name, on, before = "fp32_precision", "tf32", switch.fp32_precision
    setattr(switch, name, on)
    try:
        yield
    finally:
        setattr(switch, name, before)


class DenseGamma(NamedTuple):
    """Gamma with the inverses of its sums (clamped at EPS: an empty row or column passes zero)."""

    gamma: Tensor  # [.., N, P]
    inverse_rows: Tensor  # [.., N, 1]
    inverse_columns: Tensor  # [.., P, 1]
    cut: bool
    """Whether zeros of Gamma are cut entries, which pass no gradient."""
    precision: Precision


def dense_gamma(
    q: Tensor,
    k: Tensor,
    threshold: float | None,
    kernel: Kernel,
    heads: int,
    precision: Precision = "float32",
) -> DenseGamma:
    """Make Gamma: q [.., N, W], k [.., P, W]."""
    if kernel == "identity":
        gamma, rows, columns = _Gamma.apply(q, k, threshold, precision)  # type: ignore[no-untyped-call]
    else:
        if precision == "bfloat16":
            q, k = q.bfloat16(), k.bfloat16()
        gamma = similarity(q, k, threshold=threshold, kernel=kernel, heads=heads)
        rows, columns = _inverse_sums(gamma.detach())  # their gradient is part of _Propagate's
    return DenseGamma(gamma, rows, columns, threshold is not None, precision)


def propagate_dense(v: Tensor, gamma: DenseGamma) -> Tensor:
    """RowNorm(Gamma) RowNorm(Gamma^T) v: [.., N, F] -> [.., N, F]."""
    return cast(Tensor, _Propagate.apply(v, *gamma))  # type: ignore[no-untyped-call]


def _inverse_sums(gamma: Tensor) -> tuple[Tensor, Tensor]:
    def inverse(total: Tensor) -> Tensor:
        return total.clamp_min(EPS).reciprocal()[..., None]

    dtype = torch.float32 if gamma.dtype == torch.bfloat16 else gamma.dtype
    return inverse(gamma.sum(-1, dtype=dtype)), inverse(gamma.sum(-2, dtype=dtype))


class _Gamma(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, threshold: float | None, precision: Precision
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.precision = precision
        ctx.kernels = kernels_for(q, "triton_dense", "ops")
        if ctx.kernels is not None:
            with launching_on(q):
                gamma, *inverses = ctx.kernels.make_gamma(q, k, threshold, precision)
        else:
            if precision == "bfloat16":
                q, k = q.bfloat16(), k.bfloat16()
            with tf32_products(precision == "tf32"):
                gamma = q @ k.mT
            if threshold is not None:
                torch.threshold_(gamma, threshold, 0.0)
            inverses = _inverse_sums(gamma)
        ctx.save_for_backward(q, k)
        ctx.mark_non_differentiable(*inverses)
        return gamma, *inverses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        q, k = ctx.saved_tensors
        need_q, need_k, *_ = ctx.needs_input_grad
        if ctx.kernels is not None:
            with launching_on(q):
                dq, dk = ctx.kernels.gamma_backward(grad, q, k, ctx.precision, need_q, need_k)
            return dq, dk, None, None
        with tf32_products(ctx.precision == "tf32"):
            return grad @ k if need_q else None, grad.mT @ q if need_k else None, None, None


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        v: Tensor,
        gamma: Tensor,
        inverse_rows: Tensor,
        inverse_columns: Tensor,
        cut: bool,
        precision: Precision,
    ) -> Tensor:
        fits = v.shape[-1] <= FUSED_WIDTH and gamma.shape[-1] % FUSED_COLUMNS == 0
        fits = fits and precision != "tf32"  # the library is faster
        ctx.kernels = kernels_for(v, "triton_dense", "ops") if fits else None
        ctx.cut, ctx.precision = cut, precision
        if ctx.kernels is not None:
            parts = (v, gamma, inverse_rows, inverse_columns, precision)
            with launching_on(v):
                c, out = ctx.kernels.propagate_forward(*parts)
        else:
            with tf32_products(precision == "tf32"):
                c = (gamma.mT @ v.to(gamma.dtype)) * inverse_columns  # [.., P, F]
                out = (gamma @ c.to(gamma.dtype)) * inverse_rows  # [.., N, F]
        ctx.save_for_backward(v, gamma, inverse_rows, inverse_columns, c, out)
        return cast(Tensor, out.to(v.dtype))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        need_v, need_gamma, *_ = ctx.needs_input_grad
        wanted = ctx.cut, need_v, need_gamma
        if ctx.kernels is not None:
            with launching_on(grad):
                dv, d_gamma = ctx.kernels.propagate_backward(grad, saved, *wanted, ctx.precision)
        else:
            with tf32_products(ctx.precision == "tf32"):
                dv, d_gamma = _propagate_backward(grad, saved, *wanted)
        return dv, d_gamma, None, None, None, None


def _propagate_backward(
    grad: Tensor, saved: tuple[Tensor, ...], cut: bool, need_v: bool, need_gamma: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of v and of Gamma, zero where it is cut."""
    v, gamma, inverse_rows, inverse_columns, c, out = saved
    dtype = gamma.dtype
    g = grad * inverse_rows  # [.., N, F]
    ds = (gamma.mT @ g.to(dtype)) * inverse_columns  # [.., P, F]
    dv = (gamma @ ds.to(dtype)).to(v.dtype) if need_v else None
    if not need_gamma:
        return dv, None
    dr = -(g * out).sum(-1, keepdim=True) * (inverse_rows < CLAMPED)  # [.., N, 1]
    dm = -(ds * c).sum(-1, keepdim=True) * (inverse_columns < CLAMPED)  # [.., P, 1]
    # two columns of zeros besides: by fours, columns multiply fast
    left = torch.cat([g, v, dr, dr.new_ones(dr.shape), *[dr.new_zeros(dr.shape)] * 2], dim=-1)
    right = torch.cat([c, ds, dm.new_ones(dm.shape), dm, *[dm.new_zeros(dm.shape)] * 2], dim=-1)
    d_gamma = left.to(dtype) @ right.to(dtype).mT
    if cut:
        torch.ops.aten.threshold_backward.grad_input(d_gamma, gamma, 0.0, grad_input=d_gamma)
    return dv, d_gamma
