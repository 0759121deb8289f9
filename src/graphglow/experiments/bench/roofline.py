"""Operations and bytes of Eq. 11, and how near a measured time is to the machine's roof."""

from collections.abc import Sequence

from graphglow.experiments.bench.ceilings import Ceilings
from graphglow.experiments.bench.rows import Row, quotient
from graphglow.structure.config import Delta


def executed_flop(backend: str, n: int, p: int, w: int, f: int) -> tuple[int, int] | None:
    """FLOP of the products that a backend makes, forward and backward; None if not known.

    With u = 2 N P W for a product with the factors and x = 2 N P F for one with the values:
    ``eager`` and ``dense`` make q k^T, Gamma^T v and Gamma c, and two products backward for each;
    ``chunked`` and ``triton`` make Gamma again in each of their passes rather than keep it.
    """
    u, x = 2 * n * p * w, 2 * n * p * f
    counts = {
        "eager": (u + 2 * x, 2 * u + 4 * x),
        "dense": (u + 2 * x, 2 * u + 4 * x),
        "chunked": (2 * (u + x), (u + x) + 3 * (u + x)),
        "triton": (2 * (u + x), (u + x) + (2 * u + 3 * x) + (2 * u + 2 * x)),
        "linear": (4 * (n + p) * w * f, 8 * (n + p) * w * f),
    }
    return counts.get(backend)


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
    return (
        refinements * 4 * forward,
        refinements * sum(2 * ahead + back for ahead, back in moved),
    )


def roofline(
    backend: str, n: int, p: int, w: int, f: int, seconds: float | None, ceilings: Ceilings
) -> Row:
    """Operations of forward and backward, their rate, and shares of the measured ceilings.

    ``ceiling_share`` counts what the backend executes; ``useful_share`` only what ``eager`` would
    (``linear`` counts its own), so that recomputation earns nothing there. ``roof_ms`` is the time
    that the ceilings allow for the operations executed and the least bytes.
    """
    executed = executed_flop(backend, n, p, w, f)
    useful = executed_flop("linear" if backend == "linear" else "eager", n, p, w, f)
    assert useful is not None
    moved = sum(least_bytes(n, p, w, f))
    flop = sum(executed) if executed else None
    rate, useful_rate = quotient(flop, seconds), quotient(sum(useful), seconds)
    roof = None
    if flop is not None:
        roof = max(flop / ceilings.flop_per_second, moved / ceilings.bytes_per_second)
    return {
        "gflop": quotient(flop, 1e9),
        "least_bytes": moved,
        "ceiling_tflops": ceilings.flop_per_second / 1e12,
        "ceiling_gbytes": ceilings.bytes_per_second / 1e9,
        "tflops": quotient(rate, 1e12),
        "ceiling_share": quotient(rate, ceilings.flop_per_second),
        "useful_share": quotient(useful_rate, ceilings.flop_per_second),
        "roof_ms": quotient(roof, 1e-3),
        "roof_share": quotient(roof, seconds),
    }
