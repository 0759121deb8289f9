"""The structure learner against Eq. 9 as the paper writes it, head by head."""

import pytest
import torch
from torch.nn import functional as F

from graphglow.paper.learner import AFFINE_MARGIN, StructureLearner, unit_heads
from tiny_graphs import learner as learner_of

SIMILARITIES = ["cosine", "dot", "rbf", "attention"]


def config(**changes):
    return learner_of(**({"num_heads": 3} | changes)).config


VARIANTS = {
    **{s: config(similarity=s) for s in SIMILARITIES},
    **{f"{s} tied": config(similarity=s, tied=True) for s in SIMILARITIES},
    "affine": config(delta="affine"),
    "cosine cut at 0.2": config(threshold=0.2),
    "rbf cut at 0.2": config(similarity="rbf", threshold=0.2),
}


def embeddings(n=11, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator, dtype=torch.float64)


def literal_similarity(learner, z_u, z_p):
    """s(w1_h, w2_h; z_u, z_p), averaged over the heads."""
    w1 = learner.node_weight
    w2 = w1 if learner.pivot_weight is None else learner.pivot_weight
    total = 0.0
    for head in range(learner.config.num_heads):
        if learner.config.similarity == "cosine":
            value = F.cosine_similarity(w1[head] * z_u, w2[head] * z_p, dim=0)
        elif learner.config.similarity == "dot":
            value = (w1[head] * z_u) @ (w2[head] * z_p) / len(z_u)
        elif learner.config.similarity == "rbf":
            a, b = w1[head] * z_u / z_u.norm(), w2[head] * z_p / z_p.norm()
            value = torch.exp(-(a - b).square().sum() / 2)
        else:
            unit_u, unit_p = (z / z.norm() * len(z) ** 0.5 for z in (z_u, z_p))
            query, key = w1[head].T @ unit_u, w2[head].T @ unit_p
            value = torch.sigmoid(query @ key / len(query) ** 0.5)
        total = total + value / learner.config.num_heads
    return total


def literal_gamma(learner, z, pivots):
    rows = []
    for z_u in z:
        values = torch.stack([literal_similarity(learner, z_u, z[p]) for p in pivots.tolist()])
        if learner.config.delta == "affine":
            values = (1 + AFFINE_MARGIN + values) / 2
        else:
            values = torch.where(values > learner.config.threshold, values, 0.0)
        rows.append(values)
    return torch.stack(rows)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gamma_equals_equation_9(variant):
    learner = StructureLearner(VARIANTS[variant], seed=1).double()
    z, pivots = embeddings(), torch.tensor([4, 0, 9, 7])
    gamma = learner.structure(z, pivots).gamma()
    assert gamma.shape == (11, 4)
    assert gamma.unique().numel() > 4
    torch.testing.assert_close(gamma, literal_gamma(learner, z, pivots))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_tied_learners_compare_nodes_symmetrically(similarity):
    everyone, z = torch.arange(11), embeddings()
    tied = StructureLearner(config(similarity=similarity, tied=True), seed=2).double()
    assert tied.pivot_weight is None
    assert sum(p.numel() for p in tied.parameters()) == tied.node_weight.numel()
    gamma = tied.structure(z, everyone).gamma()
    torch.testing.assert_close(gamma, gamma.T)


@pytest.mark.parametrize("variant", VARIANTS)
def test_relabelling_the_nodes_relabels_the_result(variant):
    learner = StructureLearner(VARIANTS[variant], seed=4).double()
    z, v, pivots = embeddings(), embeddings(width=2, seed=5), torch.tensor([4, 0, 9])
    order = torch.randperm(11, generator=torch.Generator().manual_seed(6))
    new_index = order.argsort()  # where each old node went
    before = learner.structure(z, pivots).propagate(v)
    after = learner.structure(z[order], new_index[pivots]).propagate(v[order])
    torch.testing.assert_close(after, before[order])
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_weight_receives_a_gradient(variant):
    learner = StructureLearner(VARIANTS[variant], seed=4).double()
    out = learner.structure(embeddings(), torch.tensor([4, 0, 9])).propagate(
        embeddings(width=2, seed=5)
    )
    out.square().sum().backward()
    assert all((p.grad != 0).any() for p in learner.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_zero_embedding_gives_finite_values_and_gradients(variant):
    learner = StructureLearner(VARIANTS[variant], seed=4)
    z = embeddings().float()
    z[2] = 0
    z.requires_grad_()
    out = learner.structure(z, torch.tensor([2, 5])).propagate(torch.ones(11, 2))
    out.square().sum().backward()
    assert out.isfinite().all()
    assert z.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in learner.parameters())


@pytest.mark.parametrize("delta", ["truncate", "affine"])
def test_messages_are_averages_even_for_nodes_opposite_to_every_pivot(delta):
    scales = torch.tensor([[1.0], [-1.0], [-2.0], [-0.3]])
    settings = config(embedding_size=3, num_heads=2, tied=True, delta=delta)
    outs = []
    for seed in range(8):
        learner, z = StructureLearner(settings, seed=seed), embeddings(1, 3, seed=seed).float()
        with torch.no_grad():
            structure = learner.structure(z * scales, torch.tensor([0]))
            outs.append(structure.propagate(torch.ones(4, 1)))
    found = torch.cat(outs)
    assert found.min() >= -1e-5  # an average of ones, or zero
    assert found.max() <= 1 + 1e-5


@pytest.mark.parametrize("variant", ["cosine", "attention tied"])
def test_the_seed_decides_the_initial_weights(variant):
    def weights(seed):
        return torch.cat(
            [p.flatten() for p in StructureLearner(VARIANTS[variant], seed=seed).parameters()]
        )

    torch.manual_seed(0)
    first = weights(7)
    torch.manual_seed(1)
    assert torch.equal(first, weights(7))
    assert not torch.equal(first, weights(8))


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_theta_and_a_gnn_of_the_same_seed_draw_from_different_streams(seed):
    """A normal draw is a function of the uniform ones that it is made of."""
    theta = StructureLearner(config(), seed=seed).node_weight
    of_the_gnn = torch.randn(theta.shape, generator=torch.Generator().manual_seed(seed))
    assert (theta - of_the_gnn).abs().min() > 1e-5


def test_attention_with_more_heads_than_width_keeps_one_number_per_head():
    learner = StructureLearner(config(similarity="attention", embedding_size=2, num_heads=5))
    assert learner.structure(torch.ones(4, 2), torch.tensor([0, 1])).gamma().shape == (4, 2)


def test_unit_heads_have_finite_second_order_and_no_gradient_at_zero():
    z, weight = embeddings().requires_grad_(), embeddings(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(unit_heads, (z, weight))
    zero = torch.zeros(2, 6, requires_grad=True)
    unit_heads(zero, weight).sum().backward()
    assert (zero.grad == 0).all()
