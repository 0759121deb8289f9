"""A PyG transform: a graph's edges become those that the structure learner proposes."""

import copy
import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from graphglow.checks import at_least, one_of
from graphglow.device import out_of_memory_hint, resolve_device
from graphglow.errors import InputError
from graphglow.evidence.learner import EvidenceLearner
from graphglow.gnn import Structure
from graphglow.graph import check_graph
from graphglow.graph.check import MASKS, one_graph
from graphglow.graph.graph import normalised_adjacency, normalised_features
from graphglow.inference.refined_graph import strongest_edges, without_edges
from graphglow.linalg.sparse import SparseMatrix
from graphglow.paper import StructureLearner
from graphglow.paper.pivots import EPS
from graphglow.pretrained import UNIVERSAL, LearnerName, load_learner
from graphglow.refine import refine, usual_top_k
from graphglow.settings import PaperConfig
from graphglow.transfer import transfer

Mode = Literal["replace", "augment"]


class RefineStructure(BaseTransform):  # type: ignore[misc]
    """Replace or augment ``edge_index`` and ``edge_weight`` by the frozen learner's graph.

    ::

        transform = T.Compose([T.RandomNodeSplit(), graphglow.RefineStructure()])
        data = transform(data)  # for any PyG model: GCNConv(..)(data.x, data.edge_index, ..)

    **An evidence learner** trains nothing: the edges are those of :func:`graphglow.refine`. Only
    labels in ``train_mask`` are read, if there are any, and for its verdict those in ``val_mask``.

    **A learner of the paper's kind**, with labels and a split: a small GNN is trained under it, as
    in :func:`graphglow.transfer`, and its structure is taken. Labels outside ``train_mask`` and
    ``val_mask`` are never read. Without (no ``y``, or no masks), or with
    ``use_labels=False``, the structure comes from the features alone: they are propagated over the
    input graph, once per layer of ``config`` (with encoder ``mlp`` not at all), centred, projected
    at random to the learner's width, by ``config.seed``, and compared by the frozen learner. That
    is unsupervised; the paper neither proposes nor tests it.

    The learned edges have no self-loops, and their weights have mean 1, so that
    layers which add self-loops of weight 1 and normalise, as ``GCNConv`` does, weigh them as
    they weigh plain edges. (The exact operator of one layer is
    :meth:`TransferResult.refined_graph`.) All attributes of edges are dropped, since learned
    edges have none; everything else stays. Without any edges a kNN graph over the features
    stands in as the input.

    Args:
        learner: What :func:`graphglow.load_learner` takes.
        mode: ``"replace"``: the refined graph (under the paper's learner, each node's ``top_k``
            strongest incoming edges of the mixture of input and learned graph). ``"augment"``: the
            input edges as they are, then those of the refined graph where the input has none;
            these have the share ``1 - config.input_weight`` of the whole weight, as in the paper's
            mixture, or half of it.
        top_k: Edges kept for each node, the strongest; by default about as many in all as the input
            has, as in :func:`graphglow.refine`.
        config: Settings of the transfer under the paper's learner. Without labels only ``encoder``,
            ``num_layers``, ``input_weight``, ``num_pivots``, ``seed``
            and ``device`` count.
        use_labels: True requires labels and a split, False ignores them; None uses them if there.

    Shapes:
        edge_index [2, E'], edge_weight [E']
    """

    def __init__(
        self,
        learner: LearnerName = UNIVERSAL,
        mode: Mode = "replace",
        top_k: int | None = None,
        config: PaperConfig | None = None,
        *,
        use_labels: bool | None = None,
    ) -> None:
        one_of("mode", mode, get_args(Mode))
        if top_k is not None:
            at_least("top_k", top_k, 1)
        self.learner = load_learner(learner)
        if config is not None and isinstance(self.learner, EvidenceLearner):
            raise InputError(
                "config must go with a learner of the paper's kind, since an evidence learner "
                f"trains nothing here; got {type(config).__name__}"
            )
        config = PaperConfig() if config is None else config
        if not isinstance(config, PaperConfig):
            raise InputError(f"config must be a PaperConfig; got {type(config).__name__}")
        self.mode, self.top_k, self.config, self.use_labels = mode, top_k, config, use_labels
        if mode == "augment" and config.input_weight == 0:
            raise InputError(
                "mode augment must go with an input_weight above 0, or the input edges count for "
                "nothing; got 0 (mode replace drops them)"
            )
        self._named = learner if isinstance(learner, str) else type(learner).__name__

    def __repr__(self) -> str:
        return f"RefineStructure(learner={self._named!r}, mode={self.mode!r}, top_k={self.top_k})"

    def forward(self, data: Data) -> Data:
        if isinstance(data, Batch) or not isinstance(one_graph(data), Data):
            raise InputError(
                "RefineStructure takes one torch_geometric Data at a time; "
                f"got {type(data).__name__}"
            )
        from_labels, share = self._labels_count(data), self.config.input_weight
        if isinstance(self.learner, EvidenceLearner):
            (pairs, weight), share = self._by_evidence(self.learner, data, from_labels), 0.5
        else:
            pairs, weight = self._by_paper(data, from_labels)
        kept, kept_weight = pairs[:, :0], weight[:0]
        if self._keeps_input(data):
            kept, given = data.edge_index.cpu().long(), data.get("edge_weight")
            ones = torch.ones(kept.shape[1])
            kept_weight = ones if given is None else given.detach().cpu().float().flatten()
        total = float(len(weight))  # a mean of 1, or the share that is theirs beside what is kept
        if float(kept_weight.sum()) > 0:
            total = float(kept_weight.sum()) * (1 - share) / share
        weight = weight * (total / weight.sum().clamp_min(EPS))
        refined = without_edges(copy.copy(data))
        device = next(part.device for part in (data.edge_index, data.x, pairs) if part is not None)
        refined.edge_index = torch.cat([kept, pairs], dim=1).to(device)
        refined.edge_weight = torch.cat([kept_weight, weight]).to(device)
        return refined

    def _keeps_input(self, data: Data) -> bool:
        edges = data.edge_index
        return self.mode == "augment" and edges is not None and edges.shape[1] > 0

    def _by_evidence(
        self, learner: EvidenceLearner, data: Data, from_labels: bool
    ) -> tuple[Tensor, Tensor]:
        """The edges of :func:`graphglow.refine`, or those of them that the input does not have."""
        known = copy.copy(data)
        if not from_labels:
            known.pop("y", None)
        made = refine(known.cpu(), learner, top_k=self.top_k)
        new = torch.ones_like(made.edge_in_input)
        if self._keeps_input(data):
            new = ~made.edge_in_input
        return made.edge_index[:, new], made.edge_weight[new]

    def _by_paper(self, data: Data, from_labels: bool) -> tuple[Tensor, Tensor]:
        """The strongest edges of the mixture, or of the learned graph where the input has none."""
        if data.x is None:
            raise InputError("a learner of the paper's kind needs node features x; got none")
        checked, adj, latent = self._from_labels(data) if from_labels else self._from_features(data)
        top_k, share = self.top_k or usual_top_k(checked), self.config.input_weight
        if self.mode == "augment":
            share = 0.0
            if self._keeps_input(data):  # -infinity at an input edge: such an entry is never kept
                adj, share = adj.with_values(torch.full_like(adj.values, -math.inf)), 0.5
        edges = strongest_edges(adj, latent, share, top_k, self_loops=False)
        if self.mode == "augment" and self.config.input_weight == 1:  # a share of nothing
            return edges.pairs[:, :0].cpu(), torch.empty(0)
        return edges.pairs.cpu(), edges.weight.cpu().float()

    def _labels_count(self, data: Data) -> bool:
        """Whether to train on the labels of ``data``."""
        if self.use_labels is False:
            return False
        y = data.get("y")
        there = isinstance(y, Tensor) and not bool((y == -1).all())
        needed = ("train_mask",) if isinstance(self.learner, EvidenceLearner) else MASKS[:2]
        there = there and all(data.get(name) is not None for name in needed)
        if self.use_labels and not there:
            raise InputError(
                "use_labels needs labels y, train_mask and val_mask (T.RandomNodeSplit makes the "
                "masks); got a graph without"
            )
        return there

    def _from_labels(self, data: Data) -> tuple[Data, SparseMatrix, Structure]:
        """The structure of a GNN trained on the training and validation nodes."""
        hidden = check_graph(data)
        hidden.y = torch.where(hidden.train_mask | hidden.val_mask, hidden.y, -1)
        assert isinstance(self.learner, StructureLearner)
        result = transfer(hidden, self.learner, self.config)
        latent = result.refinement.latent
        assert latent is not None  # there is a learner
        return hidden, result.graph.adj, latent

    @torch.no_grad()
    def _from_features(self, data: Data) -> tuple[Data, SparseMatrix, Structure]:
        """The structure of propagated, centred and randomly projected features."""
        bare = copy.copy(data)
        for name in ("y", *MASKS):  # not read, not even checked
            bare.pop(name, None)
        checked = check_graph(bare, need_labels=False)
        config, learner = self.config, self.learner
        assert isinstance(learner, StructureLearner)
        device = resolve_device(config.device)
        num_nodes, num_features = checked.x.shape
        generator = torch.Generator().manual_seed(config.seed)
        width = learner.config.embedding_size
        projection = torch.randn(num_features, width, generator=generator) / math.sqrt(width)
        pivots = torch.randperm(num_nodes, generator=generator)[: config.num_pivots]
        adj = normalised_adjacency(checked.edge_index, checked.get("edge_weight"), num_nodes)
        adj = adj.to(device)
        with out_of_memory_hint("refining the graph", "fewer num_pivots"):
            z = normalised_features(checked.x).to(device) @ projection.to(device)  # [N, D]
            if config.encoder == "gcn":
                for _ in range(config.num_layers):
                    z = adj @ z
            frozen = copy.deepcopy(learner).to(device)
            latent = frozen.structure(z - z.mean(0), pivots.to(device))
        return checked, adj, latent
