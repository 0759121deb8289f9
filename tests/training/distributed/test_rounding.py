"""In float64 the loss and every gradient are those of one rank: what differs is rounding only."""

from dataclasses import replace

import pytest
import torch
from two_ranks import in_ranks

from graphglow import gnn
from graphglow.training.distributed import GraphArrays, Ranks, read_shard, write_shards
from graphglow.training.distributed.task import ShardTask
from tiny_graphs import learner, small_data, transfer_config

pytestmark = pytest.mark.slow
STEPS = 3
BACKBONES = sorted(name for name, kind in gnn.BACKBONES.items() if kind.shardable)
SIZES = {2: ("gcn",), 3: BACKBONES}
"""Ranks, and what they train; test_shard_transfer.py has the rest on two, in float32."""


def in_double(shard):
    graph = shard.graph
    adj = graph.adj.to("cpu", torch.float64)
    return replace(shard, graph=replace(graph, x=graph.x.double(), adj=adj))


def steps(ranks, root):
    """Loss, gradient and weights of each step, by backbone."""
    found = {}
    torch.set_default_dtype(torch.float64)
    try:
        for backbone in SIZES.get(ranks.size, BACKBONES):
            config = transfer_config(
                backbone=backbone, dropout=0.5, redraw_pivots=True, refinements=3, tolerance=0.0
            )
            theta = learner().double().requires_grad_(False)
            shard = in_double(read_shard(root / str(ranks.size), ranks))
            task = ShardTask(shard, theta, config, ranks)
            assert task.optimizer.flat.dtype == torch.float64
            found[backbone] = []
            for _ in range(STEPS):
                loss, _ = task.train_step()
                gradients = [p.grad.clone() for p in task.gnn.parameters()]
                found[backbone].append([loss, *gradients, task.optimizer.flat.clone()])
    finally:
        torch.set_default_dtype(torch.float32)
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("rounding")
    for parts in (1, *SIZES):
        write_shards(GraphArrays.of_data(small_data(num_nodes=61)), root / str(parts), parts)
    return {1: [steps(Ranks(), root)], **{size: in_ranks(steps, size, root) for size in SIZES}}


@pytest.mark.parametrize(("size", "backbone"), [(n, b) for n in SIZES for b in SIZES[n]])
@pytest.mark.parametrize("step", [1, STEPS])
def test_loss_gradients_and_weights_are_those_of_one_rank(runs, size, backbone, step):
    (one,) = runs[1]
    for rank in runs[size]:
        found = zip(rank[backbone][step - 1], one[backbone][step - 1], strict=True)
        for here, expected in found:
            torch.testing.assert_close(here, expected, rtol=0, atol=1e-10)
