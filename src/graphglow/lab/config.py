"""Which runs of experiments are made, and where; nothing here imports torch."""

from dataclasses import dataclass
from typing import get_args

from graphglow.checks import at_least, one_of
from graphglow.settings import Device


@dataclass(frozen=True, kw_only=True)
class RunsConfig:
    """Which runs are made, and where."""

    seeds: int = 5
    """Runs of each cell, with seeds that follow each other; one where only the time counts."""
    seed: int = 0
    """The first of these seeds."""
    epochs: int | None = None
    """Training epochs on the target; None takes each method's own number."""
    patience: int | None = None
    """End a run after this many epochs without a better validation score; None takes each
    method's own."""
    pretrain_epochs: int | None = None
    """Most epochs on one source in one visit of the paper's pre-training; None: 80."""
    device: Device = "auto"
    """Where to compute: auto takes the GPU if there is one; on Ray, cuda asks for a GPU a run."""
    workers: int | None = None
    """Runs at the same time; None: one per core, one on a GPU."""
    ray: str | None = None
    """Make runs on Ray: local, or the address of a cluster. Needs the extra ray."""
    seconds: float | None = None
    """Stop after about so long; the same command goes on."""
    retry_failed: bool = False
    """Make runs again that failed before (out of memory, a loss that is not finite)."""

    def __post_init__(self) -> None:
        at_least("seed", self.seed, 0)
        for name in ("seeds", "epochs", "patience", "pretrain_epochs", "workers"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        one_of("device", self.device, get_args(Device))
