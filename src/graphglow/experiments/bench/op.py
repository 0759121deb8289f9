"""Eq. 11 alone, backend against backend: time, memory, error, and share of the roof.

graphglow bench op --nodes 20000 200000 --pivots 1000 --device cuda
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from graphglow.checks import at_least, one_of, step_size
from graphglow.errors import InputError
from graphglow.experiments.bench import measure
from graphglow.experiments.bench.config import (
    NAMED_BACKENDS,
    BenchConfig,
    Row,
    chosen_backends,
    quotient,
    some,
)
from graphglow.ops import Backend, Precision, pivot_propagate
from graphglow.structure.config import Delta
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
    backends: tuple[str, ...] = ()
    """Which to compare; eager comes first. By default all that can run here."""
    precision: Precision = "float32"
    """Arithmetic of the products."""
    min_seconds: float = 1.0
    """Time each call for about this long."""

    def __post_init__(self) -> None:
        super().__post_init__()
        some("nodes", self.nodes)
        for nodes in self.nodes:
            at_least("nodes", nodes, 1)
        for name, least in (("pivots", 1), ("width", 2), ("features", 1)):
            at_least(name, getattr(self, name), least)
        one_of("precision", self.precision, get_args(Precision))
        for backend in self.backends:
            one_of("backends", backend, NAMED_BACKENDS)
        step_size("min_seconds", self.min_seconds)


def run_op(config: OpBench) -> Iterator[Row]:
    """One row per number of nodes and backend, eager first."""
    device = resolve_device(config.device)
    if config.precision == "tf32" and device.type != "cuda":
        raise InputError("precision tf32 must go with a GPU; got device cpu")
    backends = chosen_backends(config.backends, device)
    ceilings = measure.ceilings(device, config.precision, min_seconds=config.min_seconds)
    for nodes in config.nodes:
        eager: Row = {}
        for backend in backends:
            row = _measured(config, nodes, backend, device, ceilings)
            eager = row if backend == "eager" else eager
            row["speedup_over_eager"] = quotient(eager.get("both_ms"), row["both_ms"])
            row["peak_share_of_eager"] = quotient(row["peak_bytes"], eager.get("peak_bytes"))
            yield row


def _measured(
    config: OpBench, nodes: int, backend: Backend, device: torch.device, ceilings: measure.Ceilings
) -> Row:
    case = _case(config, nodes, backend, device)
    sizes = (nodes, config.pivots, config.width, config.features)
    row: Row = {
        **dict(zip(("nodes", "pivots", "width", "features"), sizes, strict=True)),
        "backend": backend,
        "precision": config.precision,
        "seed": config.seed,
        **{f"{part}_ms": None for part in ("forward", "backward", "both")},
        "peak_bytes": None,
        "out_of_memory": False,
    }
    both = partial(case.both, backend, config.precision)
    try:
        with measure.tf32_allowed(config.precision == "tf32"):  # in backends that multiply by torch
            forward = partial(case.forward, backend, config.precision)
            backward = partial(case.backward, forward())
            for part, step in (("both", both), ("forward", forward), ("backward", backward)):
                row[f"{part}_ms"] = 1e3 * measure.median_seconds(step, config.min_seconds)
            del backward, step
            row["peak_bytes"] = measure.tensor_peak(both, device)
            row |= _errors(case, backend, config.precision)
    except (torch.OutOfMemoryError, MemoryError):
        row |= {"both_ms": None, "peak_bytes": None, "out_of_memory": True}
    return row | op_roofline(backend, *sizes, quotient(row["both_ms"], 1e3), ceilings)


class Case(NamedTuple):
    """The inputs of one call. Half of the similarities are cut; ``linear`` cuts none.

    Shapes:
        v [N, F], q [N, W], k [P, W], grad [N, F]
    """

    v: Tensor
    q: Tensor
    k: Tensor
    grad: Tensor
    threshold: float | None

    def forward(self, backend: Backend, precision: Precision) -> Tensor:
        cut = self.threshold
        return pivot_propagate(
            self.v, self.q, self.k, threshold=cut, backend=backend, precision=precision
        )

    def backward(self, out: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, (self.v, self.q, self.k), self.grad, retain_graph=True)

    def both(self, backend: Backend, precision: Precision) -> tuple[Tensor, ...]:
        """The result and its gradients in v, q and k."""
        out = self.forward(backend, precision)
        return out.detach(), *torch.autograd.grad(out, (self.v, self.q, self.k), self.grad)

    def first(self, dtype: torch.dtype) -> "Case":
        """The first nodes alone."""
        v, q, k, grad = (t.detach()[:CHECKED_NODES].to(dtype) for t in self[:4])
        v, q, k = (t.clone().requires_grad_() for t in (v, q, k))
        return Case(v, q, k, grad, self.threshold)


def _errors(case: Case, backend: Backend, precision: Precision) -> Row:
    """Greatest difference to eager in float64 over the greatest value: result and gradients."""
    got = case.first(case.v.dtype).both(backend, precision)
    want = case.first(torch.float64).both("eager", "float32")
    errors = [
        float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-300))
        for a, b in zip(got, want, strict=True)
    ]
    return {"value_error": errors[0], "gradient_error": max(errors[1:])}


def _case(config: OpBench, nodes: int, backend: str, device: torch.device) -> Case:
    draw = partial(
        torch.randn, generator=torch.Generator(device).manual_seed(config.seed), device=device
    )
    v, grad = draw(nodes, config.features), draw(nodes, config.features)
    q, k = draw(nodes, config.width), draw(config.pivots, config.width)
    if backend == "linear":  # a constant column makes (1 + s) / 2 of a cosine s
        q, k = (torch.cat([normalize(t[:, 1:]), torch.ones_like(t[:, :1])], 1) for t in (q, k))
        q, k = q / 2**0.5, k / 2**0.5
    else:
        q, k = normalize(q), normalize(k)
    v, q, k = (t.requires_grad_() for t in (v, q, k))
    return Case(v, q, k, grad, None if backend == "linear" else 0.0)


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


def least_bytes(n: int, p: int, w: int, f: int, element: int = 4) -> tuple[int, int]:
    """Bytes of inputs and outputs, each moved once: forward and backward."""
    inputs, values = element * (n * f + n * w + p * w), element * n * f
    return inputs + values, (inputs + values) + inputs


def epoch_work(
    delta: Delta, n: int, p: int, w: int, widths: Sequence[int], refinements: int
) -> tuple[int, int]:
    """FLOP and least bytes of the learned graph's messages in one epoch.

    A training step (forward, and twice as much backward) and a validation pass, each of so many
    refinements, each passing messages of the given ``widths`` over one structure. FLOP are those
    of ``eager``, with Gamma made once per refinement; of ``linear``, where nothing is cut.
    """
    if delta == "affine":
        forward = sum(4 * (n + p) * w * f for f in widths)
    else:
        forward = 2 * n * p * w + sum(2 * 2 * n * p * f for f in widths)
    moved = [least_bytes(n, p, w, f) for f in widths]
    return refinements * 4 * forward, refinements * sum(2 * out + back for out, back in moved)


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
    rate, useful_rate = quotient(flop, seconds), quotient(useful, seconds)
    return {
        **roofline(flop, sum(least_bytes(n, p, w, f)), seconds, ceilings),
        "tflops": quotient(rate, 1e12),
        "ceiling_share": quotient(rate, ceilings.flop_per_second),
        "useful_share": quotient(useful_rate, ceilings.flop_per_second),
    }
