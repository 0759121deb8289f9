"""Python takes what the command line takes: names, paths, objects, and settings by name."""

import pytest

import graphglow
from tiny_graphs import small_data

DRAWN = "wine has no split of its own: 89 training, 44 validation and 45 test nodes are drawn"


def test_a_name_and_settings_will_do():
    with pytest.warns(graphglow.InputWarning, match=DRAWN):
        result = graphglow.transfer("wine", epochs=2, hidden=8, device="cpu")
    assert (result.config.epochs, result.config.hidden) == (2, 8)
    assert result.data.split == "random seed 0"


def test_settings_go_before_those_of_a_config():
    data = small_data()
    config = graphglow.PaperConfig(epochs=9, num_pivots=8, device="cpu")
    assert graphglow.transfer(data, "paper", config, epochs=2).config.epochs == 2
    assert graphglow.fit("mlp", data, epochs=2, device="cpu").config.epochs == 2
    made = graphglow.pretrain([data], config=None, kind="paper", epochs=1, episodes=1, device="cpu")
    assert made.provenance["config"]["epochs"] == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda data: graphglow.transfer(data, epoch=3),
        lambda data: graphglow.fit("gcn", data, epoch=3),
        lambda data: graphglow.pretrain([data], kind="paper", epoch=3),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(use):
    with pytest.raises(graphglow.InputError, match=r"'epoch' \(nearest: epochs\)"):
        use(small_data())


def test_what_is_no_graph_is_one_sentence():
    for stranger in (None, 3, {"x": 1}):
        with pytest.raises(graphglow.InputError, match=r"is no graph\. Give a name, a path"):
            graphglow.transfer(stranger)
    with pytest.raises(graphglow.InputError, match="needs a list of source graphs; got a single"):
        graphglow.pretrain("wine")
    for strangers in ([], ["corra"], [None], small_data()):
        with pytest.raises(graphglow.InputError):
            graphglow.pretrain(strangers, kind="paper")
