"""For PyG: transforms that refine or audit the edges of a graph."""

import copy
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from graphglow.audit import audit
from graphglow.errors import InputError, at_least, number, one_of
from graphglow.evidence.learner import EvidenceLearner
from graphglow.graph import check_graph
from graphglow.graph.check import MASKS, one_graph, without_edges
from graphglow.paper.pivots import EPS
from graphglow.pretrained import UNIVERSAL, LearnerName, load_learner
from graphglow.refine import refine, usual_top_k
from graphglow.settings import PaperConfig
from graphglow.transfer import transfer

Mode = Literal["auto", "replace", "augment"]


class RefineStructure(BaseTransform):  # type: ignore[misc]
    """Replace or augment ``edge_index`` and ``edge_weight`` by a frozen learner's graph.

    ::

        transform = T.Compose([T.RandomNodeSplit(), graphglow.RefineStructure()])
        data = transform(data)  # for any PyG model: GCNConv(..)(data.x, data.edge_index, ..)

    Under an evidence learner nothing is trained: the edges are those of :func:`graphglow.refine`,
    and only labels in ``train_mask`` are read, if there are any. Under a learner of the paper's
    kind, which needs labels and a split, a small GNN is trained as in :func:`graphglow.transfer`;
    labels outside ``train_mask`` and ``val_mask`` are never read.

    The learned edges have no self-loops, and their weights have mean 1, so that layers which add
    self-loops of weight 1 and normalise, as ``GCNConv`` does, weigh them as plain edges. Edge
    attributes are dropped, since learned edges have none; everything else stays.

    Args:
        learner: What :func:`graphglow.load_learner` takes.
        mode: ``"auto"``: what leave-one-out chooses in :func:`graphglow.refine` (under the paper's
            learner, replace). ``"replace"``: the refined graph (under the paper's learner, each
            node's ``top_k`` strongest incoming edges of the mixture of input and learned graph).
            ``"augment"``: the
            input edges, then those of the refined graph where the input has none; these have the
            share ``1 - config.input_weight`` of the whole weight, as in the paper's mixture, or
            half of it.
        top_k: Edges kept for each node, the strongest; by default about as many in all as the input
            has, as in :func:`graphglow.refine`.
        config: Settings of the transfer under a learner of the paper's kind.
        use_labels: Whether an evidence learner reads training labels, if there are any.

    Shapes:
        edge_index [2, E'], edge_weight [E']
    """

    def __init__(
        self,
        learner: LearnerName = UNIVERSAL,
        mode: Mode = "auto",
        top_k: int | None = None,
        config: PaperConfig | None = None,
        *,
        use_labels: bool = True,
    ) -> None:
        one_of("mode", mode, get_args(Mode))
        if top_k is not None:
            at_least("top_k", top_k, 1)
        self.learner = load_learner(learner)
        if config is not None and isinstance(self.learner, EvidenceLearner):
            raise InputError("config goes with a learner of the paper's kind: leave it out")
        config = PaperConfig() if config is None else config
        if not isinstance(config, PaperConfig):
            raise InputError(f"config must be a PaperConfig; got {type(config).__name__}")
        if mode == "augment" and config.input_weight == 0:
            raise InputError("mode augment needs an input_weight above 0: else take mode replace")
        self.mode, self.top_k, self.config, self.use_labels = mode, top_k, config, use_labels
        self._named = learner if isinstance(learner, str) else type(learner).__name__

    def __repr__(self) -> str:
        return f"RefineStructure(learner={self._named!r}, mode={self.mode!r}, top_k={self.top_k})"

    def forward(self, data: Data) -> Data:
        _check_single(data, "RefineStructure")
        given = one_graph(data).edge_index
        by_evidence = isinstance(self.learner, EvidenceLearner)
        found = self._by_evidence(data) if by_evidence else self._by_paper(data)
        pairs, weight = found.edge_index.cpu(), found.edge_weight.cpu().float()
        kept, kept_weight = pairs[:, :0], weight[:0]
        if self.mode == "augment" and given is not None and given.shape[1] > 0:
            kept, known_weight = given.cpu().long(), data.get("edge_weight")
            ones = torch.ones(kept.shape[1])
            kept_weight = ones if known_weight is None else known_weight.detach().cpu().flatten()
            keys = torch.tensor([[int(found.num_nodes)], [1]])
            both = torch.cat([kept, kept.flip(0)], dim=1)
            new = ~torch.isin((keys * pairs).sum(0), (keys * both).sum(0))
            pairs, weight = pairs[:, new], weight[new]
        total, share = float(len(weight)), 0.5 if by_evidence else self.config.input_weight
        if float(kept_weight.sum()) > 0:
            total = float(kept_weight.sum()) * (1 - share) / share
        weight = weight * (total / weight.sum().clamp_min(EPS))
        refined = without_edges(copy.copy(data))
        device = next(part.device for part in (data.edge_index, data.x, pairs) if part is not None)
        refined.edge_index = torch.cat([kept, pairs], dim=1).to(device)
        refined.edge_weight = torch.cat([kept_weight.float(), weight]).to(device)
        return refined

    def _by_evidence(self, data: Data) -> Data:
        """The graph of :func:`graphglow.refine`."""
        known = copy.copy(data)
        if not self.use_labels or not _has_labels(data, MASKS[:1]):
            known.pop("y", None)
        edges: Any = "auto" if self.mode == "auto" else "replace"
        return refine(known.cpu(), self.learner, edges=edges, top_k=self.top_k)

    def _by_paper(self, data: Data) -> Data:
        """The graph of the messages of a GNN that :func:`graphglow.transfer` trains."""
        if data.x is None or not _has_labels(data, MASKS[:2]) or not self.use_labels:
            raise InputError(
                "A learner of the paper's kind needs x, y, train_mask and val_mask. Without them "
                "take the learner universal."
            )
        hidden = check_graph(data)
        hidden.y = torch.where(hidden.train_mask | hidden.val_mask, hidden.y, -1)
        result = transfer(hidden, self.learner, self.config)
        return result.refined_graph(self.top_k or usual_top_k(hidden), self_loops=False)


class AuditEdges(BaseTransform):  # type: ignore[misc]
    """Drop the edges that are surely false, by :func:`graphglow.audit`.

    ::

        transform = T.Compose([graphglow.AuditEdges(drop=0.1), T.ToUndirected()])

    Edges below the probability ``drop`` of being real are left out, and pairs above ``add`` become
    edges; 1 adds none. For ``seed`` and ``device`` see :func:`graphglow.audit`.
    """

    def __init__(
        self,
        drop: float = 0.1,
        add: float = 1.0,
        *,
        seed: int = 0,
        device: Literal["auto", "cpu", "cuda"] = "auto",
    ) -> None:
        number("drop", drop, 0, 1)
        number("add", add, 0, 1)
        self.drop, self.add, self.seed, self.device = drop, add, seed, device

    def forward(self, data: Data) -> Data:
        _check_single(data, "AuditEdges")
        found = audit(data, missing=self.add < 1, seed=self.seed, device=self.device)
        return found.repaired(self.drop, self.add)

    def __repr__(self) -> str:
        return f"AuditEdges(drop={self.drop}, add={self.add})"


def _check_single(data: Any, name: str) -> None:
    if isinstance(data, Batch) or not isinstance(data, Data):
        kind = type(data).__name__
        raise InputError(f"{name} takes one torch_geometric Data at a time; got {kind}")


def _has_labels(data: Data, masks: tuple[str, ...]) -> bool:
    y = data.get("y")
    known = isinstance(y, Tensor) and not bool((y == -1).all())
    return known and all(data.get(name) is not None for name in masks)
