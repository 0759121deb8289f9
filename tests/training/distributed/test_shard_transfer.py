"""A transfer on two ranks is that on one, to rounding; one rank without draws is ``transfer``."""

import numpy as np
import pytest
import torch
from two_ranks import in_ranks

from distributed_cost import Job, bytes_sent, graph_bytes, kept_bytes
from graphglow import gnn
from graphglow.errors import InputError
from graphglow.graphs import scale_graph
from graphglow.training import transfer
from graphglow.training.distributed import GraphArrays, Ranks, read_shard, write_shards
from graphglow.training.distributed.task import ShardTask
from graphglow.training.distributed.transfer import transfer_shard
from tiny_graphs import learner, small_data, transfer_config

pytestmark = pytest.mark.slow
DRAWN = {"dropout": 0.5, "redraw_pivots": True, "epochs": 2, "tolerance": 0.0, "steps": 2}
BACKBONES = sorted(name for name, kind in gnn.BACKBONES.items() if kind.shardable)
CASES = {
    **{name: ({**DRAWN, "backbone": name}, {}, "plain") for name in BACKBONES},
    "chunked": ({**DRAWN, "backend": "chunked", "num_layers": 3}, {}, "plain"),
    "linear": (DRAWN, {"delta": "affine"}, "plain"),
    "rbf": (DRAWN, {"similarity": "rbf"}, "plain"),
    "sparse": (DRAWN, {}, "sparse"),
    "no labels on one rank": (DRAWN, {}, "labelled at the end"),
    "momentum": ({**DRAWN, "structure_momentum": 0.4, "encoder": "mlp"}, {}, "plain"),
    "settles": ({**DRAWN, "tolerance": 0.05, "refinements": 6}, {}, "plain"),
    "by degree": ({**DRAWN, "pivots_by_degree": True, "input_weight": 0.9}, {}, "plain"),
    "more pivots than a rank has nodes": ({**DRAWN, "num_pivots": 45}, {}, "plain"),
    "every node a pivot": ({**DRAWN, "num_pivots": 100}, {}, "plain"),
    "latent only": ({**DRAWN, "input_weight": 0.0}, {}, "plain"),
    "patience": ({**DRAWN, "epochs": 12, "patience": 2, "learning_rate": 0.1}, {}, "plain"),
}
"""Settings, learner and graph of each run; ranks draw the same masks and pivots."""
LARGE = 2000


GRAPHS = {"plain": 25, "sparse": 25, "labelled at the end": 40}
"""Nodes at the start of each graph that have no label: the last one leaves rank 0 without any."""


def arrays_of(name):
    data = small_data(num_nodes=61, sparse_features=name == "sparse")
    data.train_mask[: GRAPHS[name]] = False
    data.val_mask[: GRAPHS[name]] = data.test_mask[: GRAPHS[name]] = False
    return GraphArrays.of_data(data)


def one_case(ranks, root, name):
    """The first step's loss and gradient, and then a whole run, of one case."""
    settings, kind, graph = CASES[name]
    config = transfer_config(**settings)
    theta = learner(**kind).to(ranks.device).requires_grad_(False)
    shard = read_shard(root / f"{graph}-{ranks.size}", ranks)
    task = ShardTask(shard, theta, config, ranks)
    loss, refinements = task.train_step()
    result = transfer_shard(theta, shard, config, ranks)
    result.write_predictions(root / f"predictions-{name}-{ranks.size}")
    return {
        "nodes": shard.nodes,
        "loss": loss,
        "refinements": int(refinements),
        "gradient": torch.cat([p.grad.flatten() for p in task.gnn.parameters()]),
        "pivots": task.pivots.nodes,
        "logits": result.logits,
        "history": [tuple(epoch)[1:] for epoch in result.history],
        "weights": torch.cat([p.flatten() for p in result.gnn.parameters()]),
        "summary": result.summary(),
    }


def measured(ranks, root, layers, backend):
    """What a rank holds, keeps in a step, and sends in an epoch, beside the cost model's say."""
    shard = read_shard(root / f"large-{ranks.size}", ranks)
    config = transfer_config(
        dropout=0.5,
        redraw_pivots=True,
        num_layers=layers,
        backend=backend,
        num_pivots=60,
        refinements=3,
        tolerance=1e-30,
    )
    theta = learner(embedding_size=32).requires_grad_(False)
    task = ShardTask(shard, theta, config, ranks)
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    sent = ranks.traffic.sent
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        task.train_step()
    task.validate()
    sent = ranks.traffic.sent - sent
    graph, halo = shard.graph, shard.graph.adj.halo
    tensors = (graph.x, graph.adj.values, graph.adj.col, graph.adj.col_t, graph.adj.order)
    job = Job(
        nodes=len(shard.nodes) * ranks.size,
        entries=graph.adj.col.numel() * ranks.size,
        features=graph.num_features,
        classes=graph.num_classes,
        weights=task.optimizer.flat.numel(),
        pivots=60,
        hidden=32,
        heads=2,
        layers=layers,
        refinements=3,
        ranks=ranks.size,
        sent=halo.sent,
        received=halo.size,
        backend=backend,
    )
    return {
        "sent": (sent, bytes_sent(job)),
        "graph": (sum(t.numel() * t.element_size() for t in tensors), graph_bytes(job)),
        "kept": (sum(kept.values()), kept_bytes(job)),
    }


MEASURED = [(2, "dense"), (3, "dense"), (2, "chunked")]


def everything(ranks, root):
    cases = {name: one_case(ranks, root, name) for name in CASES}
    return cases, [measured(ranks, root, *how) for how in MEASURED]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """On one rank, and on each of two."""
    root = tmp_path_factory.mktemp("shards")
    large = GraphArrays.of_graph(scale_graph(num_nodes=LARGE, average_degree=10.0))
    for parts in (1, 2):
        for name in GRAPHS:
            write_shards(arrays_of(name), root / f"{name}-{parts}", parts, method="given")
        write_shards(large, root / f"large-{parts}", parts)
    return root, everything(Ranks(), root), in_ranks(everything, 2, root)


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_give_what_one_gives(runs, name):
    _, (one, _), pair = runs
    two = [cases[name] for cases, _ in pair]
    one = one[name]
    for rank in two:
        assert torch.equal(rank["pivots"], one["pivots"])
        assert rank["refinements"] == one["refinements"]
        torch.testing.assert_close(rank["loss"], one["loss"])
        torch.testing.assert_close(rank["gradient"], one["gradient"], rtol=1e-4, atol=1e-6)
        assert len(rank["history"]) == len(one["history"])
        np.testing.assert_allclose(rank["history"], one["history"], rtol=2e-4, atol=1e-6)
        for fact in ("val_accuracy", "test_accuracy", "epochs", "message_backend", "method"):
            assert rank["summary"][fact] == one["summary"][fact]
    assert torch.equal(two[0]["weights"], two[1]["weights"])
    nodes = torch.cat([rank["nodes"] for rank in two])
    assert nodes.sort()[0].tolist() == list(range(61))
    logits = torch.cat([rank["logits"] for rank in two])[nodes.argsort()]
    torch.testing.assert_close(logits, one["logits"], rtol=1e-3, atol=1e-4)
    assert one["gradient"].abs().max() > 1e-3
    if name == "no labels on one rank":
        assert two[0]["nodes"].max() < GRAPHS["labelled at the end"]


def test_cases_settle_and_stop_early_where_they_should(runs):
    _, (one, _), _ = runs
    assert one["settles"]["refinements"] < 6
    assert len(one["patience"]["history"]) < 12


def test_each_rank_writes_the_predictions_of_its_nodes(runs):
    root, (one, _), _ = runs
    folder = root / "predictions-gcn-2"
    nodes = [np.load(folder / f"nodes-{rank}.npy") for rank in range(2)]
    shares = [np.load(folder / f"probabilities-{rank}.npy") for rank in range(2)]
    expected = one["gcn"]["logits"].softmax(1).numpy()
    for own, share in zip(nodes, shares, strict=True):
        np.testing.assert_allclose(share, expected[own], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("case", range(len(MEASURED)), ids=[str(how) for how in MEASURED])
def test_a_rank_holds_its_share_and_sends_what_the_model_says(runs, case):
    _, (_, alone), pair = runs
    for rank in (found[case] for _, found in pair):
        counted, modelled = rank["sent"]
        assert counted == pytest.approx(modelled, rel=1e-9)
        assert counted > 0
        for what in ("graph", "kept"):
            held, modelled = rank[what]
            assert held == pytest.approx(modelled, rel=0.05)
            assert held < 0.55 * alone[case][what][0]
    assert alone[case]["sent"] == (0, 0)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("delta", ["truncate", "affine"])
def test_one_rank_without_draws_is_a_transfer(tmp_path, backbone, delta):
    data, theta = small_data(num_nodes=50), learner(delta=delta)
    config = transfer_config(
        backbone=backbone, dropout=0.0, redraw_pivots=False, epochs=8, tolerance=1e-3, refinements=4
    )
    expected = transfer(data, theta, config)
    write_shards(GraphArrays.of_data(data), tmp_path / "shards", 1)
    shard = read_shard(tmp_path / "shards", Ranks())
    result = transfer_shard(theta, shard, config, Ranks(), pivots=expected.pivots)
    torch.testing.assert_close(result.logits, expected.refinement.logits, rtol=1e-3, atol=1e-4)
    assert result.val_accuracy == expected.val_accuracy
    assert result.test_accuracy == expected.test_accuracy
    assert [e.refinements for e in result.history] == [e.refinements for e in expected.history]
    assert set(expected.summary()) - {"verdict"} <= set(result.summary())


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_drops_and_draws_as_a_cpu_does(runs, name):
    root, (one, _), _ = runs
    on_gpu = one_case(Ranks(device=torch.device("cuda")), root, name)
    assert torch.equal(on_gpu["pivots"].cpu(), one[name]["pivots"])
    torch.testing.assert_close(on_gpu["loss"].cpu(), one[name]["loss"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        on_gpu["gradient"].cpu(), one[name]["gradient"], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
    ("settings", "kind", "rule"),
    [
        (
            {"backbone": "gat"},
            {},
            "one of appnp, gcn, gcnii, gpr, sign across ranks",
        ),
        ({"backend": "eager"}, {}, "backend must be one of"),
        ({"precision": "bfloat16"}, {}, "precision must be float32"),
        ({}, {"neighbours": 3}, "must have no neighbours"),
    ],
)
def test_what_cannot_be_sharded_is_refused(tmp_path, settings, kind, rule):
    write_shards(GraphArrays.of_data(small_data()), tmp_path / "shards", 1)
    shard = read_shard(tmp_path / "shards", Ranks())
    with pytest.raises(InputError, match=rule):
        transfer_shard(learner(**kind), shard, transfer_config(**settings), Ranks())
