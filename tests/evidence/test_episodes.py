"""Episodes and random graphs: of every kind, and reproducible."""

import torch

from graphglow.evidence.episodes import draw_episode, neighbourhood, random_graph


def test_random_graphs_are_whole_and_reproducible():
    for seed in range(12):
        a, b = (random_graph(torch.Generator().manual_seed(seed), 600) for _ in range(2))
        assert (a.x is None) == (b.x is None)
        assert a.x is None or torch.equal(a.x, b.x)
        assert torch.equal(a.edge_index, b.edge_index)
        assert 290 <= len(a.y) <= 600
        assert len(a.y.unique()) >= 2
        assert a.x is None or a.x.isfinite().all()
        assert a.edge_index.max() < len(a.y)


def test_episodes_vary_in_edges_features_and_labels():
    g = torch.Generator().manual_seed(0)
    source = random_graph(g, 400)
    source.y[:5] = -1
    episodes = [draw_episode(source, g, 300) for _ in range(60)]
    labels = {int(e.train_mask.sum()) for e in episodes}
    assert 0 in labels
    assert len(labels) > 5
    assert any(e.x is None for e in episodes)
    assert len({e.edge_index.shape[1] for e in episodes}) > 10
    for e in episodes:
        assert (e.truth[e.train_mask] >= 0).all()
        assert len(e.truth) <= 300
    assert any((e.y != e.truth)[e.train_mask].any() for e in episodes)  # wrong labels


def test_a_part_of_a_large_source_keeps_its_edges():
    g = torch.Generator().manual_seed(1)
    source = random_graph(g, 900)
    source.marker = None
    part = neighbourhood(source, g, 300)
    assert len(part.y) <= 300
    assert part.x.shape[0] == len(part.y)
    assert part.edge_index.max() < len(part.y)
