"""``graphglow.refine``: a better graph and instant predictions, with nothing trained on it.

The evidence learner is frozen and its predictors are solved in closed form, so this takes about a
second on a graph of a few thousand nodes.
"""

from pathlib import Path
from typing import Any, Literal

from torch import Tensor
from torch_geometric.data import Data

from graphglow.checks import in_unit_interval, one_of
from graphglow.errors import InputError
from graphglow.graphs.graph import undirected_edges
from graphglow.graphs.write import write_predictions
from graphglow.inference.refined_graph import without_edges
from graphglow.pretrained import UNIVERSAL, LearnerName, evidence_learner
from graphglow.training.device import resolve_device

EDGES = ("edge_index", "edge_weight", "edge_probability", "edge_in_input")


class RefinedData(Data):  # type: ignore[misc]
    """A refined graph: features, labels and ids of the input, and other edges.

    Shapes:
        edge_index [2, E], both directions; edge_weight [E] log-odds over chance, 0 to 8;
        edge_probability [E] that both ends are of one class; edge_in_input [E];
        class_probability [N, C], absent without labels
    """

    def predict_proba(self) -> Tensor | None:
        """Class probabilities of every node, in closed form [N, C]; None without labels."""
        found: Tensor | None = self.get("class_probability")
        return found

    def predict(self) -> Tensor | None:
        """The most probable class of every node [N]; None without labels."""
        probabilities = self.predict_proba()
        return None if probabilities is None else probabilities.argmax(1)

    def accuracy(self, part: Literal["train", "val", "test"]) -> float | None:
        """Of the predictions on a part of the split; None where it has no nodes, or no labels."""
        one_of("part", part, ("train", "val", "test"))
        predicted, mask = self.predict(), self.get(f"{part}_mask")
        if predicted is None or mask is None or not bool(mask.any()):
            return None
        return float((predicted == self.y.flatten())[mask].double().mean())

    def write_predictions(self, path: str | Path) -> None:
        """Write every node's id, predicted class and probabilities as ``.csv`` or ``.parquet``."""
        probabilities = self.predict_proba()
        if probabilities is None:
            raise InputError("predictions need labels to learn from; got a graph without any")
        flat = self if self.y.ndim == 1 else Data(**self.to_dict() | {"y": self.y.flatten()})
        write_predictions(flat, probabilities, path)


def refine(
    data: Data,
    learner: LearnerName = UNIVERSAL,
    *,
    min_probability: float = 0.0,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> RefinedData:
    """Refine a graph with a frozen evidence learner; nothing is trained.

    Pairs that are more likely of one class than two random nodes are become edges, input edges that
    are not are left out. Labels outside of the training nodes are never read.

    Args:
        data: The graph; features, edges, labels and a split may each be absent.
        learner: An evidence learner: ``"universal"``, ``"untrained"`` as a control, a file, or the
            learner itself.
        min_probability: Leave out edges below this probability too.
        seed: Of the random projections, and of the untrained control.
        device: Where to compute.

    Returns:
        A PyG ``Data`` with what ``data`` has of nodes; :meth:`RefinedData.predict_proba` has the
        instant predictions.
    """
    in_unit_interval("min_probability", min_probability)
    found = evidence_learner(learner, seed=seed)
    made = found.refine(data, seed=seed, device=resolve_device(device))
    kept = made.edge_probability >= min_probability
    of_nodes: dict[str, Any] = without_edges(data.clone()).to_dict()
    refined = RefinedData(**of_nodes)
    for name in EDGES:
        refined[name] = getattr(made, name)[..., kept].cpu()
    if made.probabilities is not None:
        refined.class_probability = made.probabilities.cpu()
    if refined.get("num_nodes") is None or refined.num_nodes != made.num_nodes:
        refined.num_nodes = made.num_nodes
    return refined


def input_edges(data: Data) -> int:
    """Different undirected edges of a graph, self-loops left out."""
    if data.get("edge_index") is None:
        return 0
    return len(undirected_edges(data.edge_index, None, int(data.num_nodes))[0])
