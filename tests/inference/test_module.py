"""A result as a module: the same scores, gradients, and PyG's own explainer on it."""

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig

from graphglow.errors import InputError
from graphglow.gnn import BACKBONES
from graphglow.settings import TransferConfig
from graphglow.transfer import transfer
from tiny_graphs import learner, small_data, transfer_config

ABLE = ("appnp", "gcn", "gcnii", "gpr")


@pytest.fixture(scope="module", params=[0.5, 0.0])
def result(request):
    config = TransferConfig(epochs=8, hidden=8, input_weight=request.param, device="cpu")
    return transfer(small_data(num_nodes=120), config=config)


@pytest.mark.parametrize("backbone", ABLE)
@pytest.mark.parametrize("paper", [False, True])
def test_a_module_gives_the_scores_of_the_result(backbone, paper):
    data = small_data()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[3], [3]])], 1)  # a loop is none
    settings = {"epochs": 2, "backbone": backbone, "device": "cpu"}
    made = transfer(data, hidden=8, **settings)
    if paper:
        made = transfer(data, learner(), transfer_config(**settings))
    found = made.module()(made.data.x, made.data.edge_index)
    torch.testing.assert_close(found, made.logits, atol=1e-4, rtol=1e-4)


def test_features_and_edges_have_gradients(result):
    data, module = result.data, result.module()
    x = data.x.clone().requires_grad_()
    weight = torch.ones(data.edge_index.shape[1], requires_grad=True)
    module(x, data.edge_index, weight)[0].sum().backward()
    assert bool(x.grad.any())
    read = result.config.input_weight > 0
    assert bool(weight.grad.any()) == read
    scores = module(data.x, data.edge_index[:, :0])
    assert torch.allclose(scores, result.logits, atol=1e-4) != read


def test_an_explainer_of_pyg_takes_it(result):
    data = result.data
    explainer = Explainer(
        result.module(),
        algorithm=GNNExplainer(epochs=5),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=ModelConfig("multiclass_classification", "node", "raw"),
    )
    why = explainer(data.x, data.edge_index, index=7)
    assert why.node_mask.shape == data.x.shape
    assert why.edge_mask.shape == (data.edge_index.shape[1],)
    assert bool(why.edge_mask.any()) == (result.config.input_weight > 0)
    torch.testing.assert_close(why.prediction, result.logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backbone", sorted({*BACKBONES} - {*ABLE}))
def test_others_are_refused(backbone):
    made = transfer(small_data(), epochs=1, backbone=backbone, hidden=8, device="cpu")
    with pytest.raises(InputError, match=f"adjacency alone, as gcn .*{backbone}, which asks"):
        made.module()


def test_other_nodes_are_refused(result):
    module, x, edges = result.module(), result.data.x, result.data.edge_index
    for given in ((x[:5], edges), (x[:, :3], edges), (x, torch.tensor([[0], [len(x)]]))):
        with pytest.raises(
            InputError, match=r"needs the nodes and columns of training, x \(120, 8"
        ):
            module(*given)
