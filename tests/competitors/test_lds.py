"""LDS: what it learns, from which labels, and that a run can be repeated."""

from dataclasses import replace

import pytest
import torch
from graphglow.training.loop import Loop
from graphglow.training.task import accuracy
from small_fits import all_probabilities
from torch_geometric.data import Data

from graphglow.competitors.edge_probabilities import stored_entries
from graphglow.competitors.lds import METHOD, LDSConfig, LDSTask, validation_halves
from graphglow.errors import InputError
from graphglow.graph import prepare, synthetic_graph

MASKS = ("train_mask", "val_mask", "test_mask")


def noisy_data(*, num_nodes=90, homophily=0.4, noise=0.6, seed=0):
    data = synthetic_graph(
        num_nodes=num_nodes,
        num_classes=3,
        num_features=12,
        homophily=homophily,
        average_degree=6.0,
        feature_noise=noise,
        seed=seed,
    )
    return Data(x=data.x, y=data.y, edge_index=data.edge_index)


def noisy_graph(**changes):
    return prepare(noisy_data(**changes)).to("cpu")


def config(**changes):
    return LDSConfig(**({"device": "cpu", "epochs": 30, "learning_rate": 0.02} | changes))


def trained(graph, settings):
    task = METHOD.build(graph, [settings])
    history = Loop(task, settings.epochs, settings.epochs).run()[0]
    return task, history


@pytest.mark.slow
def test_adds_and_removes_edges_by_class_and_gains_by_it():
    """Half of the edges join two classes; the GCN on the graph as it is serves as control."""
    data = noisy_data(num_nodes=120, homophily=0.5, noise=1.5)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    for name, nodes in zip(MASKS, order.split([24, 60, 36]), strict=True):
        data[name] = torch.zeros(120, dtype=torch.bool).index_fill(0, nodes, True)
    graph = prepare(data).to("cpu")
    settings = {"epochs": 20, "dropout": 0.2, "graph_decay": 0.99}
    learned, control = (
        trained(graph, config(graph_learning_rate=rate, **settings))[0] for rate in (10.0, 1e-9)
    )
    scores = [
        float(accuracy(t.logits(), graph.test, graph.y[graph.test])) for t in (learned, control)
    ]
    assert scores[0] > scores[1] + 0.1
    theta, edge = all_probabilities(learned.theta), graph.neighbours.to_dense() > 0
    alike, apart = graph.y[:, None] == graph.y, ~torch.eye(120, dtype=torch.bool)
    assert theta[edge & alike].mean() > theta[edge & ~alike].mean() + 0.1
    assert theta[~edge & alike & apart].mean() > 4 * theta[~edge & ~alike].mean()


def test_same_seed_same_result_and_evaluation_draws_nothing():
    graph = noisy_graph(num_nodes=30)
    (one, first), (other, second) = (trained(graph, config(epochs=6)) for _ in range(2))
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True))
    state = one.generators[0].get_state()
    assert torch.equal(one.logits(), one.logits())
    assert torch.equal(one.generators[0].get_state(), state)
    changed, _ = trained(graph, config(epochs=6, seed=1))
    assert not torch.equal(changed.logits(), one.logits())


def test_dense_graphs_train_as_sparse_ones_do():
    """A GPU draws dense graphs."""
    graph = prepare(noisy_data(num_nodes=80)).to("cpu", torch.float64)
    tasks = [LDSTask(graph, config()) for _ in range(2)]
    tasks[1].theta.dense = True
    for task in tasks:
        for _ in range(3):
            task.train_step()
    for one, other in zip(*(task.weights for task in tasks), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(tasks[0].logits(), tasks[1].logits())


def test_logits_are_logarithms_of_probabilities():
    task, _ = trained(noisy_graph(num_nodes=30), config(epochs=3))
    total = task.logits().exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_the_gcn_starts_anew_once_its_loss_stops_falling():
    task = LDSTask(noisy_graph(num_nodes=30), config(inner_patience=7, window=5))
    task.train_step()
    task.lowest.fill_(0)  # no loss is below
    task.since.fill_(0)
    for _ in range(2):  # asked before a window: after 5 steps not yet, after 10 it is
        task.train_step()
    assert int(task.state.done) == 15
    old = task.state.weights.clone()
    task.train_step()
    assert int(task.state.done) == 5
    assert float(task.lowest) > 0
    moved = (task.state.weights - old).abs()  # Adam alone moves by about 0.02 a step
    assert moved.max() > 5 * 5 * 0.02 / 2


@pytest.mark.parametrize("seed", [0, 1])
def test_validation_halves_are_disjoint_cover_and_halve_each_class(seed):
    graph = noisy_graph()
    learn, stop = validation_halves(graph, seed)
    assert torch.equal(torch.cat([learn, stop]).sort().values, graph.val.sort().values)
    assert len(learn) - len(stop) in (0, 1)
    counts = [graph.y[half].bincount(minlength=3) for half in (learn, stop)]
    assert (counts[0] - counts[1]).abs().max() <= 1
    assert torch.equal(validation_halves(graph, seed)[0], learn)
    task = LDSTask(graph, config(seed=seed))
    assert torch.equal(task.graph.val, stop)
    assert torch.equal(task.bilevel.outer.nodes, learn)
    assert torch.equal(task.bilevel.inner.nodes, graph.train)


def test_one_validation_node_is_refused():
    graph = noisy_graph(num_nodes=30)
    graph = replace(graph, val=graph.val[:1])
    with pytest.raises(InputError, match="at least two validation nodes; got 1"):
        METHOD.build(graph, [config()])


def test_knn_ignores_the_edges():
    data = noisy_data(num_nodes=30)
    other = Data(x=data.x, y=data.y, edge_index=data.edge_index[:, :4])
    tasks = [LDSTask(prepare(d).to("cpu"), config(knn=3)) for d in (data, other)]
    first = all_probabilities(tasks[0].theta)
    assert torch.equal(first, all_probabilities(tasks[1].theta))
    assert (first.sum(1) >= 3).all()
    unit = torch.nn.functional.normalize(data.x, dim=1)
    nearest = (unit @ unit.T - 2 * torch.eye(30)).topk(3).indices
    assert (first.gather(1, nearest) == 1).all()


def test_memory_grows_with_the_square_of_the_nodes():
    small, large = (noisy_graph(num_nodes=n) for n in (1000, 2000))
    need = [METHOD.memory(graph, config()) for graph in (small, large)]
    assert 3.3 < need[1] / need[0] < 4.1
    assert need[1] > 4 * 4 * stored_entries(2000)  # theta, its best copy, one to choose from, draws
    assert need[1] < 10 * 2000**2 * 4
    on_gpu = [METHOD.memory(large.to("meta"), config(capture=c)) for c in (False, True)]
    assert need[1] + 9 * 2000**2 <= on_gpu[0] < on_gpu[1]


@pytest.mark.gpu
def test_recorded_epochs_are_the_same():
    graph = prepare(noisy_data()).to("cuda")
    histories = [
        trained(graph, config(device="cuda", epochs=12, capture=capture))[1]
        for capture in (False, True)
    ]
    assert [e.val_accuracy for e in histories[0]] == [e.val_accuracy for e in histories[1]]
