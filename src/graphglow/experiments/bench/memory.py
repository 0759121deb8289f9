"""Peak memory of a transfer, backend against backend, each in a process of its own.

graphglow bench memory --target pubmed --pivots 800 --device cuda

On a CPU the figure is the resident memory of the process at its worst, with Python, torch and the
data in it; ``base_bytes`` is what was resident before the model was built. On a GPU both count the
allocator's bytes, and ``base_bytes`` is 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from graphglow.checks import one_of
from graphglow.errors import InputError
from graphglow.experiments.bench.config import TransferBench
from graphglow.experiments.bench.epoch import graph_facts
from graphglow.experiments.bench.fresh import in_fresh_process
from graphglow.experiments.bench.op import NAMED_BACKENDS, chosen_backends
from graphglow.experiments.bench.peak import bytes_now, peak_since_reset, ran_out, reset_peak
from graphglow.experiments.bench.rows import Row, quotient
from graphglow.graphs import load_graph
from graphglow.training import transfer
from graphglow.training.device import resolve_device


@dataclass(frozen=True, kw_only=True)
class MemoryBench(TransferBench):
    """One graph, and the backends to compare."""

    target: str = "synthetic"
    """The graph: a name (see graphglow datasets) or a file."""
    epochs: int = 10
    """Epochs made: enough for a GPU to record one."""
    backends: tuple[str, ...] = ()
    """Which to compare; eager comes first. By default all that can run here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for backend in self.backends:
            one_of("backends", backend, NAMED_BACKENDS)
        if "linear" in self.backends:
            self.check_linear()


def run_memory(config: MemoryBench, data_root: Path | None) -> Iterator[Row]:
    """One row per backend."""
    device = resolve_device(config.device)
    load_graph(config.target, data_root=data_root)  # a bad name is refused before any process
    eager: int | None = None
    for backend in chosen_backends(config.backends, device):
        if backend == "linear" and config.delta != "affine":
            continue
        chosen = replace(config, backend=backend)
        row = in_fresh_process(peak_of_transfer, chosen, data_root)
        if row is None:  # killed by the system
            row = {"peak_bytes": None, "out_of_memory": True}
        if backend == "eager":
            eager = row["peak_bytes"]
        row["share_of_eager"] = quotient(row["peak_bytes"], eager)
        yield {"target": config.target, **chosen.facts(), **row}


def peak_of_transfer(config: MemoryBench, data_root: Path | None) -> Row:
    """Train once and say what the process took; to be called in a fresh one."""
    device = resolve_device(config.device)
    data = load_graph(config.target, data_root=data_root)
    learner = config.learner()
    reset_peak(device)
    base = bytes_now(device)
    try:
        result = transfer(learner, data, config.transfer_config())
    except InputError as error:
        if not ran_out(error):
            raise
        return {"peak_bytes": None, "out_of_memory": True}
    return {
        **graph_facts(result),
        "base_bytes": base,
        "peak_bytes": peak_since_reset(device),
        "above_base_bytes": peak_since_reset(device) - base,
        "out_of_memory": False,
    }
