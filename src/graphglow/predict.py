"""``graphglow.predict``: predict the class of every node from the given labels, without training.

Closed-form channels have exact leave-one-out predictions, so no label is spent on validation: the
same labels make a prediction and estimate its accuracy. A frozen network mixes the channels by
their records on this graph.
"""

import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.device import SMALLER, out_of_memory_hint, where_to_compute
from graphglow.errors import InputError, at_least, number, one_of
from graphglow.evidence.channels import leave_one_out_mask
from graphglow.evidence.insertion import FrozenGraph, insert, load_state, save_state
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.order import content_order, reordered
from graphglow.evidence.predictor import CHANNEL_NAMES
from graphglow.evidence.refined import RefinedGraph
from graphglow.graph.check import MASKS, SPLITS, checked_labels, edges_were_made
from graphglow.graph.features import column_names
from graphglow.graph.load import as_given
from graphglow.graph.tables import Columns, read_new_nodes
from graphglow.graph.write import (
    class_names,
    node_place,
    own_classes,
    own_ids,
    prediction_frame,
    write_table,
)
from graphglow.linalg.neighbours import NEIGHBOURS, nearest_to
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

LABELS = ("train", "train+val", "all")


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Class probabilities of all nodes; labelled nodes are predicted without their own label.

    Shapes:
        probabilities [N, C], labelled [N] of bool, sets [N, C] of bool or None, order [N]
    """

    data: Data
    """The graph as it was given."""
    probabilities: Tensor
    labelled: Tensor
    """Nodes whose labels were given."""
    sets: Tensor | None
    """With ``coverage``: the conformal set of classes of each node."""
    coverage: float | None
    learner: EvidenceLearner
    refined: RefinedGraph
    """The refined graph and its channels; its node i is node ``order[i]`` of ``data``."""
    order: Tensor
    seed: int

    @property
    def classes(self) -> Tensor:
        """Predicted class of every node, numbered as in ``data.y``: [N]."""
        return self.probabilities.argmax(1)

    @property
    def labels(self) -> list[Any]:
        """Predicted class of every node by name, or by number without ``class_names``."""
        names = own_classes(self.data, self.probabilities.shape[1])
        return [names[c] for c in self.classes.tolist()]

    @property
    def class_names(self) -> list[str]:
        """The classes by name, in the order of the columns of ``probabilities``."""
        return class_names(self.data, self.probabilities.shape[1])

    @property
    def accuracy(self) -> Accuracy:
        """Leave-one-out estimate of the accuracy on all nodes, with a 95 % interval.

        Where labels were drawn evenly over classes, they are weighted by the estimated shares.
        """
        fair = fair_tests(self.data.y, self.labelled)
        right = (self.classes == self.data.y)[fair]
        return weighted_accuracy(right, label_weights(self.refined, self.data.y[fair]))

    @property
    def channels(self) -> Any:
        """Leave-one-out accuracy and log-loss of each channel, the best first, as a DataFrame.

        Columns: ``channel``, ``about``, ``accuracy``, ``log_loss``. Channels without inputs, such
        as those of features that the graph does not have, are left out.
        """
        import pandas as pd

        graph, rows = self.refined.graph, []
        fair = leave_one_out_mask(graph)
        truth = graph.classes[fair]
        for name, channel in self.refined.known.channels.items():
            p = channel.probabilities[graph.labelled[fair]]
            if len(p) and bool((p != graph.prior).any()):
                accuracy = float((p.argmax(1) == truth).double().mean())
                loss = float(F.nll_loss(p.log(), truth))
                rows.append((name, CHANNEL_NAMES[name], accuracy, loss))
        frame = pd.DataFrame(rows, columns=["channel", "about", "accuracy", "log_loss"])
        return frame.sort_values(["accuracy", "log_loss"], ascending=[False, True], kind="stable",
                                 ignore_index=True)  # fmt: skip

    @property
    def tests(self) -> bool:
        """Whether the graph has test nodes with a label."""
        mask = self.data.get("test_mask")
        return mask is not None and bool((mask.cpu() & (self.data.y >= 0)).any())

    @property
    def scores(self) -> Scores | None:
        """Scores of the test nodes; of labelled ones, by leave-one-out, where there are none."""
        if self.tests:
            return self.score("test")
        fair = fair_tests(self.data.y, self.labelled)
        given = self.data.y[self.labelled].bincount()
        y, p = self.data.y[fair], self.probabilities[fair]
        return scores_of(y, p, given) if len(y) else None

    def score(self, part: Literal["train", "val", "test"] = "test") -> Scores:
        """Score the predictions on the labelled nodes of a part of the split."""
        one_of("part", part, SPLITS)
        mask = self.data.get(f"{part}_mask")
        nodes = (self.data.y >= 0) & (mask.cpu() if mask is not None else False)
        if not bool(nodes.any()):
            raise InputError(
                f"score({part!r}) needs a {part}_mask with labelled nodes, and this graph has "
                "none; .accuracy is the leave-one-out estimate, which needs no split"
            )
        given = self.data.y[self.labelled].bincount()
        return scores_of(self.data.y[nodes], self.probabilities[nodes], given)

    def to_frame(self) -> Any:
        """Return one row per node as a pandas DataFrame.

        Columns: ``id``, ``predicted``, ``probability``, ``p_<class>`` of each class, ``labelled``
        and, with ``coverage``, ``classes``: the node's set, such as ``a|b``.
        """
        names = {name: self.data.get(name) for name in ("node_id", "class_names")}
        frame = prediction_frame(Data(num_nodes=len(self.labelled), **names), self.probabilities)
        frame["labelled"] = self.labelled.numpy()
        if self.sets is not None:
            sets = self.sets.tolist()
            frame["classes"] = ["|".join(compress(self.class_names, row)) for row in sets]
        return frame

    def write(self, path: str | Path) -> None:
        """Write the DataFrame as ``.csv`` or ``.parquet``; an existing file is replaced."""
        write_table(self.to_frame(), path, "a predictions file")

    def explain(self, node: Any, label: int | str | None = None) -> "Explanation":
        """Explain the class of a node (its id, or index without ids), or another ``label``."""
        from graphglow.explain import explain_prediction

        return explain_prediction(self, node, label)

    def similar(self, node: Any, count: int = 10) -> Any:
        """List the nodes that are most likely of one class with a node, as a DataFrame.

        Columns: ``id``, ``probability_same_class`` and ``linked``. Only nodes near to it in some
        view are looked at.
        """
        import pandas as pd

        ranks, refined = self.order.argsort(), self.refined
        place = int(ranks[node_place(self.data, len(ranks), node)])
        mine = (refined.pairs == place).any(0).nonzero()[:, 0]
        chance = refined.pair_probability[mine]
        best = chance.argsort(descending=True, stable=True)[:count]
        other = (refined.pairs[:, mine[best]].sum(0) - place).cpu()
        ids = own_ids(self.data, len(ranks))
        columns = {
            "id": [ids[i] for i in self.order[other].tolist()],
            "probability_same_class": chance[best].tolist(),
            "linked": refined.pair_in_input[mine[best]].tolist(),
        }
        return pd.DataFrame(columns)

    def columns(self, label: int | str) -> Any:
        """List the features that speak for a class, the strongest first, as a DataFrame.

        Columns: ``column`` and ``weight``, that of a ridge regression on the features alone, over
        the mean of all classes. Features count in units of their deviation.
        """
        import pandas as pd

        one_of("label", str(label), self.class_names)
        graph, weight = self.refined.graph, self.refined.known.channels["x"].weight
        place = (graph.seen == self.class_names.index(str(label))).nonzero()[:, 0]
        if weight is None or graph.encoder is None or len(place) == 0:
            raise InputError("columns() needs features, and a given label of the class.")
        names: list[Any] = [*column_names(self.data)] or [*range(graph.encoder.width)]
        over = (weight[1:, place[0]] - weight[1:].mean(1)).cpu()
        order = over.abs().argsort(descending=True, stable=True)
        listed = [names[i] for i in graph.encoder.kept.cpu()[order].tolist()]
        return pd.DataFrame({"column": listed, "weight": over[order].numpy()})

    def threshold(
        self, label: int | str, *, precision: float | None = None, recall: float | None = None
    ) -> float:
        """Return the probability of a class from which it is to be predicted.

        With ``precision`` the lowest that has it, with ``recall`` the highest, by leave-one-out on
        the labelled nodes, and half way to the next lower one of these.
        """
        wanted = [share for share in (precision, recall) if share is not None]
        if len(wanted) != 1:
            raise InputError("threshold() needs a precision or a recall, and not both.")
        number("precision" if recall is None else "recall", wanted[0], 0, 1)
        one_of("label", str(label), self.class_names)
        place = self.class_names.index(str(label))
        chance, order = self.probabilities[self.labelled, place].sort(descending=True)
        right = (self.data.y[self.labelled][order] == place).double().cumsum(0)
        share = right / (torch.arange(len(right)) + 1 if recall is None else right[-1:])
        enough = (share >= wanted[0]).nonzero()[:, 0]
        if len(enough) == 0:
            raise InputError(
                f"No threshold has a {'precision' if recall is None else 'recall'} of {wanted[0]} "
                f"on class {label}; the best has {float(share.nan_to_num().max()):.2f}."
            )
        last = int(enough[-1 if recall is None else 0])
        last = int((right == right[last]).nonzero()[0, 0])  # no lower than the last that is right
        below = chance[last + 1 :]
        below = below[below < chance[last]]
        return float((chance[last] + below[0]) / 2 if len(below) else chance[last])

    def predict_new(self, x: Any = None, edges: Any = None, *, edge_weight: Any = None) -> Tensor:
        """Predict M nodes that were not in the graph, in milliseconds: [M, C].

        The old nodes keep their predictions and everything that these are made of. A copy of an
        unlabelled node is predicted as that node.

        Args:
            x: Features in the columns of the graph; a tensor [M, 0] if the graph has none.
            edges: Pairs [2, E], each with a new end; new nodes are numbered from N on.
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
        """Predict new nodes from tables with ids; return a DataFrame.

        Columns: ``id``, ``predicted``, ``probability`` and ``p_<class>`` of each class.

        Args:
            nodes: A file (``.csv``, ``.parquet``) or DataFrame with new ids and the same features
                as the table that the graph was loaded from. A label and a split are ignored; an
                unknown category counts as missing, with a warning.
            edges: A file or DataFrame with ``source``, ``target`` and optionally ``weight``, each
                edge with a new end. Without it new nodes have no edges, or, where the graph was
                made of nearest neighbours, those to their nearest nodes.
            columns: Other names of columns, as in :func:`graphglow.load_graph`; those given there
                need not be repeated.
            skip_unknown_edges: Leave out edges with unknown ids, with a warning.
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
        shown = Data(num_nodes=count, node_id=new.node_id, class_names=data.get("class_names"))
        return prediction_frame(shown, probabilities)

    @cached_property
    def _frozen(self) -> FrozenGraph:
        return FrozenGraph(self.refined)

    def save(self, path: str | Path) -> None:
        """Save the prediction and its learner as a safetensors file, to predict new nodes later.

        The features and edges of the graph are not stored as given, except the features of a graph
        that was made of nearest neighbours.
        """
        kept = {"probabilities": self.probabilities, "labelled": self.labelled}
        kept |= {"order": self.order, "y": self.data.y}
        kept |= {name: self.data[name] for name in MASKS if self.data.get(name) is not None}
        if self.sets is not None:
            kept["sets"] = self.sets
        if edges_were_made(self.data):
            kept["x"] = self.data.x
        names = self.data.get("class_names")
        facts = {
            "class_names": None if names is None else [str(name) for name in names],
            "node_id": own_ids(self.data, len(self.order)) if "node_id" in self.data else None,
            "coverage": self.coverage,
            "seed": self.seed,
            "name": str(self.data.get("name", "graph")),
            "feature_columns": self.data.get("feature_columns"),
        }
        save_state(path, self.refined, kept, facts)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> "Prediction":
        """Load a prediction that :meth:`save` wrote."""
        refined, kept, facts = load_state(path, device)
        lists = ("class_names", "node_id", "feature_columns")
        own = {name: facts[name] for name in lists if facts[name] is not None}
        own |= {name: kept[name] for name in (*MASKS, "x") if name in kept}
        data = Data(y=kept["y"], num_nodes=len(kept["y"]), name=facts["name"], **own)
        if "x" in kept:
            data.knn_graph = True
        assert refined.known.learner is not None
        return cls(
            data, kept["probabilities"], kept["labelled"], kept.get("sets"), facts["coverage"],
            refined.known.learner, refined, kept["order"], facts["seed"],
        )  # fmt: skip

    def __repr__(self) -> str:
        nodes, labels = len(self.labelled), int(self.labelled.sum())
        classes = len(self.data.y[self.labelled].unique())
        lines = [
            f"Prediction of {nodes:,} nodes: {classes} classes, {labels:,} of "
            f"{int((self.data.y >= 0).sum()):,} labels at work, nothing trained",
            f"  accuracy {self.accuracy}",
        ]
        found = self.scores
        if self.tests and found is not None:
            lines.append(f"  test accuracy {100 * found.accuracy:.1f} % of {found.nodes:,} nodes")
        if found is not None and found.skewed:
            lines.append(f"  {found.ranking()}")
        if self.sets is not None:
            size = float(self.sets.sum(1).double().mean())
            lines.append(f"  sets of {size:.2f} classes on average, {self.coverage:.0%} coverage")
        return "\n".join(lines)


def predict(
    data: Any,
    learner: LearnerName = UNIVERSAL,
    *,
    labels: Literal["train", "train+val", "all"] = "train",
    coverage: float | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    workers: int | None = None,
    ray: str | None = None,
) -> Prediction:
    """Predict the class of every node with a frozen evidence learner; nothing is trained.

    Args:
        data: The graph: a ``Data``, with or without features and edges, or anything else that
            :func:`graphglow.load_graph` takes. At least two classes need a label.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        labels: The labels to use: ``"train"``, those in ``train_mask``, or all known labels where
            there is no mask; ``"train+val"``, those in ``val_mask`` too; ``"all"``, every known
            label, also where :func:`load_graph` drew a split. Others are never read.
        coverage: Also return a set of classes for each node, which contains the true one with this
            probability, such as 0.9 (split conformal prediction from leave-one-out scores).
        seed: Seeds the random projections, and the untrained control.
        device: Where to compute.
        workers: Ray workers that share the work; the result is the same.
        ray: See :func:`graphglow.refine`.
    """
    one_of("labels", labels, LABELS)
    if coverage is not None and not 0 < number("coverage", coverage) < 1:
        raise InputError(f"coverage must lie between 0 and 1, such as 0.9; got {coverage}")
    seed = at_least("seed", seed, 0)
    frozen = evidence_learner(learner, seed=seed)
    data = _graph(data)
    labelled = given_labels(data, labels)
    known = copy.copy(data)
    known.y, known.train_mask = torch.where(labelled, data.y, -1), labelled
    refined, order = run_frozen(frozen, known, seed=seed, device=device, workers=workers, ray=ray)
    assert refined.probabilities is not None
    probabilities = refined.probabilities.cpu()[order.argsort()]
    sets = None
    if coverage is not None:
        fair = fair_tests(data.y, labelled)
        weight = label_weights(refined, data.y[fair])
        sets = conformal_sets(probabilities, probabilities[fair], data.y[fair], weight, coverage)
    return Prediction(data, probabilities, labelled, sets, coverage, frozen, refined, order, seed)


def label_weights(refined: RefinedGraph, y: Tensor) -> Tensor:
    """Return the estimated share of a label's class over its share among labels: [L] -> [L]."""
    graph, shares = refined.graph, refined.shares
    assert shares is not None
    table = torch.ones(max(graph.num_classes, int(graph.seen.max()) + 1))
    table[graph.seen.cpu()] = (shares / graph.prior).cpu()
    return table[y]


def run_frozen(
    learner: EvidenceLearner,
    data: Data,
    *,
    seed: int,
    device: str,
    workers: int | None = None,
    ray: str | None = None,
) -> tuple[RefinedGraph, Tensor]:
    """Refine a graph after sorting its nodes by content, so that their order does not matter.

    Returns:
        The refined graph, and the order [N]: its node i is node ``order[i]`` of ``data``.
    """
    place, map_blocks = where_to_compute(device, workers, ray)
    order = content_order(data)
    ordered = reordered(data, order)
    with out_of_memory_hint(f"refining {data.get('name', 'this graph')}", SMALLER):
        return learner.refine(ordered, seed=seed, device=place, map_blocks=map_blocks), order


def _graph(source: Any) -> Data:
    """Load a graph and check its labels; all labels of a file without a split are used."""
    data = as_given(source)
    if data.get("y") is None:
        raise InputError(
            "predict needs labels, and this graph has no y. Put the known classes of some nodes in "
            "data.y, and -1 for the others."
        )
    if data.get("x") is None and isinstance(data.y, Tensor):
        data.num_nodes = len(data.y)  # which PyG would guess from the edges
    if not data.num_nodes:
        raise InputError("predict needs a graph with nodes, and this one has none.")
    names = data.get("class_names")
    data.y = checked_labels(data.y, int(data.num_nodes), names)
    return data


def given_labels(data: Data, labels: str) -> Tensor:
    """Mark the nodes whose labels may be read: [N] of bool."""
    masks: dict[str, Tensor] = {
        name: data[name].cpu() for name in MASKS if data.get(name) is not None
    }
    if labels == "train+val" and "val_mask" not in masks:
        raise InputError(
            "labels='train+val' needs a val_mask, and this graph has none. Leave labels out: then "
            "every label in train_mask is used, or every known label if there is no mask."
        )
    known: Tensor = data.y >= 0
    if labels == "all":
        masks = {}
    val, test = (masks.get(name, torch.zeros_like(known)) for name in ("val_mask", "test_mask"))
    given = known & masks.get("train_mask", ~(val | test))
    if labels == "train+val":
        given = given | (known & val)
    classes = data.y[given].unique().tolist()
    if len(classes) < 2:
        names = own_classes(data, int(data.y.max()) + 1)
        count = int(given.sum())
        got = f"all {count} are of class {names[classes[0]]}" if classes else "there are none"
        raise InputError(
            f"predict needs given labels of two classes or more, but {got}. Known classes are in y "
            "of a Data (-1: unknown), or in a label column, which may have another name: "
            '--columns label=NAME (in Python load_graph(.., columns={"label": "NAME"})).'
        )
    return given
