"""The inner loop: when it stops, what it mixes, and that node names do not matter."""

import itertools

import pytest
import torch

from graphglow.gnn import MixedPropagation, build_gnn, stack
from graphglow.paper import BlendedStructure
from graphglow.paper.algorithms import last_refinement
from tiny_graphs import WIDTH, float64, learner, relabelled, small_data, transfer_config

PIVOTS = torch.tensor([3, 0, 17, 9, 30])


def gnn(graph, config, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return build_gnn(config, graph, WIDTH, generator).double()


def steps(config, data=None, *, wait=True):
    graph, runs = float64(data or small_data()), Runs.of([config])
    model, theta = gnn(graph, config), learner().double()
    with torch.no_grad():
        found = list(refine(model, theta, graph, PIVOTS, runs, None, wait=wait))
    return found, graph


@pytest.mark.parametrize("refinements", [1, 2, 7])
def test_without_tolerance_the_whole_budget_is_run(refinements):
    found, _ = steps(transfer_config(refinements=refinements, tolerance=0.0))
    assert len(found) == refinements


def test_every_step_infers_its_structure_from_the_embeddings_before_it():
    config = transfer_config(refinements=3, input_weight=0.4)
    found, graph = steps(config)
    model, theta = gnn(graph, config), learner().double()
    with torch.no_grad():
        z = model.encode(graph, None).z0
        for step in found:
            torch.testing.assert_close(step.z, z)
            structure = theta.structure(z, PIVOTS)
            torch.testing.assert_close(step.structure.gamma(), structure.gamma())
            mix = MixedPropagation(graph.adj, structure, 0.4)
            z, logits = model(model.encode(graph, None), mix, None)
            torch.testing.assert_close(step.logits, logits)


def test_refining_stops_once_the_embeddings_settle():
    full, _ = steps(transfer_config(refinements=12, tolerance=0.0))
    z = [step.z for step in full]
    change = [float((b - a).square().sum() / a.square().sum()) for a, b in itertools.pairwise(z)]
    stop = 4
    assert change[stop] < min(change[:stop])
    tolerance = (change[stop] + min(change[:stop])) / 2
    found, _ = steps(transfer_config(refinements=12, tolerance=tolerance))
    assert len(found) == stop + 1
    torch.testing.assert_close(found[-1].logits, full[stop].logits)


def test_a_large_tolerance_leaves_one_step():
    found, _ = steps(transfer_config(refinements=12, tolerance=1e9))
    assert len(found) == 1


def test_momentum_one_is_off():
    found, _ = steps(transfer_config(refinements=3, structure_momentum=1.0))
    assert all(step.latent is step.structure for step in found)


@pytest.mark.parametrize("eta", [0.0, 0.6])
def test_momentum_mixes_with_the_first_structure(eta):
    found, graph = steps(transfer_config(refinements=4, structure_momentum=eta))
    v = torch.eye(graph.num_nodes, dtype=torch.float64)
    first = found[0].structure
    assert found[0].latent is first
    for step in found[1:]:
        assert isinstance(step.latent, BlendedStructure)
        expected = eta * step.structure.propagate(v) + (1 - eta) * first.propagate(v)
        torch.testing.assert_close(step.latent.propagate(v), expected)
    plain, _ = steps(transfer_config(refinements=4, structure_momentum=1.0))
    torch.testing.assert_close(plain[0].logits, found[0].logits)
    assert not torch.allclose(plain[-1].logits, found[-1].logits)


def test_momentum_zero_keeps_the_first_structure():
    found, _ = steps(transfer_config(refinements=4, structure_momentum=0.0))
    torch.testing.assert_close(found[-1].logits, found[0].logits)


def test_without_a_learner_there_is_one_step_on_the_input_graph():
    config, graph = transfer_config(refinements=5, input_weight=0.1), float64(small_data())
    model = gnn(graph, config)
    (only,) = refine(model, None, graph, PIVOTS, Runs.of([config]), None, wait=True)
    assert only.structure is None
    assert only.latent is None
    plain = MixedPropagation(graph.adj, None, 1.0)
    torch.testing.assert_close(only.logits, model(model.encode(graph, None), plain, None)[1])


@pytest.mark.parametrize("changes", [{}, {"delta": "affine"}, {"similarity": "rbf"}])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3])
@pytest.mark.parametrize("backend", ["auto", "chunked"])
def test_relabelling_the_nodes_relabels_a_whole_pass(changes, tolerance, backend):
    config = transfer_config(
        refinements=4, tolerance=tolerance, structure_momentum=0.7, backend=backend, num_layers=3
    )
    data = small_data()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    graph, moved = float64(data), float64(relabelled(data, order))
    model, theta = gnn(graph, config), learner(**changes).double()
    runs = Runs.of([config])
    before = last_refinement(model, theta, graph, PIVOTS, runs, wait=True)
    after = last_refinement(model, theta, moved, order.argsort()[PIVOTS], runs, wait=True)
    torch.testing.assert_close(after.logits, before.logits[order])
    torch.testing.assert_close(after.structure.gamma(), before.structure.gamma()[order])
    assert not torch.allclose(after.logits, before.logits)


def test_the_last_refinement_is_the_last_step_without_gradients():
    config = transfer_config(refinements=4)
    found, graph = steps(config)
    runs = Runs.of([config])
    model, theta = gnn(graph, config), learner().double()
    final = last_refinement(model, theta, graph, PIVOTS, runs, wait=True)
    assert torch.equal(final.logits, found[-1].logits)
    assert not final.logits.requires_grad


def test_a_named_backend_that_cannot_do_it_is_refused():
    with pytest.raises(ValueError, match="linear"):
        steps(transfer_config(backend="linear"))


def tolerance_for(full, stop):
    """One under which the pass ``full`` settles after step ``stop`` (counted from 1)."""
    z = [step.z for step in full]
    change = [float((b - a).square().sum() / a.square().sum()) for a, b in itertools.pairwise(z)]
    assert change[stop - 1] < min(change[: stop - 1], default=1e9)
    return (change[stop - 1] + min(change[: stop - 1], default=2 * change[0])) / 2


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_without_waiting_the_steps_after_settling_are_made_and_marked(stop):
    full, _ = steps(transfer_config(refinements=8, tolerance=0.0))
    config = transfer_config(refinements=8, tolerance=tolerance_for(full, stop))
    waited, graph = steps(config)
    found, _ = steps(config, wait=False)
    assert len(waited) == stop
    assert len(found) == len(full) == 8
    assert found[0].active is None  # the first step counts in every run
    assert [bool(step.active) for step in found[1:]] == [t < stop for t in range(1, 8)]
    for one, other in zip(found, full, strict=True):
        assert torch.equal(one.logits, other.logits)
    model, theta, runs = gnn(graph, config), learner().double(), Runs.of([config])
    final, again = (
        last_refinement(model, theta, graph, PIVOTS, runs, wait=wait) for wait in (True, False)
    )
    assert torch.equal(final.logits, waited[-1].logits)
    assert torch.equal(again.logits, waited[-1].logits)
    assert not torch.allclose(full[-1].logits, waited[-1].logits)


def test_a_run_that_has_settled_stays_so(monkeypatch):
    """Also where its embeddings would move again in a step that others of its batch need."""
    changes = iter([1.0, 0.0, 1.0, 1.0])

    def change(z, z_next):
        return torch.tensor([next(changes), 1.0])

    monkeypatch.setattr("graphglow.training.refine.squared_change", change)
    found, _ = steps(transfer_config(refinements=5, tolerance=0.1), wait=False)
    assert [step.active is None or bool(step.active) for step in found] == [True] * 2 + [False] * 3


def test_without_tolerance_every_step_counts():
    for wait in (True, False):
        found, _ = steps(transfer_config(refinements=4, tolerance=0.0), wait=wait)
        assert [step.active for step in found] == [None] * 4


@pytest.mark.parametrize("wait", [True, False])
def test_each_run_of_a_batch_settles_where_it_does_alone(wait):
    config = transfer_config(refinements=8, tolerance=0.004, structure_momentum=0.8)
    graph, theta = float64(small_data()), learner().double()
    models = [gnn(graph, config, seed=seed) for seed in range(4)]
    orders = [torch.randperm(40, generator=torch.Generator().manual_seed(s)) for s in range(4)]
    pivots = torch.stack(orders)[:, :5]
    runs = Runs.of([config] * 4)
    batch = list(refine(stack(models), theta, graph, pivots, runs, None, wait=wait))
    last = last_refinement(stack(models), theta, graph, pivots, runs, wait=wait)
    counts = []
    for run, model in enumerate(models):
        only = Runs.of([config])
        alone = list(refine(model, theta, graph, pivots[run], only, None, wait=True))
        counts.append(len(alone))
        active = [step.active is None or bool(step.active[run]) for step in batch]
        assert active == [t < len(alone) for t in range(len(batch))]
        for together, single in zip(batch, alone, strict=False):
            torch.testing.assert_close(together.z[run], single.z)
            torch.testing.assert_close(together.logits[run], single.logits)
            torch.testing.assert_close(together.structure.gamma()[run], single.structure.gamma())
        torch.testing.assert_close(last.logits[run], alone[-1].logits)
    assert len(batch) == (max(counts) if wait else 8)
    assert len(set(counts)) > 1
    assert max(counts) < 8
