"""New nodes under a frozen prediction: what is exact, what is near, what is refused, files."""

import pytest
import torch
from torch_geometric.data import Data

from graphglow.errors import InputError
from graphglow.evidence import insertion
from graphglow.evidence.insertion import FrozenGraph, insert, load_state, save_state
from graphglow.evidence.learner import EvidenceLearner
from graphglow.evidence.pair_features import FIRST_CHANNELS
from graphglow.evidence.predictor import vote_inputs
from graphglow.evidence.views import FIRST
from graphglow.storage import load_tensors, save_tensors

NODES, ALONE = 260, 12
"""Of the small graphs: all, and the last ones, which have no edge."""


def graph(kind="numbers", nodes=NODES, seed=0, classes=3, degree=6, strength=0.8):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (nodes,), generator=g)
    here = torch.randint(nodes - ALONE, (nodes * degree // 2,), generator=g)
    there = torch.randint(nodes - ALONE, (30, len(here)), generator=g)
    same = (y[there] == y[here]).int().argmax(0)  # the first of one class
    random = torch.rand(len(here), generator=g) < 0.25
    there = there[torch.where(random, 0, same), torch.arange(len(here))]
    x = torch.randn(nodes, 20, generator=g) + strength * torch.randn(classes, 20, generator=g)[y]
    if kind == "wide":
        x = x @ torch.randn(20, 230, generator=g) + torch.randn(nodes, 230, generator=g)
    if kind in ("words", "sparse"):
        likely = 0.03 + 0.12 * (torch.arange(240) % classes == y[:, None])
        x = (torch.rand(nodes, 240, generator=g) < likely).float()
    data = Data(
        x=x.to_sparse() if kind == "sparse" else x,
        y=y,
        edge_index=torch.stack([here, there]),
        train_mask=torch.rand(nodes, generator=g) < 0.2,
    )
    if kind == "weighted":
        data.edge_weight = 0.5 + torch.rand(len(here), generator=g)
    if kind == "no features":
        del data.x
    if kind == "no edges":
        data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    return data


KINDS = ("numbers", "wide", "words", "sparse", "weighted", "no features", "no edges")


def frozen_of(data):
    return FrozenGraph(EvidenceLearner.untrained().refine(data))


@pytest.fixture(scope="module", params=KINDS)
def stored(request):
    data = graph(request.param)
    return data, frozen_of(data)


@pytest.fixture(scope="module")
def plain():
    data = graph()
    return data, frozen_of(data)


def features_of(data, nodes):
    if data.x is None:
        return torch.empty(len(nodes), 0)
    return data.x.index_select(0, torch.as_tensor(nodes))


def copies(data, nodes):
    """Features, edges and weights of nodes that copy some."""
    both = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    weight = data.get("edge_weight")
    weight = None if weight is None else weight.repeat(2)
    which = [((both[0] == u) & (both[1] != u)).nonzero()[:, 0] for u in nodes]
    ends = [torch.stack([torch.full_like(w, NODES + i), both[1, w]]) for i, w in enumerate(which)]
    edges = torch.cat(ends, 1)
    return features_of(data, nodes), edges, None if weight is None else weight[torch.cat(which)]


def unlabelled(data, count, start=0, stop=NODES):
    nodes = (~data.train_mask[start:stop]).nonzero()[:, 0] + start
    return nodes[:: max(1, len(nodes) // count)][:count].tolist()


def test_a_node_without_edges_is_as_an_old_one_of_the_same_features(stored):
    data, frozen = stored
    nodes = unlabelled(data, ALONE, NODES - ALONE)
    found = insert(frozen, *copies(data, nodes))
    if data.x is None:  # nothing is known of it
        assert torch.equal(found, found[:1].expand_as(found))
    else:
        assert torch.equal(found, frozen.refined.probabilities[nodes])


def test_a_copy_of_an_unlabelled_node_is_as_that_node(stored):
    data, frozen = stored
    nodes = unlabelled(data, 40, stop=NODES - ALONE)
    found = insert(frozen, *copies(data, nodes))
    assert torch.equal(found, frozen.refined.probabilities[nodes])


def test_the_formulas_are_those_of_old_nodes(stored, monkeypatch):
    """A copy that is not looked up is near what it copies, which is now near to it as well."""
    monkeypatch.setattr(insertion, "SAME", -1.0)
    data, frozen = stored
    nodes = unlabelled(data, 40, stop=NODES - ALONE)
    made = insertion._Insertion(frozen, *insertion._checked(frozen.graph, *copies(data, nodes)))
    found, old = made.probabilities(), frozen.refined.probabilities[nodes]
    for name in FIRST:
        torch.testing.assert_close(
            made.views[name], frozen.known.views[name][nodes], atol=1e-5, rtol=0
        )
    for name in set(FIRST_CHANNELS) - {"community"}:
        new, before = (c[name].probabilities for c in (made.channels, frozen.known.channels))
        torch.testing.assert_close(new, before[nodes], atol=1e-4, rtol=0)
    apart = float((found - old).abs().amax(1).mean())
    assert apart < (0.01 if data.x is not None else 0.05)


def test_nodes_that_are_not_joined_are_answered_alone_as_in_company(plain):
    _, frozen = plain
    g = torch.Generator().manual_seed(3)
    x, ends = torch.randn(6, 20, generator=g), torch.randint(NODES, (6, 4), generator=g)
    edges = [torch.stack([end, torch.full_like(end, NODES + i)]) for i, end in enumerate(ends)]
    together = insert(frozen, x, torch.cat(edges, 1))
    for i, own in enumerate(edges):
        own = torch.stack([own[0], torch.full_like(own[1], NODES)])
        torch.testing.assert_close(insert(frozen, x[i : i + 1], own)[0], together[i])


def held_out(seed, nodes=600):
    """A graph, predicted as a whole and without a tenth of its nodes, which come later."""
    data = graph("words" if seed % 2 else "numbers", nodes, seed, 4, 10, strength=0.3)
    g = torch.Generator().manual_seed(seed)
    new = torch.rand(nodes, generator=g) < 0.1
    data.train_mask = (torch.rand(nodes, generator=g) < 0.15) & ~new
    order = torch.cat([(~new).nonzero()[:, 0], new.nonzero()[:, 0]])
    edges = order.argsort()[data.edge_index]
    count = int((~new).sum())
    inside = (edges < count).all(0)
    old = order[:count]
    part = Data(
        x=data.x[old], y=data.y[old], train_mask=data.train_mask[old], edge_index=edges[:, inside]
    )
    return data, part, order[count:], edges[:, ~inside]


def test_accuracy_is_near_that_of_the_whole_graph():
    right = []
    for seed in range(4):
        data, part, new, edges = held_out(seed)
        whole = EvidenceLearner.untrained().refine(data).probabilities[new]
        frozen = frozen_of(part)
        late = insert(frozen, data.x[new], edges)
        count = part.num_nodes
        single = []
        for i in range(0, len(new), 4):
            own = edges[:, (edges == count + i).any(0) & ((edges >= count).sum(0) == 1)]
            own = torch.where(own >= count, count, own)
            single.append(insert(frozen, data.x[new[i : i + 1]], own))
        some = (torch.cat(single).argmax(1) == late[::4].argmax(1)).float().mean()
        assert float(some) > 0.8  # edges between new nodes are what differs
        right.append([float((p.argmax(1) == data.y[new]).float().mean()) for p in (whole, late)])
    whole, late = torch.tensor(right).mean(0).tolist()
    assert whole > 0.6
    assert late > whole - 0.02


def test_a_file_gives_the_same_numbers(stored, tmp_path):
    data, frozen = stored
    path = tmp_path / "prediction.safetensors"
    save_state(path, frozen.refined, {"order": torch.arange(3)}, {"name": "a graph"})
    other, more, facts = load_state(path)
    loaded = FrozenGraph(other)
    assert torch.equal(more["order"], torch.arange(3))
    assert facts == {"name": "a graph"}
    given = copies(data, unlabelled(data, 5))
    torch.testing.assert_close(insert(loaded, *given), insert(frozen, *given), atol=1e-5, rtol=1e-4)
    one = frozen.refined
    assert torch.equal(one.edge_index, other.edge_index)
    assert torch.equal(one.edge_weight, other.edge_weight)
    assert torch.equal(one.probabilities, other.probabilities)
    nodes = torch.arange(NODES)
    read = [vote_inputs(graph.known, "predictor", nodes) for graph in (one, other)]
    for before, after in zip(*read, strict=True):
        torch.testing.assert_close(before, after)
    save_state(tmp_path / "again.safetensors", other, more, facts)
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_new_edges_on_any_graph(stored):
    data, frozen = stored
    x = features_of(data, [0, 1, 2])
    edges = torch.tensor([[NODES, NODES, 7, NODES + 1], [3, NODES + 1, NODES + 1, NODES + 2]])
    found = insert(frozen, x, edges, torch.tensor([1.0, 2, 3, 4]))
    torch.testing.assert_close(found.sum(1), torch.ones(3))
    assert bool((found > 0).all())


def test_many_that_are_joined_to_each_other(plain):
    _, frozen = plain
    g = torch.Generator().manual_seed(0)
    count = 80
    inside = NODES + torch.randint(count, (2, 200), generator=g)
    outside = torch.stack([torch.arange(40) + NODES, torch.randint(NODES, (40,), generator=g)])
    found = insert(frozen, torch.randn(count, 20, generator=g), torch.cat([inside, outside], 1))
    assert found.shape == (count, 3)
    torch.testing.assert_close(found.sum(1), torch.ones(count))


def test_weights_directions_and_repeats_of_edges(plain):
    data, frozen = plain
    x, edges = data.x[:1], torch.tensor([[NODES, NODES, 5], [5, 9, NODES]])
    once = insert(frozen, x, torch.tensor([[5, 9], [NODES, NODES]]))
    torch.testing.assert_close(insert(frozen, x, edges), once)
    torch.testing.assert_close(insert(frozen, x, edges, torch.tensor([1.0, 1, 0.5])), once)
    nothing = insert(frozen, x, edges, torch.zeros(3))
    torch.testing.assert_close(nothing, insert(frozen, x))
    loop = torch.tensor([[NODES], [NODES]])
    torch.testing.assert_close(insert(frozen, x, loop), nothing)


def test_no_new_node_and_a_tiny_graph(plain):
    assert insert(plain[1], torch.empty(0, 20)).shape == (0, 3)
    data = Data(
        x=torch.eye(4, 3), y=torch.tensor([0, 1, 0, -1]), edge_index=torch.tensor([[0], [1]])
    )
    assert insert(frozen_of(data), torch.ones(2, 3)).shape == (2, 2)


def test_one_class_and_a_class_without_a_label(tmp_path):
    data = graph()
    data.train_mask &= data.y == 1
    frozen = frozen_of(data)
    assert torch.equal(insert(frozen, data.x[:2]), torch.tensor([[0.0, 1.0]]).expand(2, -1))
    save_state(tmp_path / "one.safetensors", frozen.refined)
    loaded = FrozenGraph(load_state(tmp_path / "one.safetensors")[0])
    assert torch.equal(insert(loaded, data.x[:2]), insert(frozen, data.x[:2]))
    data = graph()
    data.y[data.y == 1] = 3
    found = insert(frozen_of(data), data.x[:2])
    assert found.shape == (2, 4)
    assert bool((found[:, 1] == 0).all())


BAD = {
    "other columns": (torch.zeros(1, 19), None, None, "20 columns"),
    "not a table": (torch.zeros(20), None, None, "20 columns"),
    "no features": (None, torch.tensor([[0], [NODES]]), None, "20 columns"),
    "edges of old nodes": (torch.zeros(1, 20), torch.tensor([[0], [1]]), None, "new end"),
    "outside": (torch.zeros(1, 20), torch.tensor([[0], [NODES + 1]]), None, "must lie in"),
    "weights alone": (torch.zeros(1, 20), None, torch.ones(1), "come with edges"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_sentence(plain, name):
    *given, message = BAD[name]
    with pytest.raises(InputError, match=message) as error:
        insert(plain[1], *given)
    assert "\n" not in str(error.value)


def test_without_labels_there_is_nothing_to_answer():
    data = graph()
    del data.y
    with pytest.raises(InputError, match="labels"):
        frozen_of(data)


def test_old_and_foreign_files_are_refused(plain, tmp_path):
    path = tmp_path / "prediction.safetensors"
    EvidenceLearner.untrained().save(path)
    with pytest.raises(InputError, match="must be a graphglow prediction"):
        load_state(path)
    save_state(path, plain[1].refined)
    tensors, meta = load_tensors(path, "prediction")
    state = meta["state"]
    for changed in (state | {"version": 0}, None):
        save_tensors(path, "prediction", tensors, {"state": changed, "facts": {}})
        with pytest.raises(InputError, match="state version"):
            load_state(path)
    state["learner"]["evidence_version"] = 1
    save_tensors(path, "prediction", tensors, {"state": state, "facts": {}})
    with pytest.raises(InputError, match="evidence version"):
        load_state(path)
