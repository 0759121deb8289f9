"""Pivots drawn with chances in proportion to their degree."""

import pytest
import torch

from graphglow.paper.algorithms import by_weight
from graphglow.pretrain import pretrain
from graphglow.transfer import transfer
from tiny_graphs import learner, pretrain_config, same_tensors, small_data, task, transfer_config

DATA = small_data()


def test_one_pivot_is_drawn_in_proportion_to_the_degree():
    made = task(transfer_config(num_pivots=1, pivots_by_degree=True), data=DATA)
    drawn = torch.cat([made._training_pivots() for _ in range(4000)])
    share = torch.bincount(drawn, minlength=40) / 4000
    chance = made.degree / made.degree.sum()
    assert ((share - chance).abs() < 4.5 * (chance * (1 - chance) / 4000).sqrt()).all()


def test_degrees_count_neighbours_and_the_node_itself():
    made = task(transfer_config(), data=DATA)
    ends = DATA.edge_index.unique(dim=1)
    assert made.degree.tolist() == (torch.bincount(ends[0], minlength=40) + 1).tolist()


def test_a_draw_without_repetition_has_the_chances_of_one_after_the_other():
    weight = torch.tensor([1.0, 2.0, 3.0])
    uniform = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0))
    first, second = by_weight(uniform, weight).topk(2).indices.unbind(1)
    chance = (3 / 6) * (2 / 3)  # node 2, then node 1 out of 0 and 1
    found = ((first == 2) & (second == 1)).float().mean()
    assert float(found) == pytest.approx(chance, abs=4.5 * (chance * (1 - chance) / 20000) ** 0.5)


def test_pivots_of_evaluation_are_drawn_so_too_and_stay():
    degrees = []
    for by_degree in (True, False):
        drawn = [
            task(transfer_config(seed=seed, pivots_by_degree=by_degree), data=DATA)
            for seed in range(60)
        ]
        degrees.append(torch.stack([made.degree[made.pivots] for made in drawn]).mean())
        assert all(len(made.pivots.unique()) == 10 for made in drawn)
    assert degrees[0] > 1.05 * degrees[1]


def test_batches_draw_as_their_runs_do_alone():
    configs = [transfer_config(seed=seed, pivots_by_degree=True) for seed in (0, 1)]
    batch = task(*configs, data=DATA)
    singles = [task(config, data=DATA) for config in configs]
    assert torch.equal(batch.pivots, torch.stack([single.pivots for single in singles]))
    drawn = batch._training_pivots()
    expected = torch.stack([single._training_pivots() for single in singles])
    assert torch.equal(drawn.sort().values, expected.sort().values)


def test_both_algorithms_take_it():
    runs = [transfer(DATA, learner(), transfer_config(pivots_by_degree=by)) for by in (True, False)]
    assert runs[0].history != runs[1].history
    thetas = [pretrain([DATA], pretrain_config(pivots_by_degree=by)) for by in (True, False)]
    assert not same_tensors(*thetas)
