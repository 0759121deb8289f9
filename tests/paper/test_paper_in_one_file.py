"""The package gives what ``paper_in_one_file`` gives: each equation, a step, whole trainings."""

import paper_in_one_file as paper
import pytest
import torch
from test_objective import all_signs

from graphglow.graph import prepare
from graphglow.paper import objective
from graphglow.paper.algorithms import PaperTask, pretrain_structure, train_under
from graphglow.paper.learner import StructureLearner
from graphglow.paper.pivots import PivotStructure
from graphglow.settings import LearnerConfig, ObjectiveConfig, PaperConfig, PretrainConfig
from tiny_graphs import computing_in_float64, small_data

LEARNER = LearnerConfig(embedding_size=6, num_heads=2, tied=False, threshold=paper.THRESHOLD)
OBJECTIVE = ObjectiveConfig(
    smoothness=paper.ALPHA, sparsity=paper.RHO, entropy=paper.ENTROPY, samples=paper.K
)
SHARED = {
    "input_weight": paper.LAMBDA,
    "refinements": paper.T,
    "learning_rate": paper.STEP_W,
    "weight_decay": paper.DECAY,
    "num_pivots": 5,
    "redraw_pivots": False,
    "dropout": 0.0,
    "num_layers": 3,
    "seed": 4,
    "device": "cpu",
}
SOURCES = [small_data(seed=1, noise=2.0), small_data(seed=2, num_nodes=30, noise=2.0)]


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """Float64, and all sign vectors instead of a few random ones: the Frobenius norm is exact."""
    monkeypatch.setattr(objective, "random_signs", lambda shape, *_: all_signs(shape[0]))
    with computing_in_float64():
        yield


@pytest.fixture(params=[0.0, 0.2], ids=["T refinements", "until convergence"])
def shared(request, monkeypatch):
    monkeypatch.setattr(paper, "TOLERANCE", request.param)
    return SHARED | {"tolerance": request.param}


def problem_of(task):
    """What the package starts from, for the plain version."""
    pairs = zip(task.gnn.weights, task.gnn.biases, strict=True)
    graph, w = task.graph, [p.detach().clone().requires_grad_() for pair in pairs for p in pair]
    return paper.Problem(
        graph.adj.to_dense(), graph.x.to_dense(), graph.y, graph.train, graph.val, task.pivots, w,
        torch.Generator().manual_seed(task.generator.initial_seed()),
    )  # fmt: skip


def graph_of(data):
    return prepare(data).to("cpu", torch.float64)


def theta_of(learner):
    return [learner.node_weight, learner.pivot_weight]


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_the_similarity_and_the_messages_are_those_of_equations_9_to_11():
    z, pivots = draw(20, 6) - 0.5, torch.tensor([3, 0, 17])
    learner = StructureLearner(LEARNER, seed=1)
    gamma = paper.similarity(z, pivots, theta_of(learner))
    structure = learner.structure(z, pivots)
    torch.testing.assert_close(structure.gamma(), gamma)
    expected = paper.row_norm(gamma) @ paper.row_norm(gamma.T) @ z
    torch.testing.assert_close(structure.propagate(z), expected)
    blocks = PivotStructure(structure.q, structure.k).propagate_in_blocks(z, 7)
    torch.testing.assert_close(blocks, expected)


def test_the_terms_of_the_objective_are_those_of_equations_13_to_18():
    alpha, x = draw(7, 5).clamp(0.05, 0.95).requires_grad_(), draw(5, 3, seed=1)
    b = alpha.detach().round()
    found = objective.prior_reward(b, x, all_signs(5), OBJECTIVE)
    torch.testing.assert_close(found, paper.reward(b, x))
    torch.testing.assert_close(objective.entropy_loss(alpha), paper.entropy_loss(alpha))
    generators = [torch.Generator().manual_seed(2) for _ in range(2)]
    found = objective.prior_loss(alpha, x, OBJECTIVE, generators[0])
    expected = paper.prior_loss(alpha, x, generators[1])
    torch.testing.assert_close(found, expected)
    both = [torch.autograd.grad(loss, alpha)[0] for loss in (found, expected)]
    torch.testing.assert_close(*both)


def test_a_training_step_has_the_loss_and_the_gradients_of_algorithm_2(shared):
    learner = StructureLearner(LEARNER, seed=1)
    theta = torch.optim.Adam(learner.parameters(), lr=paper.STEP_THETA)
    config = PaperConfig(**shared)
    task = PaperTask(graph_of(SOURCES[0]), learner, config, theta=theta, objective=OBJECTIVE)
    plain = problem_of(task)
    ways = [p.detach().clone().requires_grad_() for p in theta_of(learner)]
    expected, logits = paper.one_pass(plain, ways, True)
    torch.testing.assert_close(task.logits(), logits.detach())
    expected.backward()
    loss, _ = task.train_step()
    torch.testing.assert_close(loss, expected.detach())
    for found, way in zip(theta_of(learner), ways, strict=True):
        torch.testing.assert_close(found.grad, way.grad)
    for found, w in zip(
        [*task.gnn.weights, *task.gnn.biases], plain.w[::2] + plain.w[1::2], strict=True
    ):
        torch.testing.assert_close(found.grad, w.grad)


def test_pre_training_is_algorithm_2(shared):
    config = PretrainConfig(
        **shared, learner=LEARNER, objective=OBJECTIVE, learner_learning_rate=paper.STEP_THETA,
        episodes=2, epochs=6, patience=6,
    )  # fmt: skip
    graphs, history = [graph_of(data) for data in SOURCES], []
    theta = StructureLearner(LEARNER, seed=config.seed)
    seeds = [config.seed, config.seed + 1000]
    pairs = zip(graphs, seeds, strict=True)
    problems = [problem_of(PaperTask(g, theta, config, seed=seed)) for g, seed in pairs]
    made = pretrain_structure(graphs, config, on_epoch=history.append)
    expected, losses = paper.train_structure_learner(problems, theta_of(theta), 2, 6)
    assert [epoch.loss for epoch in history] == pytest.approx(losses)
    torch.testing.assert_close(theta_of(made), expected)


def test_a_transfer_is_algorithm_3(shared):
    learner, config = StructureLearner(LEARNER, seed=3), PaperConfig(**shared, epochs=12)
    graph = graph_of(SOURCES[0])
    plain = problem_of(PaperTask(graph, learner, config))
    task, history, _ = train_under(learner.requires_grad_(False), graph, config)
    assert {epoch.refinements for epoch in history} == ({2, 3} if config.tolerance else {3})
    losses = paper.train_target_gnn(plain, theta_of(learner), 12)
    assert [epoch.loss for epoch in history] == pytest.approx(losses)
    torch.testing.assert_close(
        task.logits(), paper.one_pass(plain, theta_of(learner), False)[1].detach()
    )
