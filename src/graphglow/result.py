"""What a training returns: predictions and, for a transfer, the learned graph; saved and loaded."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphglow.device import out_of_memory_hint
from graphglow.errors import InputError, at_least
from graphglow.evidence.learner import EvidenceLearner
from graphglow.gnn.backbones import BACKBONES
from graphglow.gnn.propagation import Backbone, FixedStructure, Structure
from graphglow.gnn.train import Epoch
from graphglow.graph import Graph, check_graph, training_graph, write_predictions
from graphglow.graph.check import MADE, MASKS, without_edges
from graphglow.graph.graph import normalised_adjacency
from graphglow.graph.write import class_names, own_ids, prediction_frame
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper.algorithms import NEEDS_LESS, last_refinement
from graphglow.paper.learner import StructureLearner
from graphglow.paper.pivots import BlendedStructure, PivotStructure
from graphglow.pretrained import Learner
from graphglow.scores import (
    NO_PAIRS,
    Change,
    compare_accuracies,
    compare_edges,
    scores_of,
    verdict_of,
)
from graphglow.settings import PaperConfig, RunConfig, TransferConfig
from graphglow.storage import fill, load_tensors, prefixed, save_tensors, within

GRAPH_TENSORS = ("x", "y", "edge_index", "edge_weight", *MASKS)
RUN_FACTS = (
    "history", "train_seconds", "seconds", "peak_memory_bytes",
    "input_weight", "chosen_by", "against_input", "best",
)  # fmt: skip
"""What a file holds of the graph and of the run."""
SHOWN = (
    "target", "method", "test_accuracy", "majority", "val_accuracy", "epochs", "input_weight",
    "chosen_by",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RunResult:
    """A model trained on one graph, by ``transfer`` or ``fit``, at its best epoch.

    Accuracies are None where the graph has no such nodes. ``logits`` are [N, C].
    """

    method: str
    backbone: str | None
    data: Data
    graph: Graph
    config: RunConfig
    logits: Tensor
    history: list[Epoch]
    train_seconds: float
    seconds: float
    peak_memory_bytes: int

    def __repr__(self) -> str:
        facts = {name: fact for name, fact in self.summary().items() if name in SHOWN}
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in facts.items())})"

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self.logits.softmax(dim=1).cpu()

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self.logits.argmax(dim=1).cpu()

    def to_frame(self) -> Any:
        """Each node's id, predicted class, probabilities, known class and split as a DataFrame."""
        return prediction_frame(self.data, self.predict_proba())

    def write_predictions(self, path: str | Path) -> None:
        """Write the frame as ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_predictions(self.data, self.predict_proba(), path)

    def metrics(self) -> dict[str, Any] | None:
        """:class:`graphglow.scores.Scores` of the test nodes, None without any, and ``confusion``.

        Rows of that matrix are the known ``classes``, columns the predicted ones.
        """
        from sklearn.metrics import confusion_matrix

        nodes, classes = self.graph.test.cpu(), self.graph.num_classes
        if len(nodes) == 0:
            return None
        y, p = self.graph.y.cpu(), self.predict_proba()
        given = y[self.graph.train.cpu()].bincount()
        confusion = confusion_matrix(y[nodes], p[nodes].argmax(1), labels=range(classes))
        return {
            **scores_of(y[nodes], p[nodes], given)._asdict(),
            "classes": class_names(self.data, classes),
            "confusion": confusion.tolist(),
        }

    def accuracy(self, part: Literal["train", "val", "test"]) -> float | None:
        """Accuracy on a part of the split; None where it has no nodes."""
        nodes: Tensor = getattr(self.graph, part)
        right = self.predict()[nodes.cpu()] == self.graph.y[nodes].cpu()
        return float(right.double().mean()) if len(nodes) else None

    @property
    def val_accuracy(self) -> float | None:
        return self.accuracy("val")

    @property
    def test_accuracy(self) -> float | None:
        return self.accuracy("test")

    @property
    def epochs(self) -> int:
        """Number of epochs run."""
        return len(self.history)

    def summary(self) -> dict[str, Any]:
        """The facts of the run, as the command line's ``--json`` prints them.

        ``majority`` is the share of the most frequent class of test nodes.
        """
        tested = self.graph.y[self.graph.test]
        return {
            "target": self.graph.name,
            "test_accuracy": self.accuracy("test"),
            "majority": float(tested.bincount().max()) / len(tested) if len(tested) else None,
            "val_accuracy": self.accuracy("val"),
            "epochs": len(self.history),
            "train_seconds": self.train_seconds,
            "total_seconds": self.seconds,
            "peak_memory_bytes": self.peak_memory_bytes,
            "method": self.method,
            "backbone": self.backbone,
            "device": self.graph.device.type,
            "seed": self.config.seed,
        }


class RefinedEdges(NamedTuple):
    """Both directions of each edge of S: [2, E], [E]."""

    edge_index: Tensor
    edge_weight: Tensor


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransferResult(RunResult):
    """A GNN trained under a frozen learner.

    Its messages pass over ``lambda A + (1 - lambda) S``, with A the input graph and S the learned
    one, which is computed from the other fields.
    """

    config: TransferConfig | PaperConfig
    learner: Learner
    gnn: Backbone
    input_weight: float
    """lambda."""
    edges: RefinedEdges | None = None
    """S, under an evidence learner."""
    pivots: Tensor | None = None
    """The fixed pivots [P] through which S is inferred, under the paper's learner."""
    spectral: Tensor | None = None
    """What the GNN reads of nodes without features: [N, K]."""
    chosen_by: str = "settings"
    """What chose lambda: ``settings``, ``validation`` or, without such nodes, ``leave-one-out``."""
    against_input: Change | None = None
    """On validation nodes, against the GNN with lambda 1; None where that was not trained."""
    best: int
    """Number of the epoch whose weights were kept."""

    @cached_property
    @torch.no_grad()
    def latent(self) -> Structure:
        """S, over which messages pass."""
        if self.edges is not None:
            return FixedStructure(normalised_adjacency(*self.edges, len(self.graph.y)))
        assert isinstance(self.learner, StructureLearner)
        assert isinstance(self.config, PaperConfig)
        assert self.pivots is not None
        parts = self.gnn, self.learner, self.graph, self.pivots, self.config
        with out_of_memory_hint(f"inferring the structure of {self.graph.name}", NEEDS_LESS):
            return last_refinement(*parts).latent

    @property
    def best_epoch(self) -> Epoch:
        """The epoch whose weights were kept."""
        return self.history[self.best - 1]

    def summary(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in ("input_weight", "chosen_by", "verdict")}
        if self.edges is not None:
            facts["refined_edges_in_training"] = self.edges.edge_index.shape[1] // 2
        return super().summary() | facts

    @property
    def verdict(self) -> str:
        """One line: whether this is better than a GNN on the input graph, and by how much.

        Under the paper's learner no such GNN is trained: it is compared with the class that most
        training nodes have. Test labels are not read.
        """
        if self.edges is None:
            known = self.graph.y[self.graph.val]
            constant = known == self.graph.y[self.graph.train].bincount().argmax()
            right = self.predict()[self.graph.val.cpu()] == known.cpu()
            whose = "validation accuracy {}, against {} of the most frequent class"
            found = compare_accuracies(constant.cpu(), right, whose)
            found = found._replace(sign=-1) if found.after < found.before else found
            chosen = f"lambda is {self.input_weight:g}, by {self.chosen_by}"
            return f"{verdict_of((found,), '')}; {chosen}"
        judged = self.against_input or compare_edges(self.data, self.edges.edge_index)
        return verdict_of((judged,), NO_PAIRS)

    def refined_graph(self, top_k: int = 16, *, self_loops: bool = True) -> Data:
        """The graph of the GNN's messages: each node's ``top_k`` strongest incoming edges.

        Weights are those that one layer applies, ``lambda A_norm + (1 - lambda) S``, with the parts
        ``edge_input_weight`` and ``edge_latent_weight``. ``self_loops`` keeps the message of a node
        to itself.
        """
        structures = self.graph.adj, self.latent, self.input_weight
        edges = strongest_messages(*structures, top_k, self_loops=self_loops)
        return without_edges(self.data.clone()).update(edges)

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file; an existing file is replaced as a whole."""
        data = self.data
        tensors = prefixed("graph", {n: data[n] for n in GRAPH_TENSORS if data.get(n) is not None})
        tensors |= prefixed("gnn", self.gnn.state_dict())
        tensors |= prefixed("learner", dict(self.learner.state_dict()))
        if self.edges is not None:
            tensors |= prefixed("refined", self.edges._asdict())
        own = {"logits": self.logits, "pivots": self.pivots, "spectral": self.spectral}
        tensors |= {name: tensor for name, tensor in own.items() if tensor is not None}
        kept = {name: data[name] for name in MADE if name in data}
        if "node_id" in data:
            kept["node_id"] = own_ids(data, len(data.node_id))
        if "class_names" in data:
            kept["class_names"] = [str(name) for name in data.class_names]
        meta = {
            "config": asdict(self.config),
            "learner": self.learner.facts(),
            "run": {name: getattr(self, name) for name in RUN_FACTS},
            "graph": kept,
            "name": self.graph.name,
        }
        save_tensors(path, "result", tensors, meta)

    @classmethod
    def load(cls, path: str | Path) -> "TransferResult":
        """Read what :meth:`save` wrote, onto the CPU; anything else is refused in one sentence."""
        tensors, meta = load_tensors(path, "result")
        try:
            return cls._from_file(tensors, meta, str(path))
        except Exception as error:  # whatever is there, it is not what was written
            text = " ".join(str(error).split())
            raise InputError(f"{path} must be a whole graphglow result; {text}") from error

    @classmethod
    def _from_file(
        cls, tensors: dict[str, Tensor], meta: dict[str, Any], path: str
    ) -> "TransferResult":
        config: TransferConfig | PaperConfig
        settings, run = meta["config"] | {"device": "cpu"}, meta["run"]
        weights, refined = within("learner", tensors), within("refined", tensors)
        data = Data(**within("graph", tensors), **meta["graph"], name=str(meta["name"]))
        data = check_graph(data, need_validation=not refined)
        graph = training_graph(data)
        if refined:
            config = TransferConfig(**settings)
            hidden, graph = config.hidden, with_known_classes(graph, data)
            learner: Learner = EvidenceLearner.from_tensors(weights, meta["learner"], path)
            nodes = refined["edge_index"]
        else:
            config = PaperConfig(**settings)
            learner = StructureLearner.from_tensors(weights, meta["learner"], path)
            hidden, nodes = learner.config.embedding_size, tensors["pivots"]
        inside = not nodes.numel() or 0 <= int(nodes.min()) <= int(nodes.max()) < graph.num_nodes
        if not inside or len(tensors["logits"]) != graph.num_nodes:
            raise InputError(f"{path} must hold nodes of its own graph; got others")
        if "spectral" in tensors:
            graph = graph.with_x(tensors["spectral"])
        gnn = BACKBONES[config.backbone](config, graph, hidden, torch.Generator())
        fill(gnn, within("gnn", tensors), path)
        against = run["against_input"]
        run["against_input"] = against and Change(*against)
        run["history"] = [Epoch(*row) for row in run["history"]]
        return cls(
            method=method_under(learner),
            backbone=config.backbone,
            data=data,
            graph=graph,
            config=config,
            learner=learner.requires_grad_(False).eval(),
            gnn=gnn.requires_grad_(False).eval(),
            edges=RefinedEdges(**refined) if refined else None,
            pivots=tensors.get("pivots"),
            spectral=tensors.get("spectral"),
            logits=tensors["logits"],
            **run,
        )


def method_under(learner: Learner) -> str:
    """Name the method that a transfer under a learner is, as in tables."""
    if isinstance(learner, EvidenceLearner):
        return "evidence" if learner.provenance.get("trained") else "untrained"
    config = learner.config
    if not config.weighted:
        return f"graphglow-{config.similarity if config.neighbours is None else 'knn'}"
    return "graphglow" if learner.provenance.get("trained") else "random-theta"


def with_known_classes(graph: Graph, data: Data) -> Graph:
    """Leave out classes that only test nodes have and nobody names: they must change nothing."""
    known = int(graph.y[torch.cat([graph.train, graph.val])].max()) + 1
    return graph.with_labels(num_classes=max(known, len(data.get("class_names") or ())))


# The messages of one layer as edges: M = lambda A + (1 - lambda) S, where M[u, v] is the weight
# that u gives to what v sends. The paper's S is dense, and formed in blocks of rows.

BLOCK_ELEMENTS = 16_000_000
"""Entries of the largest block in memory (64 MB in float32)."""


@torch.no_grad()
def strongest_messages(
    adj: SparseMatrix,
    latent: Structure,
    input_weight: float,
    top_k: int,
    *,
    self_loops: bool = True,
) -> dict[str, Tensor]:
    """Return each node's ``top_k`` strongest incoming edges; entries up to zero are no edges.

    Edges are sorted by target and falling weight, which is the sum of its two parts.
    """
    at_least("top_k", top_k, 1)
    given = input_weight * adj.to_scipy()
    if isinstance(latent, FixedStructure):
        learned = (1 - input_weight) * latent.matrix.to_scipy()
    elif input_weight == 1:
        learned = sp.csr_array(given.shape, dtype=given.dtype)
    else:
        learned = _strongest_latent(given, latent, 1 - input_weight, top_k, self_loops)
    total = (given + learned).tocoo()
    target, source = total.coords
    order = np.lexsort((-total.data, target))  # stable
    order = order[(total.data > 0)[order] & (self_loops | (source != target)[order])]
    first = np.searchsorted(target[order], target[order])  # of the same target
    order = order[np.arange(len(order)) - first < top_k]
    ends = np.stack([source, target])[:, order].astype(np.int64)
    shares = [np.asarray(part[ends[1], ends[0]]) for part in (given, learned)]
    names = ("edge_index", "edge_weight", "edge_input_weight", "edge_latent_weight")
    parts = (ends, total.data[order], *shares)
    return {name: torch.tensor(part) for name, part in zip(names, parts, strict=True)}


def _strongest_latent(
    given: Any, latent: Structure, share: float, top_k: int, self_loops: bool
) -> Any:
    """Return ``share * S`` where ``given + share * S`` has the ``top_k`` largest of each row."""
    assert isinstance(latent, PivotStructure | BlendedStructure)
    nodes, blocks = given.shape[0], []
    factors, step = latent.factors(), max(1, BLOCK_ELEMENTS // nodes)
    for start in range(0, nodes, step):
        rows = slice(start, min(start + step, nodes))
        learned = share * sum(a[rows] @ b.T for a, b in factors)
        assert isinstance(learned, Tensor)
        total = learned + torch.from_numpy(given[rows].toarray()).to(learned.device)
        if not self_loops:
            total.diagonal(start).zero_()
        source = total.topk(min(top_k, nodes), dim=1).indices
        kept = torch.zeros_like(learned).scatter(1, source, learned.gather(1, source))
        blocks.append(sp.csr_array(kept.cpu().numpy()))
    return sp.vstack(blocks, format="csr")
