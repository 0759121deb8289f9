"""Experiments are data: every cell is whole, and cells that ask for one run ask alike."""

from collections import Counter

import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.graph.perturb import PERTURBATIONS
from graphglow.lab import paper as numbers
from graphglow.lab.paper import CONTROLS, EVIDENCE, NAMES, OWN_LINES, WITH_SOURCES
from graphglow.lab.paper.cells import ABLATIONS, EXPERIMENTS, Cell, select_cells, split_of
from graphglow.lab.runs.config import ReproduceConfig, merged, run_of
from graphglow.lab.runs.rows import same_run
from graphglow.lab.settings import Settings
from graphglow.settings import PaperConfig, PretrainConfig

EVERY = pytest.mark.parametrize("name", EXPERIMENTS)
NONE, PLAIN = Settings(), ReproduceConfig()


def cells(name):
    return {cell.key: cell for cell in EXPERIMENTS[name]()}


def key_of(cell, seed=0, settings=NONE, config=PLAIN):
    return same_run(run_of(cell, seed, settings, config).facts())


@EVERY
def test_cells_are_whole(name):
    made = list(EXPERIMENTS[name]())
    assert len({cell.key for cell in made}) == len(made)
    for cell in made:
        assert cell.experiment == name
        assert cell.method in {*METHODS, *EVIDENCE, "graphglow"}
        assert cell.target in numbers.GRAPHS
        assert bool(cell.sources) == (cell.method in WITH_SOURCES)
        assert cell.target not in cell.sources
        assert cell.damage is None or cell.damage.kind in PERTURBATIONS
        assert key_of(cell) is not None  # its settings exist


@EVERY
def test_every_experiment_says_what_it_is(name):
    assert EXPERIMENTS[name].__doc__


@pytest.mark.parametrize(
    ("name", "table"), [("table1", numbers.TABLE_1), ("table2", numbers.TABLE_2)]
)
def test_tables_have_the_papers_rows_and_the_controls(name, table):
    made = list(EXPERIMENTS[name]())
    assert {cell.method for cell in made} == {*table, *CONTROLS, *EVIDENCE}
    assert len(made) == 7 * (len(table) + len(CONTROLS) + len(OWN_LINES) + len(EVIDENCE))
    for cell in made:
        ours = cell.method in {*CONTROLS, *EVIDENCE} or cell.key.split("/")[0] in OWN_LINES
        assert (cell.paper is None) == ours
    assert cells(name)["gcn/cora"].paper == (0.816, 0.004)


def test_sources_of_the_tables():
    assert cells("table1")["graphglow/reed98"].sources == (
        "cornell5",
        "johnshopkins55",
        "amherst41",
    )
    assert cells("table2")["graphglow-attention/reed98"].sources == ("cora", "citeseer", "pubmed")
    assert cells("table2")["graphglow-star/reed98"].sources == ()


def test_what_sees_no_source_is_one_run_in_both_tables():
    one, two = cells("table1"), cells("table2")
    assert one.keys() == two.keys()
    shared = {cell.method for key, cell in one.items() if key_of(cell) == key_of(two[key])}
    assert shared == {
        *numbers.BOTH_TABLES, *CONTROLS, "evidence-universal", "evidence-untrained",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("time", "graphglow/cora"), ("table2", "graphglow/cora")),
        (("ablation", "full/cora"), ("table1", "graphglow/cora")),
        (("ablation", "random-theta/cora"), ("table2", "random-theta/cora")),
        (("encoder", "gcn/cora"), ("table2", "graphglow/cora")),
        (("edges", "add/0.0/gcn/citeseer"), ("table1", "gcn/citeseer")),
        (("edges", "add/0.0/graphglow/citeseer"), ("edges", "delete/0.0/graphglow/citeseer")),
        (("sensitivity", "lambda/0.7/cora"), ("table2", "graphglow/cora")),  # the default
    ],
)
def test_the_same_run_in_several_figures(a, b):
    one, other = cells(a[0])[a[1]], cells(b[0])[b[1]]
    assert key_of(one) == key_of(other)
    assert key_of(one, seed=1) != key_of(one)


def test_runs_that_differ_in_anything_are_different():
    runs = [key_of(cell) for cell in EXPERIMENTS["ablation"]() if cell.target == "cora"]
    assert len(set(runs)) == len(ABLATIONS) + 1
    table = cells("table2")
    plain = {key: cell for key, cell in table.items() if key.split("/")[0] not in OWN_LINES}
    assert len({key_of(cell) for cell in plain.values()}) == len(plain)
    damaged = [c for c in EXPERIMENTS["edges"]() if c.method == "gcn" and c.target == "citeseer"]
    assert len({key_of(cell) for cell in damaged}) == 3 * 5 + 1
    observed = cells("homophily")["graphglow/reed98"]
    assert key_of(observed) != key_of(table["graphglow/reed98"])


def test_the_device_is_no_part_of_a_run_and_epochs_are():
    cell = cells("table1")["gcn/cora"]
    assert key_of(cell, config=ReproduceConfig(device="cpu")) == key_of(cell)
    assert key_of(cell, config=ReproduceConfig(epochs=7)) != key_of(cell)
    glow = cells("table1")["graphglow/cora"]
    assert key_of(glow, config=ReproduceConfig(pretrain_epochs=7)) != key_of(glow)


def test_ablations_reach_pretraining_and_transfer():
    made = cells("ablation")
    _, run, before = run_of(made["no-iteration/cora"], 3, NONE, PLAIN)
    assert (run.refinements, before.refinements, run.seed, before.seed) == (1, 1, 3, 0)
    several = ReproduceConfig(learners=2)
    assert run_of(made["no-iteration/cora"], 3, NONE, several).pretraining.seed == 1
    tuned = {"pretrain": {"objective": {"entropy": 0.7, "sparsity": 0.2}}}
    settings = Settings({"graphglow": {"cora": tuned}})
    before = run_of(made["no-regularisation/cora"], 0, settings, PLAIN).pretraining
    assert (before.objective.smoothness, before.objective.sparsity) == (0, 0)
    assert before.objective.entropy == 0.7
    _, run, before = run_of(made["pivots-by-degree/cora"], 0, NONE, PLAIN)
    assert run.pivots_by_degree
    assert before.pivots_by_degree


def test_attention_is_pretrained_with_the_settings_of_graphglow():
    cell = cells("table1")["graphglow-attention/cora"]
    tuned = {
        "pretrain": {"learner": {"num_heads": 6, "embedding_size": 16}},
        "transfer": {"dropout": 0.2},
    }
    _, run, before = run_of(cell, 0, Settings({"graphglow": {"cora": tuned}}), PLAIN)
    assert isinstance(run, PaperConfig)
    assert isinstance(before, PretrainConfig)
    assert (before.learner.similarity, before.learner.num_heads) == ("attention", 6)
    assert (run.dropout, before.dropout) == (0.2, 0.5)


def test_figures_have_the_best_settings_with_the_learned_graph_on():
    cell = cells("edges")["delete/0.1/graphglow/citeseer"]
    off, on = {"transfer": {"input_weight": 1.0}}, {"transfer": {"input_weight": 0.5}}
    known = Settings().having("graphglow", "citeseer", off, cell.sources)
    assert run_of(cell, 0, known, PLAIN).config.input_weight == 1.0  # none other is known
    known = known.having("graphglow-on", "citeseer", on, cell.sources)
    assert run_of(cell, 0, known, PLAIN).config.input_weight == 0.5
    table = cells("table2")
    assert run_of(table["graphglow/citeseer"], 0, known, PLAIN).config.input_weight == 1.0
    assert run_of(table["graphglow-on/citeseer"], 0, known, PLAIN).config.input_weight == 0.5


def test_sources_and_target_have_one_encoder():
    cell = cells("table2")["graphglow/cora"]
    known = Settings().having("graphglow", "cora", {"transfer": {"encoder": "mlp"}}, cell.sources)
    assert run_of(cell, 0, known, PLAIN).pretraining.encoder == "mlp"


def test_settings_are_those_of_the_sources_where_known():
    cell = cells("table2")["graphglow/reed98"]
    known = Settings().having("graphglow", "reed98", {"transfer": {"dropout": 0.1}}, cell.sources)
    known = known.having("graphglow", "reed98", {"transfer": {"dropout": 0.3}}, ["amherst41"])
    assert run_of(cell, 0, known, PLAIN).config.dropout == 0.1


def test_settings_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match=r"GNNConfig must be among .*; got 'wings'"):
        run_of(cells("table1")["gcn/cora"], 0, Settings({"gcn": {"cora": {"wings": 2}}}), PLAIN)


def test_merging_goes_into_settings_and_changes_nothing():
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merged(first, {"a": {"c": 4}, "e": 5}) == {"a": {"b": 1, "c": 4}, "d": 3, "e": 5}
    assert first == {"a": {"b": 1, "c": 2}, "d": 3}


def test_splits():
    assert [split_of(g) for g in ("reed98", "pubmed")] == ["authors", "public"]
    assert split_of("synthetic") == "random seed 0"


def test_selection():
    picked, _ = select_cells(["table1", "time"], methods=["gcn"], targets=["cora", "reed98"])
    assert Counter(cell.experiment for cell in picked) == {"table1": 2, "time": 2}
    only, _ = select_cells(["table2"], methods=["graphglow", "gcn"], sources=["cora", "amherst41"])
    assert {c.sources for c in only if c.method == "graphglow"} == {("cora",), ("amherst41",)}
    assert "graphglow/reed98 < cora" in {cell.key for cell in only}
    assert sum(cell.method == "gcn" for cell in only) == 7
    whole, left_out = select_cells(["table2"], sources=["cora", "citeseer", "pubmed"])
    assert {c.key for c in whole if c.method == "graphglow"} == {
        f"{key}/{target}"
        for key in (
            "graphglow",
            *(key for key, (base, _) in OWN_LINES.items() if base == "graphglow"),
        )
        for target in numbers.SOCIAL
    }
    assert {(c.method, c.target) for c in left_out} == {
        (method, target) for method in WITH_SOURCES for target in numbers.CITATION
    }


def test_methods_go_by_every_name_that_a_row_has():
    for make in EXPERIMENTS.values():
        cells = list(make())
        for name in {name for cell in cells for name in cell.names}:
            picked, _ = select_cells([cells[0].experiment], methods=[name])
            assert [cell.key for cell in picked] == [c.key for c in cells if name in c.names]
    on, _ = select_cells(["table1"], methods=["random-on"])
    assert {cell.label for cell in on} == {"random theta, lambda < 1"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["gnc"]}, r"methods must be among gcn, .*; got 'gnc' \(nearest: gcn"),
        ({"targets": ["corra"]}, "nearest: cora"),
        ({"sources": ["wine"]}, "sources must be among"),
        ({"methods": ["graphglow"], "targets": ["cora"], "sources": ["cora"]}, "got none together"),
    ],
)
def test_a_selection_of_nothing_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        select_cells(["table1"], **given)


def test_names_are_said_for_all_methods_of_the_experiments():
    used = {cell.method for make in EXPERIMENTS.values() for cell in make()}
    assert used == set(NAMES)


def test_a_cell_can_be_of_any_graph():
    cell = Cell(experiment="e", key="k", label="l", method="gcn", target="wine")
    assert cell.split == "random seed 0"
    assert cell.sources == ()
