"""Eq. 11 alone, backend against backend: time, memory, error, and share of the roof.

graphglow bench op --nodes 20000 200000 --pivots 1000 --device cuda
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from graphglow.checks import at_least, one_of
from graphglow.errors import InputError
from graphglow.experiments.bench.ceilings import Ceilings, measure_ceilings, tf32_allowed
from graphglow.experiments.bench.clock import Timing, time_calls
from graphglow.experiments.bench.config import BenchConfig, some
from graphglow.experiments.bench.peak import tensor_peak
from graphglow.experiments.bench.roofline import roofline
from graphglow.experiments.bench.rows import Row, quotient
from graphglow.ops import BACKENDS, Backend, Precision, available_backends, pivot_propagate
from graphglow.training.device import resolve_device

NAMED_BACKENDS = tuple(name for name in BACKENDS if name != "auto")
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
        at_least("pivots", self.pivots, 1)
        at_least("width", self.width, 2)
        at_least("features", self.features, 1)
        one_of("precision", self.precision, get_args(Precision))
        for backend in self.backends:
            one_of("backends", backend, NAMED_BACKENDS)
        if not 0 < self.min_seconds < 1e6:
            raise InputError(f"min_seconds must be > 0; got {self.min_seconds}")


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
        return pivot_propagate(
            self.v,
            self.q,
            self.k,
            threshold=self.threshold,
            backend=backend,
            precision=precision,
        )

    def backward(self, out: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, (self.v, self.q, self.k), self.grad, retain_graph=True)

    def both(self, backend: Backend, precision: Precision) -> tuple[Tensor, ...]:
        """The result and its gradients in v, q and k."""
        out = self.forward(backend, precision)
        return out.detach(), *torch.autograd.grad(out, (self.v, self.q, self.k), self.grad)

    def small_and_exact(self) -> tuple["Case", "Case"]:
        """The first nodes alone, and the same in float64."""

        def first(dtype: torch.dtype) -> "Case":
            v, q, k, grad = (
                t.detach()[:CHECKED_NODES].to(dtype) for t in (self.v, self.q, self.k, self.grad)
            )
            v, q, k = (t.clone().requires_grad_() for t in (v, q, k))
            return Case(v, q, k, grad, self.threshold)

        return first(self.v.dtype), first(torch.float64)


def run_op(config: OpBench) -> Iterator[Row]:
    """One row per number of nodes and backend, eager first."""
    device = resolve_device(config.device)
    if config.precision == "tf32" and device.type != "cuda":
        raise InputError("precision tf32 must go with a GPU; got device cpu")
    backends = chosen_backends(config.backends, device)
    ceilings = measure_ceilings(device, config.precision, min_seconds=config.min_seconds)
    for nodes in config.nodes:
        eager: Row | None = None
        for backend in backends:
            row = _measured(config, nodes, backend, device, ceilings)
            if backend == "eager":
                eager = row
            of_eager = eager or {"both_ms": None, "peak_bytes": None}
            row["speedup_over_eager"] = quotient(of_eager["both_ms"], row["both_ms"])
            row["peak_share_of_eager"] = quotient(row["peak_bytes"], of_eager["peak_bytes"])
            yield row


def chosen_backends(named: Sequence[str], device: torch.device) -> list[Backend]:
    """The backends to compare, eager first; one that cannot run on ``device`` is refused."""
    usable = available_backends(device)
    for name in named:
        if name not in usable:
            raise InputError(
                f"backends must be able to run on {device.type} ({', '.join(usable)}); got {name}"
            )
    chosen = [name for name in usable if not named or name in named]
    return sorted(chosen, key=lambda name: name != "eager")


def _measured(
    config: OpBench, nodes: int, backend: Backend, device: torch.device, ceilings: Ceilings
) -> Row:
    case = _case(config, nodes, backend, device)
    sizes = (nodes, config.pivots, config.width, config.features)
    row: Row = {
        **dict(zip(("nodes", "pivots", "width", "features"), sizes, strict=True)),
        "backend": backend,
        "precision": config.precision,
        "threshold": case.threshold,
        "seed": config.seed,
        "out_of_memory": False,
    }
    try:
        with tf32_allowed(config.precision == "tf32"):  # in backends that multiply by torch
            times = _timings(case, backend, config, device)
            peak = tensor_peak(lambda: case.both(backend, config.precision), device)
            errors = _errors(case, backend, config.precision)
    except (torch.OutOfMemoryError, MemoryError):
        row |= {"both_ms": None, "peak_bytes": None, "out_of_memory": True}
        return row | roofline(backend, *sizes, None, ceilings)
    return {
        **row,
        **{f"{name}_ms": 1e3 * timing.median for name, timing in times.items()},
        "both_iqr_ms": 1e3 * times["both"].iqr,
        "peak_bytes": peak,
        **roofline(backend, *sizes, times["both"].median, ceilings),
        **errors,
    }


def _timings(
    case: Case, backend: Backend, config: OpBench, device: torch.device
) -> dict[str, Timing]:
    def timed(step: Callable[[], object]) -> Timing:
        return time_calls(step, device, min_seconds=config.min_seconds)

    both = timed(lambda: case.both(backend, config.precision))
    forward = timed(lambda: case.forward(backend, config.precision))
    out = case.forward(backend, config.precision)
    return {"forward": forward, "backward": timed(lambda: case.backward(out)), "both": both}


def _errors(case: Case, backend: Backend, precision: Precision) -> Row:
    """Greatest difference to eager in float64 over the greatest value: result and gradients."""
    small, exact = case.small_and_exact()
    got = small.both(backend, precision)
    want = exact.both("eager", "float32")
    errors = [
        float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-300))
        for a, b in zip(got, want, strict=True)
    ]
    return {"value_error": errors[0], "gradient_error": max(errors[1:])}


def _case(config: OpBench, nodes: int, backend: str, device: torch.device) -> Case:
    generator = torch.Generator(device).manual_seed(config.seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    v, grad = normal(nodes, config.features), normal(nodes, config.features)
    q, k = normal(nodes, config.width), normal(config.pivots, config.width)
    if backend == "linear":  # a constant column makes (1 + s) / 2 of a cosine s
        q, k = (torch.cat([_unit(t[:, 1:]), torch.ones_like(t[:, :1])], 1) for t in (q, k))
        q, k = q / 2**0.5, k / 2**0.5
    else:
        q, k = _unit(q), _unit(k)
    v, q, k = (t.requires_grad_() for t in (v, q, k))
    return Case(v, q, k, grad, None if backend == "linear" else 0.0)


def _unit(t: Tensor) -> Tensor:
    return torch.nn.functional.normalize(t, dim=-1)
