"""What a fit gives back: predictions, and how it went."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from graphglow.graphs import Graph, write_predictions
from graphglow.structure import LearnerConfig
from graphglow.structure.config import delta_facts
from graphglow.training.config import RunConfig
from graphglow.training.loop import Epoch
from graphglow.training.task import accuracy


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """A competitor's predictions at its best epoch. Accuracies are fractions in [0, 1].

    ``val_accuracy`` is on the nodes that early stopping looked at; ``test_accuracy`` is None where
    the graph has no test nodes.

    Shapes:
        logits [N, C]
    """

    data: Data
    graph: Graph
    method: str
    backbone: str | None
    config: RunConfig
    logits: Tensor
    history: list[Epoch]
    train_seconds: float
    seconds: float
    peak_memory_bytes: int
    device: str

    def __repr__(self) -> str:
        facts = self.summary()
        shown = ("target", "method", "test_accuracy", "val_accuracy", "epochs")
        return f"FitResult({', '.join(f'{name}={facts[name]!r}' for name in shown)})"

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self.logits.softmax(dim=1)

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self.logits.argmax(dim=1)

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class and probabilities as ``.csv`` or ``.parquet``.

        An existing file is replaced.
        """
        write_predictions(self.data, self.predict_proba(), path)

    @property
    def val_accuracy(self) -> float:
        return self._accuracy_on(self.graph.val)

    @property
    def test_accuracy(self) -> float | None:
        return self._accuracy_on(self.graph.test) if len(self.graph.test) else None

    def _accuracy_on(self, nodes: Tensor) -> float:
        nodes = nodes.cpu()
        return float(accuracy(self.logits, nodes, self.data.y[nodes]))

    @property
    def epochs(self) -> int:
        """Epochs run."""
        return len(self.history)

    def summary(self) -> dict[str, Any]:
        """The facts of the run, as the command line's ``--json`` prints them."""
        delta = getattr(self.config, "delta", LearnerConfig.delta)
        return {
            "target": self.graph.name,
            "method": self.method,
            "backbone": self.backbone,
            **delta_facts(delta),
            "test_accuracy": self.test_accuracy,
            "val_accuracy": self.val_accuracy,
            "epochs": self.epochs,
            "train_seconds": self.train_seconds,
            "total_seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "device": self.device,
            "seed": self.config.seed,
        }
