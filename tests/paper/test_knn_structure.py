"""A structure of few neighbours against the masked Gamma, dense: values and every gradient."""

import pytest
import torch
from torch.nn import functional as F

from graphglow.errors import InputError
from graphglow.paper import PivotStructure, StructureLearner
from graphglow.paper.pivots import EPS, KNNStructure, propagate_over, similarity
from graphglow.settings import LearnerConfig


def factors(n=13, p=6, width=4, batch=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(*batch, n, width, generator=generator, dtype=torch.float64)
    k = torch.randn(*batch, p, width, generator=generator, dtype=torch.float64)
    v = torch.randn(*batch, n, 3, generator=generator, dtype=torch.float64)
    return v, F.normalize(q, dim=-1), F.normalize(k, dim=-1)


def knn(q, k, neighbours, threshold=0.0):
    return KNNStructure(q, k, threshold, "identity", 1, neighbours=neighbours)


def masked_gamma(q, k, neighbours, threshold=0.0):
    """Every row's largest entries, found one by one."""
    gamma = similarity(q, k, threshold=threshold)
    mask = torch.zeros_like(gamma)
    rows = gamma.detach().flatten(0, -2).tolist()
    for row, kept in zip(rows, mask.flatten(0, -2), strict=True):
        by_size = sorted(range(len(row)), key=row.__getitem__, reverse=True)
        kept[by_size[:neighbours]] = 1
    return gamma * mask


def test_gamma_by_hand():
    q = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    k = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    # cosines: [1, .8, 0], [.6, .96, .8], [-1, -.8, 0]
    one = torch.tensor([[1.0, 0, 0], [0, 0.96, 0], [0, 0, 0]])
    two = torch.tensor([[1.0, 0.8, 0], [0, 0.96, 0.8], [0, 0, 0]])
    torch.testing.assert_close(knn(q, k, 1).gamma(), one)
    torch.testing.assert_close(knn(q, k, 2).gamma(), two)
    torch.testing.assert_close(knn(q, k, 2, threshold=0.9).gamma(), (two > 0.9) * two)


def test_messages_by_hand():
    structure = knn(torch.eye(3)[[0, 0, 1]] + 0.0, torch.eye(3)[:2], 1)
    # nodes 0 and 1 share pivot 0, node 2 has pivot 1 for itself
    out = structure.propagate(torch.tensor([[2.0], [4.0], [7.0]]))
    assert out.tolist() == [[3.0], [3.0], [7.0]]


@pytest.mark.parametrize("neighbours", [6, 7, 1000])
@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_as_many_neighbours_as_pivots_is_the_truncated_similarity(neighbours, threshold):
    v, q, k = factors()
    whole = PivotStructure(q, k, threshold, "identity", 1)
    structure = knn(q, k, neighbours, threshold)
    torch.testing.assert_close(structure.gamma(), whole.gamma())
    torch.testing.assert_close(structure.propagate(v), whole.propagate(v))


@pytest.mark.parametrize("neighbours", [1, 2, 4, 6])
@pytest.mark.parametrize("threshold", [0.0, 0.3, None])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_values_and_gradients_are_those_of_the_masked_gamma(neighbours, threshold, batch):
    leaves = factors(batch=batch)
    if threshold is None:  # nothing is cut: similarities must be positive
        leaves = tuple(leaf.abs() for leaf in leaves)
    leaves = tuple(leaf.clone().requires_grad_() for leaf in leaves)
    v, q, k = leaves
    structure, gamma = knn(q, k, neighbours, threshold), masked_gamma(q, k, neighbours, threshold)
    torch.testing.assert_close(structure.gamma(), gamma)
    found, expected = structure.propagate(v), propagate_over(gamma, v)
    torch.testing.assert_close(found, expected)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(5)).double()
    for got, want in zip(
        torch.autograd.grad(found, leaves, direction),
        torch.autograd.grad(expected, leaves, direction),
        strict=True,
    ):
        assert (want != 0).any()
        torch.testing.assert_close(got, want)


def test_layers_share_one_gamma_and_their_gradients_add_up():
    v, q, k = factors()
    q = q.clone().requires_grad_()
    structure, gamma = knn(q, k, 2), masked_gamma(q, k, 2)
    found = structure.propagate(structure.propagate(v).relu())
    expected = propagate_over(gamma, propagate_over(gamma, v).relu())
    torch.testing.assert_close(
        *(torch.autograd.grad(out.square().sum(), q)[0] for out in (found, expected))
    )
    assert structure._dense_gamma is structure._dense_gamma


def test_at_most_k_pivots_per_node_and_always_the_same_among_equals():
    q = torch.ones(7, 3) / 3**0.5  # every pivot is as similar as any other
    k = q[:5].clone()
    first = knn(q, k, 2).gamma()
    assert ((first > 0).sum(1) == 2).all()
    for _ in range(3):
        assert torch.equal(first, knn(q, k, 2).gamma())


def test_a_node_without_neighbours_receives_zero_and_passes_finite_gradients():
    v, q, k = (leaf.clone() for leaf in factors())
    q[3] = 0
    k[2] = 0
    leaves = [leaf.requires_grad_() for leaf in (v, q, k)]
    out = knn(q, k, 2).propagate(v)
    assert (out[3] == 0).all()
    assert (out[4] != 0).any()
    for gradient in torch.autograd.grad(out.square().sum(), leaves):
        assert gradient.isfinite().all()


def test_sums_below_the_clamp_pass_no_gradient_as_in_the_dense_form():
    v, q, k = factors()
    leaves = [leaf.clone().requires_grad_() for leaf in (v, q * EPS / 50, k)]
    found = knn(*leaves[1:], 2).propagate(leaves[0])
    expected = propagate_over(masked_gamma(*leaves[1:], 2), leaves[0])
    torch.testing.assert_close(found, expected)
    for got, want in zip(
        torch.autograd.grad(found.sum(), leaves),
        torch.autograd.grad(expected.sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, want)


def test_rows_of_gamma_are_the_rows_of_the_whole():
    _, q, k = factors(batch=(2,))
    structure = knn(q, k, 2)
    assert torch.equal(structure.gamma(slice(3, 8)), structure.gamma()[:, 3:8])


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("similarity_name", ["cosine", "dot"])
def test_a_learner_with_neighbours_keeps_the_largest_of_its_gamma(weighted, similarity_name):
    shape = {"embedding_size": 4, "num_heads": 2 if weighted else 1, "weighted": weighted}
    config = LearnerConfig(**shape, similarity=similarity_name, neighbours=2)
    whole = LearnerConfig(**shape, similarity=similarity_name)
    z, pivots = factors()[1], torch.tensor([3, 1, 8, 12])
    few = StructureLearner(config, seed=1).double().structure(z, pivots)
    gamma = StructureLearner(whole, seed=1).double().structure(z, pivots).gamma()
    assert few.chosen_backend == "dense"
    assert ((few.gamma() > 0).sum(1) <= 2).all()
    largest = gamma.sort(descending=True).values[:, :2]
    torch.testing.assert_close(few.gamma().sort(descending=True).values[:, :2], largest)


@pytest.mark.parametrize("named", [{"backend": "dense"}, {"precision": "bfloat16"}])
def test_a_named_backend_or_precision_is_refused(named):
    learner = StructureLearner(LearnerConfig(embedding_size=4, neighbours=2))
    with pytest.raises(InputError, match="must have backend auto"):
        learner.structure(torch.ones(5, 4), torch.tensor([0, 1]), **named)


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_gpu_gives_the_same_to_rounding_and_the_same_bits_twice(batch):
    leaves = [leaf.float() for leaf in factors(n=700, p=150, width=32, batch=batch)]

    def run(device):
        v, q, k = on_device = [leaf.to(device).requires_grad_() for leaf in leaves]
        out = knn(q, k, 10).propagate(v)
        found = [out, *torch.autograd.grad(out.square().sum(), on_device)]
        return [tensor.detach().cpu() for tensor in found]

    first, second, on_cpu = run("cuda"), run("cuda"), run("cpu")
    for one, again, other in zip(first, second, on_cpu, strict=True):
        assert torch.equal(one, again)
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
