"""What a transfer gives back: predictions, the refined graph, and how it went."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import at_least
from graphglow.gnn import Backbone
from graphglow.graphs import Graph, write_predictions
from graphglow.graphs.table_columns import Columns
from graphglow.structure import PivotStructure, StructureLearner
from graphglow.training.config import TransferConfig
from graphglow.training.loop import Epoch
from graphglow.training.refine import Refinement, last_refinement
from graphglow.training.result_file import read_result, save_result
from graphglow.training.runs import Runs
from graphglow.training.task import accuracy

if TYPE_CHECKING:  # inference is the floor above; a result opens it on demand
    from graphglow.inference.explain import Explainer
    from graphglow.inference.explanation import Explanation
    from graphglow.inference.new_nodes import NewPredictions

OF_NODES = ("x", "y", "train_mask", "val_mask", "test_mask", "node_id", "class_names")
"""What a refined graph keeps whatever its size: PyG takes a list of length E for edges'."""


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
    def _final(self) -> Refinement[PivotStructure]:
        runs = Runs.of([self.config])
        return last_refinement(self.gnn, self.learner, self.graph, self.pivots, runs, wait=True)

    @property
    def refinement(self) -> Refinement[PivotStructure]:
        """The last step of an evaluation pass: its embeddings, its learned structure, its logits.

        On the device that the result was trained on; computed once.
        """
        return self._final

    def predict_proba(self) -> Tensor:
        """Class probabilities of every node: [N, C]."""
        return self._final.logits.softmax(dim=1).cpu()

    def predict(self) -> Tensor:
        """The most probable class of every node: [N]."""
        return self._final.logits.argmax(dim=1).cpu()

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class, probabilities, known class and split.

        As ``.csv`` or ``.parquet``, with the graph's own ids and class names. An existing file is
        replaced.
        """
        write_predictions(self.data, self.predict_proba(), path)

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
        depends, as for old nodes, on the others that come with it. Not with backbone linkx, which
        has a weight for each node of the training graph.

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
        from graphglow.inference.new_nodes import predict_new

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
        from graphglow.inference.new_nodes import predict_new_tables

        return predict_new_tables(
            self, nodes, edges, columns, skip_unknown_edges=skip_unknown_edges
        )

    def explain(
        self,
        node: int | str,
        top_k: int = 10,
        *,
        label: int | str | None = None,
        against: int | str | None = None,
    ) -> "Explanation":
        """Say which nodes carried the decision on ``node``, by input edges or by learned ones.

        Exact, for backbones whose scores are a sum over neighbours: appnp, gat, gcn, gpr, sage.

        Args:
            node: Its own id; its index where the graph has no ids.
            top_k: Nodes listed, those that contributed most.
            label: The class to explain; by default the predicted one.
            against: Explain the lead over this class instead of the score itself.
        """
        return self._explainer.explain(node, top_k=top_k, label=label, against=against)

    @cached_property
    def _explainer(self) -> "Explainer":
        from graphglow.inference.explain import Explainer

        return Explainer(self)

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
        from graphglow.inference.refined_graph import strongest_edges

        at_least("top_k", top_k, 1)
        edges = strongest_edges(
            self.graph.adj,
            self._final.latent,
            self.config.input_weight_on(self.graph.adj),
            top_k,
            self_loops=self_loops,
        )
        refined = self.data.clone()
        of_edges = [name for name in self.data.keys() if self.data.is_edge_attr(name)]  # noqa: SIM118
        for name in set(of_edges) - set(OF_NODES):  # PyG asks for no more than the length
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
            **self.learner.delta_facts(),
            **self.config.lambda_facts(),
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
        """Write everything as one safetensors file, atomically; an existing file is replaced."""
        save_result(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "TransferResult":
        """Read what :meth:`save` wrote, onto the CPU; anything else is refused in one sentence."""
        return cls(**read_result(path))
