"""GNNs on the input graph, without a structure learner: the backbones by themselves.

Where each differs from its paper stands in its docstring in :mod:`graphglow.gnn.backbones`.
"""

from dataclasses import asdict, dataclass
from typing import Any

from graphglow.competitors.method import Method
from graphglow.gnn.train import GNNTask, Task
from graphglow.graph import Graph
from graphglow.settings import BackboneName, PaperConfig, RunConfig


@dataclass(frozen=True, kw_only=True)
class GNNConfig(RunConfig):
    """A GNN on the input graph."""

    hidden: int = 64
    """Width of the hidden layers."""
    num_layers: int = 2
    """Number of layers, at least 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model()  # which checks the number of layers

    def model(self, backbone: BackboneName = "gcn") -> PaperConfig:
        """The same settings as a backbone takes them."""
        settings = {name: value for name, value in asdict(self).items() if name != "hidden"}
        return PaperConfig(backbone=backbone, **settings)


@dataclass(frozen=True, kw_only=True)
class GATConfig(GNNConfig):
    """GAT on the input graph."""

    attention_heads: int = 8
    """Attention heads; their largest common divisor with the width is used."""


@dataclass(frozen=True, kw_only=True)
class PropagationConfig(GNNConfig):
    """APPNP or GPR-GNN on the input graph."""

    teleport: float = 0.1
    """alpha: weight of a node's own prediction in each propagation (of gpr, at the start)."""
    steps: int = 10
    """K: number of propagations."""


@dataclass(frozen=True, kw_only=True)
class GCNIIConfig(GNNConfig):
    """GCNII on the input graph."""

    num_layers: int = 8
    """Number of propagations, between two dense layers."""
    teleport: float = 0.1
    """alpha: share of the first layer in every other one."""


def h2gcn_memory(graph: Graph, config: GNNConfig) -> int:
    """Bytes of the two-hop pattern at most: a node's pairs of neighbours, each counted once.

    An entry takes an index and a value, and while it is made three more numbers.
    """
    degree = graph.adj.crow.diff().double() - 1
    return int(32 * min(float(degree.square().sum()), float(graph.num_nodes) ** 2))


def _gnn(
    backbone: BackboneName, summary: str, config: type[GNNConfig] = GNNConfig, **more: Any
) -> Method:
    def build(graph: Graph, settings: Any) -> Task:
        return GNNTask(graph, settings.hidden, settings.model(backbone))

    return Method(
        family="gnn", summary=summary, config=config, build=build, backbone=backbone, **more
    )


PLAIN_GNNS: dict[str, Method] = {
    "gcn": _gnn("gcn", "GCN (Kipf and Welling, ICLR 2017)"),
    "sage": _gnn("sage", "GraphSAGE, mean of all neighbours (Hamilton et al., NeurIPS 2017)"),
    "gat": _gnn("gat", "GAT (Velickovic et al., ICLR 2018)", GATConfig),
    "appnp": _gnn("appnp", "APPNP (Gasteiger et al., ICLR 2019)", PropagationConfig),
    "gpr": _gnn("gpr", "GPR-GNN (Chien et al., ICLR 2021)", PropagationConfig),
    "h2gcn": _gnn("h2gcn", "H2GCN (Zhu et al., NeurIPS 2020)", memory=h2gcn_memory, lighter="gcn"),
    "gcnii": _gnn("gcnii", "GCNII (Chen et al., ICML 2020)", GCNIIConfig),
}
