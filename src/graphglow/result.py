"""What a training gives back: predictions, and for a transfer the learned graph, saved and loaded.

A transfer is one safetensors file with the weights, the graph, and how it went.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.gnn import Backbone, LastLayer, MixedPropagation
from graphglow.gnn.propagation import Encoded, Structure
from graphglow.gnn.train import Epoch, accuracy
from graphglow.graph import Graph, write_predictions
from graphglow.graph.check import MADE, without_edges
from graphglow.graph.table_file import Columns
from graphglow.graph.write import class_names, prediction_frame
from graphglow.linalg.sparse import SparseMatrix
from graphglow.messages import Messages
from graphglow.metrics import metrics_of
from graphglow.paper import StructureLearner
from graphglow.settings import PaperConfig, TransferConfig
from graphglow.storage import load_tensors, prefixed, save_tensors, within
from graphglow.verdict import Verdict, verdict_of

if TYPE_CHECKING:  # these import results
    from graphglow.explain import Explanation
    from graphglow.new_nodes import NewPredictions

GRAPH_TENSORS = ("x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask")
GRAPH_LISTS = ("node_id", "class_names")
GRAPH_FACTS = (*MADE, "feature_columns")
"""What else of a graph is saved, so that new nodes are treated as those of training were."""
MEASURED: dict[str, Callable[[Any], Any]] = {
    "history": lambda rows: [Epoch(*row) for row in rows],
    "train_seconds": float,
    "seconds": float,
    "peak_memory_bytes": int,
}
"""How a run went, and how each fact is read back from JSON."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RunResult(ABC):
    """What every training gives back, of a transfer or a competitor: the model of its best epoch.

    Accuracies are fractions in [0, 1]; ``val_accuracy`` is on the nodes that early stopping looked
    at; either is None where the graph has no such nodes.
    """

    data: Data
    graph: Graph
    history: list[Epoch]
    train_seconds: float
    seconds: float
    peak_memory_bytes: int

    def __repr__(self) -> str:
        facts = self.summary()
        shown = ("target", "method", "test_accuracy", "val_accuracy", "epochs")
        return f"{type(self).__name__}({', '.join(f'{name}={facts[name]!r}' for name in shown)})"

    @abstractmethod
    def _scores(self) -> Tensor:
        """Logits of every node, on any device: [N, C]."""

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """Facts of the method, and of where and from which seed it ran, for the summary."""

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self._scores().softmax(dim=1).cpu()

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self._scores().argmax(dim=1).cpu()

    def to_frame(self) -> Any:
        """Each node's id, predicted class, probabilities, known class and split as a DataFrame."""
        return prediction_frame(self.data, self.predict_proba())

    def write_predictions(self, path: str | Path) -> None:
        """Write the frame as ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_predictions(self.data, self.predict_proba(), path)

    def metrics(self) -> dict[str, Any] | None:
        """F1, balanced accuracy, AUC, calibration error and confusion matrix on the test nodes.

        See :func:`graphglow.metrics.metrics_of`; None where there are no test nodes.
        """
        nodes = self.graph.test.cpu()
        if len(nodes) == 0:
            return None
        names = class_names(self.data, self.graph.num_classes)
        return metrics_of(self.graph.y.cpu()[nodes], self.predict_proba()[nodes], names)

    @property
    def val_accuracy(self) -> float | None:
        return self._accuracy_on(self.graph.val)

    @property
    def test_accuracy(self) -> float | None:
        return self._accuracy_on(self.graph.test)

    def _accuracy_on(self, nodes: Tensor) -> float | None:
        if len(nodes) == 0:
            return None
        logits = self._scores()
        nodes = nodes.to(logits.device)
        return float(accuracy(logits, nodes, self.graph.y.to(logits.device)[nodes]))

    @property
    def epochs(self) -> int:
        """Epochs run."""
        return len(self.history)

    def summary(self) -> dict[str, Any]:
        """The facts of the run, as the command line's ``--json`` prints them."""
        return {
            "target": self.graph.name,
            "test_accuracy": self.test_accuracy,
            "val_accuracy": self.val_accuracy,
            "epochs": self.epochs,
            "train_seconds": self.train_seconds,
            "total_seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            **self._about(),
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransferResult(RunResult):
    """A trained GNN with its graph and its frozen learner, of either kind.

    Everything shown is computed from those, so a saved result gives the same predictions and the
    same refined graph after loading.
    """

    config: TransferConfig | PaperConfig
    learner: EvidenceLearner | StructureLearner
    gnn: Backbone

    @cached_property
    @abstractmethod
    def logits(self) -> Tensor:
        """Scores of every node, on the device of the training: [N, C]."""

    @property
    @abstractmethod
    def message_graph(self) -> tuple[Structure | None, float]:
        """The learned graph, and lambda: together the graph that messages pass over."""

    @abstractmethod
    def on_graph(self, data: Data, graph: Graph) -> "TransferResult":
        """The same GNN on a graph with more nodes, checked and on the device."""

    @abstractmethod
    def explain_pair(self, u: int | str, v: int | str) -> "Explanation":
        """Say which evidence speaks for and against two nodes, by id, being of one class.

        Only under an evidence learner; any two nodes will do, joined or not.
        """

    @abstractmethod
    def _structure(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of the learner and of what it made of this graph, for a file."""

    @property
    def backbone(self) -> str:
        return self.config.backbone

    @property
    def provenance(self) -> dict[str, Any]:
        """Of the learner."""
        return self.learner.provenance

    @property
    def device(self) -> torch.device:
        return self.graph.y.device

    def _scores(self) -> Tensor:
        return self.logits

    def scores_on(self, graph: Graph) -> Tensor:
        """Logits on a graph of the same nodes, with the learned graph as it is: [N, C].

        Differentiable in the graph's features.
        """
        scores: Tensor = self.gnn(*self._encoded(graph), None)[1]
        return scores

    @torch.no_grad()
    def last_layer(self) -> LastLayer:
        """The last propagation of an evaluation pass; only of explainable backbones."""
        return self.gnn.last_layer(*self._encoded(self.graph))

    def _encoded(self, graph: Graph) -> tuple[Encoded, MixedPropagation]:
        return self.gnn.encode(graph, None), MixedPropagation(graph.adj, *self.message_graph)

    def message_rows(self, node: int, adj: SparseMatrix) -> tuple[Tensor, Tensor]:
        """Weights that a node gives to all nodes, over ``adj`` and the learned graph: [1, N]."""
        return Messages(adj, *self.message_graph).rows(slice(node, node + 1))

    def edge_probabilities(self, node: int) -> dict[int, float]:
        """How likely the refined edges of a node join one class, by their other end."""
        return {}

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """In one line: whether this is better than a GNN on the input graph, and by what.

        Test labels are not read. Under a learner of the paper's kind no such GNN is trained.
        """
        return self.judged().sentence

    def judged(self) -> Verdict:
        """The verdict, and whether it is bad news."""
        return verdict_of(None, None, unknown="no GNN was trained on the input graph alone")

    def controls(self) -> dict[str, dict[str, float | None]]:
        """Accuracies of the majority class, an MLP and a GCN on the same split, trained now.

        They have the epochs, patience, seed and device of this run. Without validation nodes, which
        they need to stop by, there is the majority class alone.
        """
        from graphglow.competitors import METHODS, fit

        y, parts = self.graph.y, {"test_accuracy": self.graph.test, "val_accuracy": self.graph.val}
        right = y == int(y[self.graph.train].bincount().argmax())
        majority = {n: float(right[of].double().mean()) for n, of in parts.items() if len(of)}
        found: dict[str, dict[str, float | None]] = {"majority": dict.fromkeys(parts) | majority}
        shared = ("epochs", "patience", "seed", "device")
        settings = {name: getattr(self.config, name) for name in shared}
        for method in ("mlp", "gcn") if len(self.graph.val) else ():
            run = fit(method, self.data, METHODS[method].config(**settings))
            found[method] = {name: getattr(run, name) for name in parts}
        return found

    def refined_graph(self, top_k: int = 16, *, self_loops: bool = True) -> Data:
        """The learned structure: each node's ``top_k`` strongest incoming edges of a layer.

        Weights are those that one layer applies: ``lambda A_norm + (1 - lambda) L``, in the parts
        ``edge_input_weight`` and ``edge_latent_weight``. What the graph says of nodes comes along.
        With ``top_k`` at least the number of nodes this is the whole operator.

        Args:
            top_k: Edges kept per node.
            self_loops: Keep the message of a node to itself among its edges.
        """
        messages = Messages(self.graph.adj, *self.message_graph)
        edges = messages.strongest(top_k, self_loops=self_loops)
        refined = without_edges(self.data.clone())
        refined.edge_index, refined.edge_weight = edges.pairs.cpu(), edges.weight.cpu()
        refined.edge_input_weight = edges.input_part.cpu()
        refined.edge_latent_weight = edges.latent_part.cpu()
        return refined

    def explain(
        self,
        node: int | str,
        top_k: int = 10,
        *,
        label: int | str | None = None,
        against: int | str | None = None,
    ) -> "Explanation":
        """Say which nodes carried the decision on ``node``, by input edges or by learned ones.

        Exact for the last layer, for backbones whose scores are a sum over neighbours; others are
        refused.

        Args:
            node: Its id; its index where the graph has no ids.
            top_k: Nodes listed, those that contributed most.
            label: The class to explain; by default the predicted one.
            against: Explain the lead over this class instead of the score itself.
        """
        from graphglow.explain import explain_result

        return explain_result(self, node, top_k, label=label, against=against)

    def predict_new(
        self,
        x: Any,
        edges: Any = None,
        *,
        edge_weight: Any = None,
        node_id: Sequence[int | str] | None = None,
    ) -> "NewPredictions":
        """Predict nodes that were added after training, without training again.

        Weights and pivots stay; the new nodes take part in message passing. Not with a backbone
        that has a weight for each node of the training graph.

        Args:
            x: Features [M, F] of the new nodes, as ``result.data.x`` has them: not scaled to unit
                length, but with the columns of a table already encoded.
            edges: Pairs [2, E] of node indices, both directions alike; old nodes are 0 .. N - 1,
                the new ones N .. N + M - 1, and each edge has a new end. None: no edges, or, where
                the training graph was made of nearest neighbours, those to the nearest nodes.
            edge_weight: One per edge [E], at least 0; by default 1.
            node_id: Ids of the new nodes.
        """
        from graphglow.new_nodes import predict_new

        return predict_new(self, x, edges, edge_weight=edge_weight, node_id=node_id)

    def predict_new_tables(
        self,
        nodes: Any,
        edges: Any = None,
        *,
        columns: Columns | None = None,
        skip_unknown_edges: bool = False,
    ) -> "NewPredictions":
        """:meth:`predict_new` from tables, with ids: files (``.csv``, ``.parquet``) or DataFrames.

        Args:
            nodes: As the nodes table that the graph was loaded from, with ids that are new; a label
                and a split are passed over. A category that training has not seen counts as
                missing, with a warning.
            edges: ``source`` and ``target``, ids of old or new nodes, and optionally ``weight``.
            columns: As in ``load_graph``; what was said there holds here too.
            skip_unknown_edges: Leave out edges with ids that no node has, as in ``load_graph``.
        """
        from graphglow.graph.tables import read_new_nodes

        x, pairs, weight, ids = read_new_nodes(
            nodes, edges, self.data, columns, skip_unknown_edges=skip_unknown_edges
        )
        return self.predict_new(x, pairs, edge_weight=weight, node_id=ids)

    def module(self) -> nn.Module:
        """The trained GNN as a module, ``module(x, edge_index, edge_weight) -> logits [N, C]``.

        For ``torch_geometric.explain`` and whatever else asks for gradients: features and edges of
        the same nodes may change, the learned graph stays. Only with backbones that read the graph
        by its normalised adjacency alone.
        """
        from graphglow.pyg_api import ResultModule

        return ResultModule(self)

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file; an existing file is replaced as a whole."""
        data = self.data
        graph = {name: data[name] for name in GRAPH_TENSORS if data.get(name) is not None}
        tensors, facts = self._structure()
        tensors = {**prefixed("graph", graph), **prefixed("gnn", self.gnn.state_dict()), **tensors}
        meta = {
            "config": asdict(self.config),
            **facts,
            **{name: getattr(self, name) for name in MEASURED},
            "name": self.graph.name,
            "lists": {name: _plain(data[name]) for name in GRAPH_LISTS if name in data},
            "facts": {name: data[name] for name in GRAPH_FACTS if name in data},
        }
        save_tensors(path, "result", tensors, meta)

    @classmethod
    def load(cls, path: str | Path) -> "TransferResult":
        """Read what :meth:`save` wrote, onto the CPU; anything else is refused in one sentence."""
        from graphglow.transfer_results import EvidenceResult, PaperResult

        tensors, meta = load_tensors(path, "result")
        try:
            facts = {name: fact for name, fact in meta["facts"].items() if name in GRAPH_FACTS}
            graph = within("graph", tensors)
            data = Data(**graph, **meta["lists"], **facts, name=str(meta["name"]))
            kind = EvidenceResult if "evidence_version" in meta["learner"] else PaperResult
            measured = {name: read(meta[name]) for name, read in MEASURED.items()}
            return kind.from_tensors(data, tensors, meta, measured, str(path))
        except InputError:
            raise
        except Exception as error:  # what is there is not what was written, in whatever way
            text = " ".join(str(error).split())
            raise InputError(f"{path} must be a whole graphglow result; {text}") from error


def _plain(values: Any) -> list[Any]:
    """Node ids and class names as JSON can hold them: numbers and text, no arrays."""
    return [value.item() if hasattr(value, "item") else value for value in values]
