"""Training by batches of nodes, over a graph that is given and stays as it is.

A backbone that reads hops (``sign``) has them made once: X, M X, M^2 X, .. a few columns at a time,
of training and validation nodes only; in memory, or above a size in a file without a name, which is
gone when nobody reads it any more, however the process ends. Other backbones take what PyG's
``NeighborLoader`` draws around a batch, where one of the libraries that it needs is installed.
"""

import os
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.gnn import MixedPropagation, backbone_class
from graphglow.graphs import Graph
from graphglow.ops.sparse import SparseMatrix
from graphglow.structure import FixedStructure
from graphglow.structure.objective import supervised_loss
from graphglow.training.config import ModelConfig, TransferConfig
from graphglow.training.device import check_fits, free_bytes
from graphglow.training.task import GraphTask, accuracy

LIGHTER = " (--backbone sign --batch-nodes 4096 needs less)"
LARGEST_IN_MEMORY = 2**30
"""Bytes of hops; more of them lie in a file."""
COLUMNS = 64
"""Features that travel over the graph at a time."""
NEIGHBOURS = 16
"""Drawn of each node in each layer, at most."""
ROWS = 2**16
"""Validation nodes that are looked at together, at most."""


def batched_task(
    graph: Graph,
    hidden: int,
    config: ModelConfig,
    given: FixedStructure,
    *,
    batch_nodes: int | None,
    balanced: bool,
) -> GraphTask:
    """What trains one GNN over the input graph and a given one, by batches or all at once.

    As :class:`GraphTask`; ``batch_nodes`` are the training nodes in a batch, all where it is None.
    """
    settings = graph, hidden, config, given, balanced
    if backbone_class(config.backbone).reads_hops():
        return HopTask(*settings, batch_nodes or len(graph.train))
    if batch_nodes is not None and batch_nodes < len(graph.train):
        return SampledTask(*settings, batch_nodes)
    return GraphTask(graph, None, hidden, [config], given=given, balanced=balanced)


def check_batches(backbone: str, batch_nodes: int | None) -> None:
    """Raise unless this backbone can be trained by batches here."""
    kind = backbone_class(backbone)
    if batch_nodes is None or kind.reads_hops():
        return
    if not kind.inductive:
        raise InputError(
            "batch_nodes must go with a backbone without a weight for each node (sign is one); "
            f"got {backbone}"
        )
    if not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE):
        raise InputError(
            f"batch_nodes with backbone {backbone} needs pyg-lib or torch-sparse, by which PyG "
            "draws neighbours (https://github.com/pyg-team/pyg-lib); got neither (backbone sign "
            "needs none)"
        )


def check_room(data: Data, config: TransferConfig, device: torch.device) -> None:
    """Raise, before anything is done, where all nodes at once would need more than is free."""
    if config.batch_nodes is not None:
        return
    nodes, width = data.x.shape
    kept = 4 * config.num_layers * config.hidden  # by a GCN's layers, for gradients
    if backbone_class(config.backbone).reads_hops():
        nodes, kept = int(data.train_mask.sum()), 2 * (config.num_layers + 1) * width
    name = str(data.get("name", "graph"))
    check_fits("training on all nodes at once", 4 * nodes * kept, name, device, LIGHTER)


class BatchTask(GraphTask):
    """A :class:`GraphTask` for one run, whose epochs are several updates.

    Each goes over all training nodes, in batches drawn anew. Arguments are those of
    :func:`batched_task`.
    """

    def __init__(
        self,
        graph: Graph,
        hidden: int,
        config: ModelConfig,
        given: FixedStructure,
        balanced: bool,
        batch_nodes: int,
    ) -> None:
        super().__init__(graph, None, hidden, [config], given=given, balanced=balanced)
        self.mix = MixedPropagation(graph.adj, given, float(config.input_weight))
        self.one = torch.ones((), dtype=torch.int64, device=graph.y.device)
        self.places = torch.arange(graph.num_nodes, device=graph.y.device)
        self.prepare(config, given, batch_nodes)

    @abstractmethod
    def prepare(self, config: ModelConfig, given: FixedStructure, batch_nodes: int) -> None:
        """Do, once, what batches are made from."""

    @abstractmethod
    def answers(self) -> Iterator[tuple[slice | Tensor, Tensor]]:
        """Places among the training nodes [M], and what is said of those [M, C], in training."""

    def train_step(self) -> tuple[Tensor, Tensor]:
        total = torch.zeros_like(self.one, dtype=torch.float32)
        for rows, logits in self.answers():
            labels = self.train_labels[rows]
            weight = None if self.train_weight is None else self.train_weight[rows]
            loss = supervised_loss(logits, self.places[: len(labels)], labels, weight)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach() * len(labels)
        return total / len(self.train_labels), self.one


class HopTask(BatchTask):
    """By a backbone's rows of the hops. One batch that holds all nodes is the same as none.

    Shapes:
        hops [L + 1, train + val, features]
    """

    def prepare(self, config: ModelConfig, given: FixedStructure, batch_nodes: int) -> None:
        graph = self.graph
        nodes = torch.cat([graph.train, graph.val])
        self.hops = hops_of(graph.x, self.mix, config.num_layers, nodes)
        self.batches = -(-len(graph.train) // batch_nodes)
        self.capture &= self.batches == 1 and self.hops.device == graph.y.device

    def answers(self) -> Iterator[tuple[slice | Tensor, Tensor]]:
        for rows in self._batches():
            yield rows, self.gnn.of_hops(self._read(rows), self.dropout)

    @torch.no_grad()
    def val_logits(self) -> Tensor:
        start, end = len(self.train_labels), self.hops.shape[1]
        parts = [slice(i, min(i + ROWS, end)) for i in range(start, end, ROWS)]
        return torch.cat([self.gnn.of_hops(self._read(rows), None) for rows in parts])

    @torch.no_grad()
    def validate(self) -> tuple[Tensor, Tensor]:
        labelled = self.places[: len(self.val_labels)], self.val_labels, self.val_weight
        logits = self.val_logits()
        return supervised_loss(logits, *labelled), accuracy(logits, *labelled)

    def _batches(self) -> Iterator[slice | Tensor]:
        """Places of training nodes: all, or parts of a random order, nearly equal."""
        count, (generator,) = len(self.train_labels), self.generators
        if self.batches == 1:
            yield slice(0, count)
            return
        order = torch.randperm(count, generator=generator, device=generator.device)
        for rows in torch.tensor_split(order, self.batches):
            yield rows.sort().values  # a file is read from front to back

    def _read(self, rows: slice | Tensor) -> Tensor:
        """Their rows of all hops, on the device: [L + 1, M, features]."""
        if isinstance(rows, Tensor):
            rows = rows.to(self.hops.device)
        return self.hops[:, rows].to(self.graph.y.device)


@torch.no_grad()
def hops_of(x: SparseMatrix | Tensor, mix: MixedPropagation, count: int, nodes: Tensor) -> Tensor:
    """[x, M x, .., M^count x] of some nodes; all the same where nothing travels.

    Shapes:
        x [N, F], nodes [M] -> [count + 1, M, F]
    """
    latent = mix.latent
    still = isinstance(latent, FixedStructure) and latent.own == 1 and mix.input_weight == 0
    moves, width = 0 if still else count, x.shape[1]
    like = x if isinstance(x, Tensor) else x.values
    hops = _room((moves + 1, len(nodes), width), like)
    for start in range(0, width, COLUMNS):
        columns = slice(start, min(start + COLUMNS, width))
        if isinstance(x, Tensor):
            v = x[:, columns].contiguous()
        else:
            v = x @ torch.eye(width, columns.stop).to(like)[:, start:]
        hops[0, :, columns] = v[nodes]
        for hop in hops[1:]:
            v = mix(v)
            hop[:, columns] = v[nodes]
    return hops.expand(count + 1, -1, -1) if still else hops


def _room(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros, in memory or on disk: what a process maps of a file the system can take back."""
    size = 4 * int(np.prod(shape))
    on_gpu = like.is_cuda and size <= (free_bytes(like.device) or 0) // 2
    if size <= LARGEST_IN_MEMORY or on_gpu:
        return like.new_zeros(shape)
    try:
        with tempfile.TemporaryFile() as file:  # it has no name; the mapping keeps it
            if hasattr(os, "posix_fallocate"):  # a disk that is full is said now
                os.posix_fallocate(file.fileno(), 0, size)
            return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape))
    except OSError as error:
        raise InputError(
            f"the hops of sign must fit on the disk of {tempfile.gettempdir()}; "
            f"{size / 1e9:.3g} GB do not (TMPDIR names another folder, fewer --num-layers or "
            f"features need less): {error.strerror}"
        ) from error


class SampledTask(BatchTask):
    """By what is drawn around a batch of nodes.

    Messages pass over the drawn nodes' part of either graph, where rows that lost neighbours are
    scaled to the sum that they had. Evaluation passes over the whole graphs, without gradients.
    Which neighbours are drawn is up to the library, and follows no seed of ours.
    """

    def prepare(self, config: ModelConfig, given: FixedStructure, batch_nodes: int) -> None:
        from torch_geometric.loader import NeighborLoader

        graph = self.graph
        self.capture, self.latent = False, given
        self.adj, self.s = _scipy(graph.adj), _scipy(given.matrix)
        self.x = graph.x if isinstance(graph.x, Tensor) else _scipy(graph.x)
        both = [(self.adj, config.input_weight > 0), (self.s, config.input_weight < 1 > given.own)]
        union = sp.coo_array(sum((m for m, counts in both if counts), 0 * self.adj))
        union.eliminate_zeros()
        ends = np.stack([union.col, union.row]).astype(np.int64)
        self.loader = NeighborLoader(
            Data(edge_index=torch.from_numpy(ends), num_nodes=graph.num_nodes),
            [NEIGHBOURS] * config.num_layers,
            input_nodes=graph.train.cpu(),
            batch_size=batch_nodes,
            shuffle=True,
            generator=torch.Generator().manual_seed(config.seed),
        )

    def answers(self) -> Iterator[tuple[slice | Tensor, Tensor]]:
        for batch in self.loader:
            part, latent = self._part(batch.n_id)
            mix = MixedPropagation(part.adj, latent, self.mix.input_weight)
            _, logits = self.gnn(self.gnn.encode(part, self.dropout), mix, self.dropout)
            yield batch.input_id.to(logits.device), logits

    def _part(self, nodes: Tensor) -> tuple[Graph, FixedStructure]:
        """Both graphs between these nodes [M], the batch's first."""
        device, at = self.graph.y.device, nodes.numpy()
        adj, s = (_within(matrix, at).to(device) for matrix in (self.adj, self.s))
        here = nodes.to(device)
        dense = isinstance(self.x, Tensor)
        x = self.x[here] if dense else SparseMatrix.from_scipy(self.x[at]).to(device)
        part = replace(self.graph, x=x, adj=adj, y=self.graph.y[here])
        return part, replace(self.latent, matrix=s)


def _scipy(matrix: SparseMatrix) -> Any:
    parts = (part.cpu().numpy() for part in (matrix.values, matrix.col, matrix.crow))
    return sp.csr_array(tuple(parts), shape=matrix.shape)


def _within(matrix: Any, nodes: Any) -> SparseMatrix:
    """Rows and columns of ``nodes``, and what stands beside the diagonal with the sums it had."""
    rows = matrix[nodes]
    part = sp.csr_array(rows[:, nodes])
    own = part.diagonal()
    had, has = (m.sum(1) - own for m in (rows, part))
    scale = np.divide(had, has, out=np.ones_like(has), where=has > 0)
    part = sp.diags_array(scale) @ part
    part.setdiag(own)
    return SparseMatrix.from_scipy(part)
