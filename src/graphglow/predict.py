"""``graphglow.predict``: the class of every node, from every given label, with nothing trained.

Closed-form channels have exact leave-one-out predictions, so no label is spent on validation: the
labels that make a prediction also say how good it is. One frozen network reads what all channels
say of a node and how each has done on this graph, and answers.
"""

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.checks import at_least, number, one_of
from graphglow.device import SMALLER, out_of_memory_hint
from graphglow.errors import InputError
from graphglow.evidence.insertion import FrozenGraph, insert
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.order import content_order, reordered
from graphglow.evidence.refined import RefinedGraph
from graphglow.evidence.stored import load_state, save_state
from graphglow.graph import as_graph
from graphglow.graph.check import MASKS, checked_labels, edges_were_made
from graphglow.graph.load import without_drawn_split
from graphglow.graph.split import SPLITS
from graphglow.graph.table_file import Columns
from graphglow.graph.tables import read_new_nodes
from graphglow.graph.write import own_classes, prediction_frame, write_table
from graphglow.linalg.neighbours import NEIGHBOURS, nearest_to
from graphglow.parallel import where_to_compute
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.scores import (
    Accuracy,
    Scores,
    conformal_sets,
    fair_tests,
    scores_of,
    weighted_accuracy,
)

if TYPE_CHECKING:  # which imports this
    from graphglow.explain import Explanation

LABELS = ("train", "train+val")
CHANNEL_NAMES = {
    "x": "features",
    "ax": "features around it",
    "aax": "features two steps away",
    "diff": "features against its neighbours'",
    "link": "who its neighbours are",
    "alink": "who its neighbours' neighbours are",
    "spectral": "spectral embedding of the edges",
    "role": "part it has in the graph",
    "all": "features and edges together",
    "spread": "labels spread over the edges",
    "community": "labels in its community",
    "hidden_x": "hidden layer over features",
    "hidden_all": "hidden layer over features and edges",
    "sx": "features around it, refined once",
    "ssx": "features two steps away, refined once",
    "again": "all views together, refined once",
    "spread_s": "labels spread over edges refined once",
    "hidden_again": "hidden layer over all views, refined once",
    "vote": "weighted vote of the channels",
    "ffx": "features two steps away, refined",
    "ppr": "features in the wider neighbourhood",
    "ppr_f": "features in the wider refined neighbourhood",
    "spread_f": "labels spread over refined edges",
    "community_f": "labels in its refined community",
    "hidden_f": "hidden layer over refined features",
}
"""Channels in plain words; a channel that is not here goes by its own name."""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Class probabilities of all nodes; labelled nodes are answered without their own label.

    Shapes:
        probabilities [N, C], labelled [N] of bool, sets [N, C] of bool or None, order [N]
    """

    data: Data
    """The graph as it was given."""
    probabilities: Tensor
    labelled: Tensor
    """Nodes whose labels were given."""
    sets: Tensor | None
    """With ``coverage``: the classes that a node may have."""
    coverage: float | None
    learner: EvidenceLearner
    refined: RefinedGraph
    """The refined graph and its channels, on the device; its node i is ``order[i]`` of ``data``."""
    order: Tensor
    seed: int

    @property
    def classes(self) -> Tensor:
        """The most probable class of every node, numbered as in ``data.y``: [N]."""
        return self.probabilities.argmax(1)

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes, where the graph has them."""
        names = self.data.get("class_names")
        return None if names is None else [str(name) for name in names]

    @property
    def accuracy(self) -> Accuracy:
        """Leave-one-out estimate of the accuracy on all nodes, with a 95 % interval.

        Where labels were drawn evenly over classes, each counts by its class's estimated share.
        """
        fair = fair_tests(self.data.y, self.labelled)
        right = (self.classes == self.data.y)[fair]
        return weighted_accuracy(right, label_weights(self.refined, self.data.y[fair]))

    @property
    def channels(self) -> Any:
        """Leave-one-out accuracy and log-loss of each channel, the best first, as a DataFrame.

        Columns: ``channel``, ``about``, ``accuracy``, ``log_loss``. Channels that have nothing to
        go by, such as features that are not there, are left out.
        """
        import pandas as pd

        graph, rows = self.refined.graph, []
        fair = graph.counts[graph.classes] >= 2
        nodes, truth = graph.labelled[fair], graph.classes[fair]
        for name, channel in self.refined.channels.items():
            p = channel.probabilities[nodes]
            if len(p) == 0 or bool((p == graph.prior).all()):
                continue
            loss = float(F.nll_loss(p.log(), truth))
            accuracy = float((p.argmax(1) == truth).double().mean())
            rows.append((name, CHANNEL_NAMES.get(name, name), accuracy, loss))
        frame = pd.DataFrame(rows, columns=["channel", "about", "accuracy", "log_loss"])
        return frame.sort_values(["accuracy", "log_loss"], ascending=[False, True], kind="stable",
                                 ignore_index=True)  # fmt: skip

    def score(self, part: Literal["train", "val", "test"] = "test") -> Scores:
        """Measure the predictions on the labelled nodes of a part of the split."""
        one_of("part", part, SPLITS)
        nodes = _known_in(self.data, part)
        if nodes is None:
            raise InputError(
                f"score({part!r}) needs a {part}_mask with labelled nodes, and this graph has "
                "none; .accuracy is the leave-one-out estimate, which needs no split"
            )
        given = torch.bincount(self.data.y[self.labelled], minlength=self.probabilities.shape[1])
        return scores_of(self.data.y[nodes], self.probabilities[nodes], given)

    def to_frame(self) -> Any:
        """One row per node as a pandas DataFrame.

        Columns: ``id``, ``predicted``, ``probability``, ``p_<class>`` of each class, ``labelled``
        and, with ``coverage``, ``classes``: those in the node's set, with | between.
        """
        names = {
            n: self.data[n] for n in ("node_id", "class_names") if self.data.get(n) is not None
        }
        frame = prediction_frame(Data(num_nodes=len(self.labelled), **names), self.probabilities)
        frame["labelled"] = self.labelled.numpy()
        if self.sets is not None:
            called = [str(name) for name in own_classes(self.data, self.sets.shape[1])]
            frame["classes"] = [
                "|".join(name for name, held in zip(called, row, strict=False) if held)
                for row in self.sets.tolist()
            ]
        return frame

    def write(self, path: str | Path) -> None:
        """Write the frame as ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_table(self.to_frame(), path, "a predictions file")

    def explain(self, node: Any, label: int | str | None = None) -> "Explanation":
        """Say why a node got its class: channels, and labelled nodes around it.

        Args:
            node: Its id; its index where the graph has no ids.
            label: The class to explain, by name or number; by default the predicted one.
        """
        from graphglow.explain import explain_prediction

        return explain_prediction(self, node, label)

    def predict_new(self, x: Any = None, edges: Any = None, *, edge_weight: Any = None) -> Tensor:
        """Class probabilities of nodes that were not in the graph: [M, C].

        They are answered from their neighbours' views and the stored solutions, in milliseconds;
        nothing of the old nodes changes. A copy of an unlabelled node is answered as that node.

        Args:
            x: Their features, one row each, with the columns of the graph; without features, a
                tensor [M, 0].
            edges: Pairs [2, E], each with a new end: old nodes by their index, new ones from N on.
            edge_weight: One weight for each pair.
        """
        features = torch.as_tensor(x)
        pairs = torch.empty(2, 0, dtype=torch.int64) if edges is None else torch.as_tensor(edges)
        nodes, place = len(self.labelled), self.order.argsort()
        old = (pairs >= 0) & (pairs < nodes)
        pairs = torch.where(old, place[pairs.clamp(0, nodes - 1).long()], pairs)
        weight = None if edge_weight is None else torch.as_tensor(edge_weight)
        return insert(self._frozen, features, pairs, weight).cpu()

    def predict_new_tables(
        self,
        nodes: Any,
        edges: Any = None,
        *,
        columns: Columns | None = None,
        skip_unknown_edges: bool = False,
    ) -> Any:
        """Predict new nodes from tables with ids, as the graph was loaded from: a DataFrame.

        Its columns are ``id``, ``predicted``, ``probability`` and ``p_<class>`` of each class.

        Args:
            nodes: A file (``.csv``, ``.parquet``) or DataFrame with new ids and the columns of the
                graph's nodes. A label and a split are ignored; a category that the graph does not
                have counts as missing, with a warning.
            edges: ``source``, ``target`` and optionally ``weight``: ids of old or new nodes. Where
                the graph was made of nearest neighbours, nodes without edges join their nearest.
            columns: As for :func:`graphglow.load_graph`; what was said there holds here too.
            skip_unknown_edges: As for :func:`graphglow.load_graph`.
        """
        data, encoder = self.data, self.refined.graph.encoder
        width = 0 if encoder is None else encoder.width
        new = read_new_nodes(
            nodes, edges, data, width, columns, skip_unknown_edges=skip_unknown_edges
        )
        x, pairs, count = new.x, new.edge_index, len(new.x)
        if x.shape[1] == 0 and width == 1:  # a column of ones stands for no features
            x = torch.ones(count, 1)
        if pairs is None and edges_were_made(data) and count:
            near = nearest_to(data.x, min(NEIGHBOURS, len(data.x)), x)
            ids = len(data.x) + torch.arange(count)
            pairs = torch.stack([near.flatten(), ids.repeat_interleave(near.shape[1])])
        probabilities = self.predict_new(x, pairs, edge_weight=new.edge_weight)
        known = {} if self.class_names is None else {"class_names": self.class_names}
        return prediction_frame(Data(num_nodes=count, node_id=new.node_id, **known), probabilities)

    @cached_property
    def _frozen(self) -> FrozenGraph:
        return FrozenGraph(self.refined)

    def save(self, path: str | Path) -> None:
        """Write the prediction and its learner as one safetensors file, for new nodes to come.

        Features and edges of the graph are not in it as they were given, save the features of one
        that was made of nearest neighbours.
        """
        kept = {"probabilities": self.probabilities, "labelled": self.labelled}
        kept |= {"order": self.order, "y": self.data.y}
        kept |= {name: self.data[name] for name in MASKS if self.data.get(name) is not None}
        if self.sets is not None:
            kept["sets"] = self.sets
        if edges_were_made(self.data):
            kept["x"] = self.data.x
        ids = self.data.get("node_id")
        facts = {
            "class_names": self.class_names,
            "node_id": None if ids is None else [getattr(i, "item", lambda i=i: i)() for i in ids],
            "coverage": self.coverage,
            "seed": self.seed,
            "name": str(self.data.get("name", "graph")),
            "feature_columns": self.data.get("feature_columns"),
        }
        save_state(path, self._frozen, kept, facts)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> "Prediction":
        """Read what :meth:`save` wrote; anything else is refused in one sentence."""
        frozen, kept, facts = load_state(path, device)
        lists = ("class_names", "node_id", "feature_columns")
        own = {name: facts[name] for name in lists if facts[name] is not None}
        own |= {name: kept[name] for name in (*MASKS, "x") if name in kept}
        data = Data(y=kept["y"], num_nodes=len(kept["y"]), name=facts["name"], **own)
        if "x" in kept:
            data.knn_graph = True
        assert frozen.known.learner is not None
        made = cls(
            data, kept["probabilities"], kept["labelled"], kept.get("sets"), facts["coverage"],
            frozen.known.learner, frozen.refined, kept["order"], facts["seed"],
        )  # fmt: skip
        vars(made)["_frozen"] = frozen
        return made

    def __repr__(self) -> str:
        nodes, labels = len(self.labelled), int(self.labelled.sum())
        classes = len(self.data.y[self.labelled].unique())
        lines = [
            f"Prediction of {nodes:,} nodes: {classes} classes, {labels:,} labels, nothing trained",
            f"  accuracy {self.accuracy}",
        ]
        if _known_in(self.data, "test") is not None:
            test = self.score("test")
            lines.append(f"  test accuracy {100 * test.accuracy:.1f} % of {test.nodes:,} nodes")
        if self.sets is not None:
            size = float(self.sets.sum(1).double().mean())
            lines.append(f"  sets of {size:.2f} classes on average, {self.coverage:.0%} coverage")
        return "\n".join(lines)


def predict(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    *,
    labels: Literal["train", "train+val"] = "train",
    coverage: float | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int | None = None,
    ray: str | None = None,
) -> Prediction:
    """Predict the class of every node with a frozen evidence learner; nothing is trained.

    Args:
        data: The graph: a ``Data``, of which features or edges may be absent, or anything else
            that :func:`graphglow.load_graph` takes. At least two classes need a label.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        labels: Which labels are given: ``"train"``, those in ``train_mask``, or every known label
            (``y >= 0``) where there is no mask; ``"train+val"``, those in ``val_mask`` too. Others
            are never read.
        coverage: Also make a set of classes for each node, which holds the true one with this
            probability, such as 0.9 (split conformal prediction from leave-one-out scores).
        seed: Seeds the random projections, and the untrained control.
        device: Where to compute.
        workers: Ray workers that share the work; None: this process alone. The result is the same.
        ray: ``"local"``, or the address of a Ray cluster; see :func:`graphglow.refine`.
    """
    one_of("labels", labels, LABELS)
    if coverage is not None and not 0 < number("coverage", coverage) < 1:
        raise InputError(f"coverage must lie between 0 and 1, such as 0.9; got {coverage}")
    seed = at_least("seed", seed, 0)
    found = evidence_learner(learner, seed=seed)
    data = _graph(data)
    labelled = given_labels(data, labels)
    known = copy.copy(data)
    known.y, known.train_mask = torch.where(labelled, data.y, -1), labelled
    refined, order = run_frozen(found, known, seed=seed, device=device, workers=workers, ray=ray)
    assert refined.probabilities is not None
    probabilities = refined.probabilities.cpu()[order.argsort()]
    sets = None
    if coverage is not None:
        fair = fair_tests(data.y, labelled)
        weight = label_weights(refined, data.y[fair])
        sets = conformal_sets(probabilities, probabilities[fair], data.y[fair], weight, coverage)
    return Prediction(data, probabilities, labelled, sets, coverage, found, refined, order, seed)


def label_weights(refined: RefinedGraph, y: Tensor) -> Tensor:
    """How many nodes a labelled node of each class stands for, relatively: [L] -> [L]."""
    graph, shares = refined.graph, refined.shares
    assert shares is not None
    table = torch.ones(max(graph.num_classes, int(graph.seen.max()) + 1))
    table[graph.seen.cpu()] = (shares / graph.prior).cpu()
    return table[y]


def _known_in(data: Data, part: str) -> Tensor | None:
    """Mark the labelled nodes in a part of the split; None if there are none: [N] of bool."""
    mask = data.get(f"{part}_mask")
    nodes = None if mask is None else mask.cpu() & (data.y >= 0)
    return nodes if nodes is not None and bool(nodes.any()) else None


def run_frozen(
    learner: EvidenceLearner,
    data: Data,
    *,
    seed: int,
    device: str,
    workers: int | None = None,
    ray: str | None = None,
) -> tuple[RefinedGraph, Tensor]:
    """Apply a frozen learner to a graph whose nodes are sorted by content, so that order is no
    input; return what it makes, and that order [N]: node i of it is ``order[i]`` of ``data``.
    """
    place, map_blocks = where_to_compute(device, workers, ray)
    order = content_order(data)
    ordered = reordered(data, order)
    with out_of_memory_hint(f"refining {data.get('name', 'this graph')}", SMALLER):
        return learner.refine(ordered, seed=seed, device=place, map_blocks=map_blocks), order


def _graph(source: Any) -> Data:
    """The graph with checked labels; of a file without a split every label is to be used."""
    if isinstance(source, Data):
        data = as_graph(source, need_labels=False, split=any(name in source for name in MASKS))
    else:
        data = without_drawn_split(as_graph(source, need_labels=False, split=False))
    if data.get("y") is None:
        raise InputError(
            "predict needs labels, and this graph has no y. Put the known classes of some nodes in "
            "data.y, and -1 for the others."
        )
    if data.get("x") is None and isinstance(data.y, Tensor):
        data.num_nodes = len(data.y)  # which PyG would guess from the edges
    names = data.get("class_names")
    data.y = checked_labels(data.y, int(data.num_nodes), names)
    return data


def given_labels(data: Data, labels: str) -> Tensor:
    """Mark the nodes whose labels may be read; refuse fewer than two classes: [N] of bool."""
    train, val, test = (None if (m := data.get(n)) is None else m.cpu() for n in MASKS)
    if labels == "train+val" and val is None:
        raise InputError(
            "labels='train+val' needs a val_mask, and this graph has none. Leave labels out: then "
            "every label in train_mask is used, or every known label if there is no mask."
        )
    known: Tensor = data.y >= 0
    given = known
    if train is not None:
        given = known & train
    else:
        for mask in (val, test):
            given = given & ~mask if mask is not None else given
    if labels == "train+val":
        assert val is not None
        given = given | (known & val)
    classes = data.y[given].unique().tolist()
    if len(classes) < 2:
        names = own_classes(data, int(data.y.max()) + 1)
        count = int(given.sum())
        got = f"all {count} are of class {names[classes[0]]}" if classes else "there are none"
        raise InputError(
            f"predict needs given labels of at least two classes, but {got}. Label nodes of "
            "another class in y, and put them in train_mask if there is one."
        )
    return given
