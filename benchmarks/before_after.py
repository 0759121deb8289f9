"""Draw docs/pictures/before_after.png: Cora with as many false edges as true ones, and refined.

    python benchmarks/before_after.py

Papers are sorted by class along both sides, an edge is a dot; a perfect graph has dots in the
blocks of the diagonal only. Needs the extra ``figures``.
"""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.utils import add_random_edge

import graphglow

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "before_after.png"
GREEN, RED = (0.05, 0.45, 0.35), (0.75, 0.15, 0.1)


def main() -> None:
    seed_everything(0)
    data = graphglow.load_graph("cora")
    data.edge_index, _ = add_random_edge(data.edge_index, p=1.0, force_undirected=True)
    refined = graphglow.refine(data)
    before = data.edge_index, torch.ones(data.edge_index.shape[1])
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots(1, 2)
    draw(axes[0], "given", data.y, *before)
    draw(axes[1], "refined", data.y, refined.edge_index, refined.edge_weight)
    figure.savefig(PICTURE, dpi=80)


def draw(axis: Axes, title: str, y: Tensor, edges: Tensor, weight: Tensor) -> None:
    """Draw edges as dots, the heavier the darker, over blocks of one class."""
    place, joins = y.argsort().argsort(), y[edges[0]] == y[edges[1]]
    share = float(weight[joins].sum() / weight.sum())
    bounds = torch.bincount(y).cumsum(0).tolist()
    for start, stop in zip([0, *bounds], bounds, strict=False):
        size = stop - start
        axis.add_patch(Rectangle((start, start), size, size, color="0.93", linewidth=0))
    alpha = (weight / weight.quantile(0.9)).clamp(0.02, 1) * 0.5
    colours = torch.where(joins[:, None], torch.tensor(GREEN), torch.tensor(RED))
    rows, columns = place[edges[0]], place[edges[1]]
    axis.scatter(rows, columns, s=0.6, c=torch.cat([colours, alpha[:, None]], 1), linewidths=0)
    axis.set(xticks=[], yticks=[], aspect="equal", xlim=(0, len(y)), ylim=(len(y), 0))
    axis.set_title(f"{title}: {share:.0%} of weight within a subject", fontsize=11)


if __name__ == "__main__":
    main()
