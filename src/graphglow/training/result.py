"""What a transfer gives back: predictions, the refined graph, and how it went."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import Backbone, backbone_class
from graphglow.graphs import Graph, check_graph, graph_of, write_predictions
from graphglow.storage import load_tensors, save_tensors
from graphglow.structure import ObjectiveConfig, StructureLearner
from graphglow.structure.config import at_least
from graphglow.training.config import TransferConfig
from graphglow.training.loop import Epoch
from graphglow.training.refine import Refinement, last_refinement
from graphglow.training.refined_graph import strongest_edges
from graphglow.training.runs import Runs
from graphglow.training.task import accuracy

GRAPH_TENSORS = ("x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask")
GRAPH_LISTS = ("node_id", "class_names")


@dataclass(frozen=True, eq=False, repr=False)
class TransferResult:
    """A trained GNN with its graph, its frozen structure learner and its fixed pivots.

    Everything shown is computed from those, so a saved result gives the same predictions and the
    same refined graph after loading. Accuracies are fractions in [0, 1]; ``test_accuracy`` is
    None where the graph has no test nodes.
    """

    data: Data
    graph: Graph
    config: TransferConfig
    learner: StructureLearner
    gnn: Backbone
    pivots: Tensor
    history: list[Epoch]
    train_seconds: float
    seconds: float
    peak_memory_bytes: int

    def __repr__(self) -> str:
        facts = self.summary()
        shown = ("target", "method", "test_accuracy", "val_accuracy", "epochs")
        return f"TransferResult({', '.join(f'{name}={facts[name]!r}' for name in shown)})"

    @cached_property
    def _final(self) -> Refinement:
        runs = Runs.of([self.config])
        return last_refinement(self.gnn, self.learner, self.graph, self.pivots, runs, wait=True)

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self._final.logits.softmax(dim=1).cpu()

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self._final.logits.argmax(dim=1).cpu()

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class and probabilities as ``.csv`` or ``.parquet``."""
        write_predictions(self.data, self.predict_proba(), path)

    @property
    def val_accuracy(self) -> float:
        return self._accuracy_on(self.graph.val)

    @property
    def test_accuracy(self) -> float | None:
        return self._accuracy_on(self.graph.test) if len(self.graph.test) else None

    def _accuracy_on(self, nodes: Tensor) -> float:
        return float(accuracy(self._final.logits, nodes, self.graph.y[nodes]))

    @property
    def epochs(self) -> int:
        """Epochs run."""
        return len(self.history)

    def refined_graph(self, top_k: int = 16, *, self_loops: bool = True) -> Data:
        """The learned structure: each node's ``top_k`` strongest incoming message-passing edges.

        Weights are those that one layer applies: lambda * A_norm + (1 - lambda) * learned.
        ``edge_input_weight`` and ``edge_latent_weight`` say how much of each came from where.
        Features, labels, masks and node ids of the target come along. With ``top_k`` at least
        the number of nodes this is the whole operator.

        Args:
            top_k: Edges kept per node.
            self_loops: Keep what a node passes to itself among its edges.
        """
        at_least("top_k", top_k, 1)
        edges = strongest_edges(
            self.graph.adj,
            self._final.latent,
            self.config.input_weight,
            top_k,
            self_loops=self_loops,
        )
        refined = self.data.clone()
        for name in list(refined.keys()):
            if refined.is_edge_attr(name):  # they belong to the input's edges
                del refined[name]
        refined.edge_index = edges.pairs.cpu()
        refined.edge_weight = edges.weight.cpu()
        refined.edge_input_weight = edges.input_part.cpu()
        refined.edge_latent_weight = edges.latent_part.cpu()
        return refined

    def summary(self) -> dict[str, Any]:
        """The facts of the run, as the command line's ``--json`` prints them."""
        return {
            "target": self.graph.name,
            "method": self.method,
            "backbone": self.config.backbone,
            "test_accuracy": self.test_accuracy,
            "val_accuracy": self.val_accuracy,
            "epochs": self.epochs,
            "train_seconds": self.train_seconds,
            "total_seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "message_backend": self.message_backend,
            "device": self.pivots.device.type,
            "seed": self.config.seed,
        }

    @property
    def message_backend(self) -> str:
        """How the learned graph's messages were computed: the named backend, or auto's choice."""
        structure = self._final.structure
        assert structure is not None  # there is a learner
        return structure.chosen_backend

    @property
    def method(self) -> str:
        if self.config.train_learner:
            return "graphglow*"
        if not self.learner.config.weighted:
            kept = self.learner.config.neighbours
            return f"graphglow-{self.learner.config.similarity if kept is None else 'knn'}"
        return "graphglow" if self.learner.provenance.get("trained") else "random-theta"

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file, atomically."""
        tensors = {f"gnn.{name}": t for name, t in self.gnn.state_dict().items()}
        tensors |= {f"learner.{name}": t for name, t in self.learner.state_dict().items()}
        tensors["pivots"] = self.pivots
        for name in GRAPH_TENSORS:
            if self.data.get(name) is not None:
                tensors[f"graph.{name}"] = self.data[name]
        meta: dict[str, Any] = {
            "config": asdict(self.config),
            "learner": {
                "config": asdict(self.learner.config),
                "provenance": self.learner.provenance,
            },
            "history": [list(epoch) for epoch in self.history],
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "name": self.graph.name,
            "lists": {n: _plain(self.data[n]) for n in GRAPH_LISTS if n in self.data},
        }
        save_tensors(path, "result", tensors, meta)

    @classmethod
    def load(cls, path: str | Path) -> "TransferResult":
        """Read what :meth:`save` wrote, onto the CPU; anything else is refused in one sentence."""
        tensors, meta = load_tensors(path, "result")
        try:
            return cls._from_parts(tensors, meta, str(path))
        except InputError:
            raise
        except (
            LookupError,
            TypeError,
            ValueError,
            RuntimeError,
            AttributeError,
            ArithmeticError,
        ) as error:
            text = " ".join(str(error).split())
            raise InputError(f"{path} must be a whole graphglow result; {text}") from error

    @classmethod
    def _from_parts(
        cls, tensors: dict[str, Tensor], meta: dict[str, Any], origin: str
    ) -> "TransferResult":
        def group(prefix: str) -> dict[str, Tensor]:
            return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

        if "learner" not in meta:
            raise InputError(
                f"{origin} must hold a structure learner; got a plain GNN, which an older "
                "graphglow saved (graphglow fit trains one now)"
            )
        learner = StructureLearner.from_tensors(group("learner."), meta["learner"], origin)
        settings = dict(meta["config"])
        settings["objective"] = ObjectiveConfig(**settings["objective"])
        config = TransferConfig(**(settings | {"device": "cpu"}))
        data = Data(**group("graph."), **meta["lists"], name=str(meta["name"]))
        data = check_graph(data)
        graph = graph_of(data)
        gnn = backbone_class(config.backbone)(
            graph.num_features,
            graph.num_classes,
            config.backbone_shape(learner.config.embedding_size, graph.num_nodes),
            torch.Generator(),
        )
        gnn.load_state_dict(group("gnn."))
        if not all(bool(t.isfinite().all()) for t in gnn.state_dict().values()):
            raise InputError(f"{origin} must hold finite weights; got NaN or infinity")
        pivots = tensors["pivots"].to(torch.int64)
        if pivots.ndim != 1 or not 0 <= int(pivots.min()) <= int(pivots.max()) < graph.num_nodes:
            raise InputError(f"{origin} must hold pivots that are nodes of its graph")
        return cls(
            data=data,
            graph=graph,
            config=config,
            learner=learner.requires_grad_(False).eval(),
            gnn=gnn.requires_grad_(False).eval(),
            pivots=pivots,
            history=[Epoch(*row) for row in meta["history"]],
            train_seconds=float(meta["train_seconds"]),
            seconds=float(meta["seconds"]),
            peak_memory_bytes=int(meta["peak_memory_bytes"]),
        )


def _plain(values: Any) -> list[Any]:
    """Node ids and class names as JSON can hold them: numbers and text, no arrays."""
    return [value.item() if hasattr(value, "item") else value for value in values]
