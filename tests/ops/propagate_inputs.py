"""Random inputs for Eq. 11 that stay away from the cut, where Gamma jumps."""

import torch
from graphglow.ops.dense import dense_gamma, propagate_dense
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphglow.paper.pivots import similarity

CASES = {  # name -> kernel, heads, threshold
    "identity cut at 0": ("identity", 1, 0.0),
    "identity cut at 0.1": ("identity", 1, 0.1),
    "identity uncut": ("identity", 1, None),
    "exp cut at 0.1": ("exp", 4, 0.1),
    "exp of one head": ("exp", 1, None),
    "sigmoid cut at 0.5": ("sigmoid", 4, 0.5),
    "sigmoid uncut": ("sigmoid", 2, None),
}


def inputs(n, p, *, case, width=8, features=3, batch=(), seed=0, margin=1e-6):
    """v, q, k in float64; no similarity lies within ``margin`` of the threshold."""
    kernel, heads, threshold = CASES[case]
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

    for _ in range(100):
        v, q, k = normal(n, features), normal(n, width) / 2, normal(p, width) / 2
        if threshold is None and kernel == "identity":
            q, k = q.abs(), k.abs()  # nothing is cut, so similarities must be non-negative
        full = similarity(q, k, threshold=None, kernel=kernel, heads=heads)
        if threshold is None or (full - threshold).abs().min() > margin:
            return v, q, k
    raise AssertionError("no inputs away from the cut")


def lonely_inputs(batch=()):
    """No pivot is above the cut for nodes 0 and 5, no node for pivot 2."""
    v, q, k = inputs(10, 4, case="identity uncut", batch=batch)
    q[..., [0, 5], :] *= -1
    k[..., 2, :] = 0
    return v, q, k


def faint_inputs():
    """Similarities above zero whose sum is clamped: the clamp passes no gradient."""
    v, q, k = inputs(10, 4, case="identity uncut")
    q[3] *= 1e-15
    k[1] *= 1e-15
    assert 0 < (q @ k.T)[3].sum() < 1e-12
    assert 0 < (q @ k.T)[:, 1].sum() < 1e-12
    return v, q, k


def dense(v, *factors_and_settings):
    return propagate_dense(v, dense_gamma(*factors_and_settings))


def value_and_gradients(function, tensors, dtype=torch.float64):
    """The output and the gradients for v, q and k of a fixed random functional of it."""
    leaves = [t.to(dtype).requires_grad_() for t in tensors]
    out = function(*leaves)
    generator = torch.Generator().manual_seed(99)
    direction = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, direction)]


def gradients_of(function, tensors, needed, dtype=torch.float64):
    """The gradients for the ``needed`` ones of v, q and k alone."""
    typed = {name: t.detach().to(dtype) for name, t in zip("vqk", tensors, strict=True)}
    leaves = [typed[name].requires_grad_() for name in needed]
    return torch.autograd.grad(function(*typed.values()).square().sum(), leaves)


def assert_close_in_norm(got, want, bound):
    """Of each tensor: float32 sums lose their small entries."""
    for one, exact in zip(got, want, strict=True):
        assert one.shape == exact.shape
        assert one.isfinite().all()
        size = exact.norm()
        size = size if size > 1e-9 else 1  # of one node and one pivot all gradients but dv cancel
        assert (one.double() - exact).norm() <= bound * size


def assert_errs_at_most_twice(got, reference, truth):
    """The rule for 16 bits: no more than twice the error of eager in 16 bits."""
    for fast16, slow16, exact in zip(got, reference, truth, strict=True):
        allowed = 2 * (slow16 - exact).abs().max() + 1e-3 * exact.abs().max()
        assert (fast16 - exact).abs().max() <= allowed


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements of any tensor that an operation returns.

    Of floating-point tensors: Triton's interpreter copies what it is given byte by byte.
    """

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                self.elements = max(self.elements, t.numel())
        return out
