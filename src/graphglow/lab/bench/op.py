"""Eq. 11 alone, backend against backend: time, memory, error, and share of the roof.

graphglow bench op --nodes 20000 200000 --pivots 1000 --device cuda
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from graphglow.checks import at_least, one_of, step_size
from graphglow.errors import InputError
from graphglow.lab.bench import measure
from graphglow.lab.bench.config import BenchConfig, Row, compared, quotient
from graphglow.ops import pivot_propagate
from graphglow.settings import Backend, Precision
from graphglow.training.device import resolve_device

CHECKED_NODES = 2048
"""Values and gradients are compared with float64 on the first so many nodes."""


@dataclass(frozen=True, kw_only=True)
class OpBench(BenchConfig):
    """The sizes of one call, and what to compare."""

    nodes: tuple[int, ...] = (2235, 19717)
    """N: several are measured one after the other."""
    pivots: int = 1000
    """P."""
    width: int = 256
    """W = H d: width of the similarity's factors."""
    features: int = 64
    """F: width of what is passed on."""
    backends: tuple[Backend, ...] = ()
    """Which to compare; eager comes first. By default all that can run here."""
    precision: Precision = "float32"
    """Arithmetic of the products."""
    min_seconds: float = 1.0
    """Time each call for about this long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for nodes in self.nodes:
            at_least("nodes", nodes, 1)
        for name, least in (("pivots", 1), ("width", 2), ("features", 1)):
            at_least(name, getattr(self, name), least)
        one_of("precision", self.precision, get_args(Precision))
        step_size("min_seconds", self.min_seconds)


def run_op(config: OpBench) -> Iterator[Row]:
    """One row per number of nodes and backend, eager first."""
    device = resolve_device(config.device)
    if config.precision == "tf32" and device.type != "cuda":
        raise InputError("precision tf32 must go with a GPU; got device cpu")
    ceilings = measure.ceilings(device, config.precision, min_seconds=config.min_seconds)
    for nodes in config.nodes:
        eager: Row = {}
        for backend in compared(config.backends, device):
            row = _measured(config, nodes, backend, device, ceilings)
            eager = row if backend == "eager" else eager
            row["speedup_over_eager"] = quotient(eager.get("both_ms"), row["both_ms"])
            row["peak_share_of_eager"] = quotient(row["peak_bytes"], eager.get("peak_bytes"))
            yield row


def _measured(
    config: OpBench, nodes: int, backend: Backend, device: torch.device, ceilings: measure.Ceilings
) -> Row:
    row = config.facts() | {"nodes": nodes, "backend": backend, "out_of_memory": False}
    row |= dict.fromkeys(("forward_ms", "backward_ms", "both_ms", "peak_bytes"))
    cut = None if backend == "linear" else 0.0  # half of the similarities; linear cuts none
    forward = partial(pivot_propagate, threshold=cut, backend=backend, precision=config.precision)
    *leaves, grad = inputs = _inputs(config, nodes, backend, device)
    both = partial(_with_gradients, forward, inputs)
    try:
        with measure.tf32_allowed(config.precision == "tf32"):  # in backends that multiply by torch
            row["both_ms"] = 1e3 * measure.median_seconds(both, config.min_seconds)
            alone = partial(forward, *leaves)
            row["forward_ms"] = 1e3 * measure.median_seconds(alone, config.min_seconds)
            back = partial(torch.autograd.grad, alone(), leaves, grad, retain_graph=True)
            row["backward_ms"] = 1e3 * measure.median_seconds(back, config.min_seconds)
            del back
            row["peak_bytes"] = measure.tensor_peak(both, device)
            first = [t.detach()[:CHECKED_NODES].clone() for t in inputs]
            got = _with_gradients(forward, first)
        exact = partial(pivot_propagate, threshold=cut, backend="eager")
        want = _with_gradients(exact, [t.detach().double() for t in first])
        pairs = zip(got, want, strict=True)
        errors = [float((a - b).abs().max() / b.abs().max().clamp_min(1e-300)) for a, b in pairs]
        row |= {"value_error": errors[0], "gradient_error": max(errors[1:])}
    except (torch.OutOfMemoryError, MemoryError):
        row |= {"both_ms": None, "peak_bytes": None, "out_of_memory": True}
    sizes = (nodes, config.pivots, config.width, config.features)
    return row | op_roofline(backend, *sizes, quotient(row["both_ms"], 1e3), ceilings)


def _with_gradients(forward: "partial[Tensor]", inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The result, and its gradients in v, q and k."""
    *leaves, grad = inputs
    for leaf in leaves:
        leaf.requires_grad_()
    out = forward(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, grad)


def _inputs(config: OpBench, nodes: int, backend: Backend, device: torch.device) -> list[Tensor]:
    """V [N, F], q [N, W], k [P, W] and the gradient of the result [N, F]."""
    draw = partial(
        torch.randn, generator=torch.Generator(device).manual_seed(config.seed), device=device
    )
    v, grad = draw(nodes, config.features), draw(nodes, config.features)
    q, k = draw(nodes, config.width), draw(config.pivots, config.width)
    if backend == "linear":  # a constant column makes (1 + s) / 2 of a cosine s
        q, k = (torch.cat([normalize(t[:, 1:]), torch.ones_like(t[:, :1])], 1) for t in (q, k))
        return [v.requires_grad_(), *((t / 2**0.5).requires_grad_() for t in (q, k)), grad]
    return [v.requires_grad_(), *(normalize(t).requires_grad_() for t in (q, k)), grad]


# Operations and bytes of Eq. 11, and how near a measured time is to the machine's roof


def executed_flop(backend: str, n: int, p: int, w: int, f: int) -> tuple[int, int]:
    """FLOP of the products that a backend makes, forward and backward.

    With u = 2 N P W for a product with the factors and x = 2 N P F for one with the values:
    ``eager`` and ``dense`` make q k^T, Gamma^T v and Gamma c, and two products backward for each;
    ``chunked`` and ``triton`` make Gamma again in each of their passes rather than keep it.
    """
    u, x = 2 * n * p * w, 2 * n * p * f
    return {
        "eager": (u + 2 * x, 2 * u + 4 * x),
        "dense": (u + 2 * x, 2 * u + 4 * x),
        "chunked": (2 * (u + x), (u + x) + 3 * (u + x)),
        "triton": (2 * (u + x), (u + x) + (2 * u + 3 * x) + (2 * u + 2 * x)),
        "linear": (4 * (n + p) * w * f, 8 * (n + p) * w * f),
    }[backend]


def least_bytes(n: int, p: int, w: int, f: int) -> tuple[int, int]:
    """Bytes of inputs and outputs in float32, each moved once: forward and backward."""
    inputs, values = 4 * (n * f + n * w + p * w), 4 * n * f
    return inputs + values, (inputs + values) + inputs


def roofline(flop: int, moved: int, seconds: float | None, ceilings: measure.Ceilings) -> Row:
    """``roof_ms`` is the time that the ceilings allow for these operations and bytes."""
    roof = max(flop / ceilings.flop_per_second, moved / ceilings.bytes_per_second)
    return {
        "gflop": flop / 1e9,
        "least_bytes": moved,
        "ceiling_tflops": ceilings.flop_per_second / 1e12,
        "ceiling_gbytes": ceilings.bytes_per_second / 1e9,
        "roof_ms": 1e3 * roof,
        "roof_share": quotient(roof, seconds),
    }


def op_roofline(
    backend: str, n: int, p: int, w: int, f: int, seconds: float | None, ceilings: measure.Ceilings
) -> Row:
    """The roof of forward and backward, and shares of the measured ceiling of products.

    ``ceiling_share`` counts what the backend executes; ``useful_share`` only what ``eager`` would
    (``linear`` counts its own), so that recomputation earns nothing there.
    """
    flop = sum(executed_flop(backend, n, p, w, f))
    useful = sum(executed_flop("linear" if backend == "linear" else "eager", n, p, w, f))
    possible = None if seconds is None else seconds * ceilings.flop_per_second
    return {
        **roofline(flop, sum(least_bytes(n, p, w, f)), seconds, ceilings),
        "tflops": quotient(flop / 1e12, seconds),
        "ceiling_share": quotient(flop, possible),
        "useful_share": quotient(useful, possible),
    }
