"""What a transfer gives back: predictions, the refined graph, and how it went.

On disk it is one safetensors file with the weights, the graph, and how it went.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphglow.device import out_of_memory_hint
from graphglow.errors import InputError
from graphglow.gnn import Backbone, LastLayer, MixedPropagation, build_gnn
from graphglow.gnn.propagation import Encoded, Structure
from graphglow.gnn.train import Epoch, accuracy
from graphglow.graph import Graph, check_graph, training_graph, write_predictions
from graphglow.graph.check import MADE, without_edges
from graphglow.graph.tables import Columns
from graphglow.graph.write import class_names, prediction_frame
from graphglow.linalg.sparse import SparseMatrix
from graphglow.messages import Messages
from graphglow.metrics import metrics_of
from graphglow.paper import StructureLearner
from graphglow.paper.algorithms import NEEDS_LESS, Refinement, last_refinement
from graphglow.pretrained import Learner
from graphglow.settings import Model, PaperConfig, TransferConfig, delta_facts
from graphglow.storage import load_tensors, prefixed, save_tensors, within
from graphglow.training.verdict import Accuracies, Share, Verdict, verdict_of

if TYPE_CHECKING:  # baselines and inference are floors above; a result opens them on demand
    from graphglow.competitors import FitResult
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
    """What every run gives back, of a transfer or a competitor: predictions at its best epoch.

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
        """What the summary says of the method, and of where and from which seed it ran."""

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self._scores().softmax(dim=1).cpu()

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self._scores().argmax(dim=1).cpu()

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class, probabilities, known class and split.

        As ``.csv`` or ``.parquet``, with the graph's own ids and class names. An existing file is
        replaced.
        """
        write_predictions(self.data, self.predict_proba(), path)

    def to_frame(self) -> Any:
        """The same as a pandas DataFrame, one row per node."""
        return prediction_frame(self.data, self.predict_proba())

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
    learner: Learner
    gnn: Backbone

    @property
    def backbone(self) -> str:
        return self.config.backbone

    @property
    def provenance(self) -> dict[str, Any]:
        """Of the learner."""
        return self.learner.provenance

    @cached_property
    @abstractmethod
    def logits(self) -> Tensor:
        """Scores of every node, on the device that the result was trained on: [N, C]."""

    @property
    @abstractmethod
    def message_graph(self) -> tuple[Structure | None, float]:
        """The learned graph, and lambda: together the graph that messages went over."""

    @abstractmethod
    def on_graph(self, data: Data, graph: Graph) -> "TransferResult":
        """The same GNN on a graph with more nodes, checked and on the device."""

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

    def _scores(self) -> Tensor:
        return self.logits

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """In one line: whether this is better than a GNN on the input graph, and by what.

        Test labels are not read. Under a learner of the paper's kind no such GNN is trained, unless
        by :meth:`controls`.
        """
        return self._verdict().sentence

    def _verdict(self) -> Verdict:
        right = self._against_input()
        return verdict_of(
            self._homophily() if right is None else None,
            right,
            whose="validation accuracy {}, against {} of a GNN on the input graph",
            unknown="no GNN was trained on the input graph alone",
        )

    def _against_input(self) -> Accuracies | None:
        """On validation nodes, against a GNN on the input graph; None where there is none."""
        run: FitResult | None = self.__dict__.get("_control_runs", {}).get("gcn")
        if run is None:
            return None
        nodes = self.graph.val.cpu()
        right = [of.predict()[nodes] == self.data.y[nodes] for of in (run, self)]
        return Accuracies.of(*right)

    def _homophily(self) -> Share | None:
        """Of the refined edges and the input's, where they are edges."""
        return None

    def controls(self) -> dict[str, dict[str, float | None]]:
        """What the majority class, an MLP and a GCN on the input graph reach on the same split.

        The two are trained now, once, with the epochs, patience, seed and device of this run;
        without validation nodes to stop by they are left out.
        """
        return self._controls

    @cached_property
    def _controls(self) -> dict[str, dict[str, float | None]]:
        most = int(self.graph.y[self.graph.train].bincount().argmax())
        parts = {"test_accuracy": self.graph.test, "val_accuracy": self.graph.val}
        right = {name: (self.graph.y[nodes] == most).double() for name, nodes in parts.items()}
        majority = {n: float(hits.mean()) if len(hits) else None for n, hits in right.items()}
        trained = {
            method: {name: getattr(run, name) for name in parts}
            for method, run in self._control_runs.items()
        }
        return {"majority": majority} | trained

    @cached_property
    def _control_runs(self) -> "dict[str, FitResult]":
        from graphglow.competitors import METHODS, fit

        if len(self.graph.val) == 0:
            return {}
        shared = ("epochs", "patience", "seed", "device")
        settings = {name: getattr(self.config, name) for name in shared}
        return {
            method: fit(method, self.data, METHODS[method].config(**settings))
            for method in ("mlp", "gcn")
        }

    def predict_new(
        self,
        x: Any,
        edges: Any = None,
        *,
        edge_weight: Any = None,
        node_id: Sequence[int | str] | None = None,
    ) -> "NewPredictions":
        """Predict nodes that were added after training, without training again.

        The trained weights and the pivots, which are old nodes, stay; edges count in both
        directions. The new nodes take part in message passing, so what is predicted for one
        depends, as for old nodes, on the others that come with it. Not with a backbone that has a
        weight for each node of the training graph.

        Args:
            x: Features of the M new nodes, as ``result.data.x`` has them: not scaled to unit
                length, but with the columns of a table already encoded.
            edges: Pairs of node indices; old nodes are 0 .. N - 1, the new ones N .. N + M - 1, and
                each edge has at least one new end. None: the nodes have no edges, or, where the
                training graph was made of nearest neighbours, each is joined to its nearest nodes.
            edge_weight: One per edge, at least 0; by default 1.
            node_id: Ids of the new nodes, for the tables that are written.

        Shapes:
            x [M, F], edges [2, E], edge_weight [E]
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
                and a split are passed over. Columns are encoded as those of training were: a
                category that training has not seen counts as missing, with a warning.
            edges: ``source`` and ``target``, ids of old or new nodes, and optionally ``weight``.
            columns: Which column is what where names do not say so, as in ``load_graph``; what was
                said there holds here too.
            skip_unknown_edges: Leave out edges with ids that no node has, as in ``load_graph``.
        """
        from graphglow.graph.tables import read_new_nodes

        x, pairs, weight, ids = read_new_nodes(
            nodes, edges, self.data, columns, skip_unknown_edges=skip_unknown_edges
        )
        return self.predict_new(x, pairs, edge_weight=weight, node_id=ids)

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
            node: Its own id; its index where the graph has no ids.
            top_k: Nodes listed, those that contributed most.
            label: The class to explain; by default the predicted one.
            against: Explain the lead over this class instead of the score itself.
        """
        from graphglow.explain import explain_result

        return explain_result(self, node, top_k, label=label, against=against)

    def module(self) -> nn.Module:
        """The trained GNN as a module, ``module(x, edge_index, edge_weight) -> logits [N, C]``.

        Other features and edges of the same nodes give other scores; what the learner made of the
        graph stays. For ``torch_geometric.explain``, and whatever else asks for gradients; with
        backbones that see the graph by its normalised adjacency alone.
        """
        from graphglow.pyg_api import ResultModule

        return ResultModule(self)

    def explain_pair(self, u: int | str, v: int | str) -> "Explanation":
        """Say which evidence speaks for and against two nodes being of one class.

        Only under an evidence learner; any two nodes will do, joined or not.

        Args:
            u: The one node's id; its index where the graph has no ids.
            v: The other's.
        """
        raise InputError(
            "Pairs are explained under an evidence learner only: the paper's compares embeddings "
            "and has no evidence to name. Transfer with the learner universal."
        )

    def edge_probabilities(self, node: int) -> dict[int, float]:
        """How likely the refined edges of a node join one class, by their other end."""
        return {}

    def message_rows(self, node: int, adj: SparseMatrix) -> tuple[Tensor, Tensor]:
        """Weights of the messages that a node hears over ``adj`` and the learned graph: [1, N]."""
        return Messages(adj, *self.message_graph).rows(slice(node, node + 1))

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
        edges = Messages(self.graph.adj, *self.message_graph).strongest(
            top_k, self_loops=self_loops
        )
        refined = without_edges(self.data.clone())
        refined.edge_index, refined.edge_weight = edges.pairs.cpu(), edges.weight.cpu()
        refined.edge_input_weight = edges.input_part.cpu()
        refined.edge_latent_weight = edges.latent_part.cpu()
        return refined

    @property
    def device(self) -> torch.device:
        return self.graph.y.device

    @abstractmethod
    def _parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a file holds of the learner, the structure and the settings."""

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file; an existing file is replaced.

        The file is whole at all times: of two processes that write it, the last one wins.
        """
        data = self.data
        graph = {name: data[name] for name in GRAPH_TENSORS if data.get(name) is not None}
        own, facts = self._parts()
        tensors = {**prefixed("graph", graph), **own}
        meta = {
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
        tensors, meta = load_tensors(path, "result")
        try:
            return _loaded(tensors, meta, str(path))
        except InputError:
            raise
        except Exception as error:  # what is there is not what was written, in whatever way
            text = " ".join(str(error).split())
            raise InputError(f"{path} must be a whole graphglow result; {text}") from error


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PaperResult(TransferResult):
    """A transfer under the paper's structure learner, with its fixed pivots."""

    config: PaperConfig
    learner: StructureLearner
    pivots: Tensor

    @cached_property
    def refinement(self) -> Refinement:
        """The last step of an evaluation pass: its embeddings, its learned structure, its logits.

        On the device that the result was trained on.
        """
        with out_of_memory_hint(f"predicting {self.graph.name}", NEEDS_LESS):
            return last_refinement(self.gnn, self.learner, self.graph, self.pivots, self.config)

    @property
    def logits(self) -> Tensor:
        return self.refinement.logits

    @property
    def message_graph(self) -> tuple[Structure | None, float]:
        return self.refinement.latent, self.config.input_weight

    def on_graph(self, data: Data, graph: Graph) -> "PaperResult":
        return replace(self, data=data, graph=graph)

    def _about(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "backbone": self.config.backbone,
            **delta_facts(self.learner.config.delta),
            "device": self.device.type,
            "seed": self.config.seed,
        }

    @property
    def method(self) -> str:
        if not self.learner.config.weighted:
            kept = self.learner.config.neighbours
            return f"graphglow-{self.learner.config.similarity if kept is None else 'knn'}"
        return "graphglow" if self.learner.provenance.get("trained") else "random-theta"

    def _parts(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        learner = {"config": asdict(self.learner.config), "provenance": self.learner.provenance}
        tensors = prefixed("learner", self.learner.state_dict()) | {"pivots": self.pivots}
        tensors |= prefixed("gnn", self.gnn.state_dict())
        return tensors, {"config": asdict(self.config), "learner": learner}


def _loaded(tensors: dict[str, Tensor], meta: dict[str, Any], origin: str) -> TransferResult:
    facts = {name: fact for name, fact in meta.get("facts", {}).items() if name in GRAPH_FACTS}
    data = Data(**within("graph", tensors), **meta["lists"], **facts, name=str(meta["name"]))
    measured = {name: read(meta[name]) for name, read in MEASURED.items()}
    if "evidence_version" in meta["learner"]:
        from graphglow.training.evidence import evidence_result

        return evidence_result(data, tensors, meta, measured, origin)
    data = check_graph(data)
    graph = training_graph(data)
    learner = StructureLearner.from_tensors(within("learner", tensors), meta["learner"], origin)
    config = PaperConfig(**(meta["config"] | {"device": "cpu"}))
    weights = within("gnn", tensors)
    gnn = loaded_gnn(config, graph, learner.config.embedding_size, weights, origin)
    pivots = tensors["pivots"].to(torch.int64)
    if pivots.ndim != 1 or not 0 <= int(pivots.min()) <= int(pivots.max()) < graph.num_nodes:
        raise InputError(f"{origin} must hold pivots that are nodes of its graph")
    learner.requires_grad_(False).eval()
    return PaperResult(
        data=data, graph=graph, config=config, learner=learner, gnn=gnn, pivots=pivots, **measured
    )


def loaded_gnn(
    config: Model, graph: Graph, hidden: int, weights: dict[str, Tensor], origin: str
) -> Backbone:
    """A trained GNN of a file."""
    gnn = build_gnn(config, graph, hidden, torch.Generator())
    gnn.load_state_dict(weights)
    if not all(bool(t.isfinite().all()) for t in gnn.state_dict().values()):
        raise InputError(f"{origin} must hold finite weights; got NaN or infinity")
    return gnn.requires_grad_(False).eval()


def _plain(values: Any) -> list[Any]:
    """Node ids and class names as JSON can hold them: numbers and text, no arrays."""
    return [value.item() if hasattr(value, "item") else value for value in values]
