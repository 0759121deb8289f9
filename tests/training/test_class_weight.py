"""Classes that count alike, however rare they are."""

import pytest
import torch

from graphglow import InputError, TransferConfig, transfer
from graphglow.graph import training_graph
from graphglow.paper.objective import supervised_loss
from graphglow.training.task import accuracy, balancing
from tiny_graphs import small_data


def uneven():
    """Nine in ten training and validation nodes of the rare class lose their label."""
    data = small_data(num_nodes=240, noise=2.5, homophily=0.5)
    rare = (data.y == 0).nonzero()[:, 0]
    for mask in (data.train_mask, data.val_mask):
        mask[rare[mask[rare]][3:]] = False
    return data


def test_each_class_counts_alike():
    labels = torch.tensor([0, 0, 0, 2])
    weight = balancing(labels)
    torch.testing.assert_close(weight, torch.tensor([2 / 3, 2 / 3, 2 / 3, 2]))
    logits, nodes = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    by_class = torch.tensor([2 / 3, 1.0, 2.0])
    torch.testing.assert_close(
        supervised_loss(logits, nodes, labels, weight),
        torch.nn.functional.cross_entropy(logits, labels, by_class),
    )
    always_0 = torch.eye(3)[torch.zeros(4, dtype=torch.int64)]
    assert float(accuracy(always_0, nodes, labels, weight)) == pytest.approx(0.5)
    assert torch.equal(balancing(torch.tensor([1, 0, 1, 0])), torch.ones(4))


def test_a_rare_class_is_found_more_often():
    data = uneven()
    hits = {}
    for kind in ("none", "balanced"):
        found = transfer(data, epochs=40, hidden=16, class_weight=kind)
        rare = (data.y == 0) & ~data.train_mask & ~data.val_mask
        hits[kind] = float((found.predict()[rare] == 0).double().mean())
        assert found.config.class_weight == kind
    assert hits["balanced"] > hits["none"] + 0.1


def test_even_classes_are_the_same_either_way():
    data = small_data(num_nodes=90)
    for mask in (data.train_mask, data.val_mask):
        fewest = int(data.y[mask].bincount().min())
        for label in range(3):
            mask[(mask & (data.y == label)).nonzero()[fewest:, 0]] = False
    one, other = (
        transfer(data, epochs=3, hidden=8, class_weight=kind) for kind in ("none", "balanced")
    )
    torch.testing.assert_close(one.predict_proba(), other.predict_proba())
    assert len(training_graph(data).val)


def test_another_weight_is_refused():
    with pytest.raises(InputError, match="class_weight must be one of none, balanced; got 'auto'"):
        TransferConfig(class_weight="auto")
