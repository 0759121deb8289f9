"""The paper's tables as printed; every cell is whole, and cells for one run ask alike."""

import re
from collections import Counter
from pathlib import Path

import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.graph.datasets import PERTURBATIONS
from graphglow.lab import paper_tables as paper
from graphglow.lab.config import RunsConfig
from graphglow.lab.paper_tables import ABLATIONS, CONTROL_LINES, EXPERIMENTS, OWN_LINES
from graphglow.lab.runs import run_of
from graphglow.settings import PaperConfig, PretrainConfig

TEX = Path(__file__).parents[3] / "shared" / "paper.tex"
PRINTED = {
    "GCN": "gcn", "SAGE": "sage", "GAT": "gat", "GPR": "gpr", "APPNP": "appnp", "H$_2$GCN": "h2gcn",
    "CPGNN": "cpgnn", r"$\mathrm{\mymodel_{dp}}$": "graphglow-dot",
    r"$\mathrm{\mymodel_{knn}}$": "graphglow-knn", r"$\mathrm{\mymodel_{cos}}$": "graphglow-cosine",
    r"$\mathrm{\mymodel_{at}}$": "graphglow-attention", r"\mymodel": "graphglow",
    r"\mymodelvar": "graphglow-star",
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", EXPERIMENTS)
PLAIN = RunsConfig()


def cells(name):
    return {cell.key: cell for cell in EXPERIMENTS[name]()}


def setup(cell, tuned=None, **config):
    return run_of(cell, 0, tuned or {}, RunsConfig(**config)).setup


@pytest.mark.parametrize("number", ["1", "2"])
def test_the_tables_are_those_of_the_paper(number):
    if not TEX.exists():
        pytest.skip("the paper's source is not part of the package")
    text = TEX.read_text().split(rf"\label{{tab-res{number}}}")[1].split(r"\end{tabular}")[0]
    found = {}
    for line in text.splitlines():
        entries = [entry.strip() for entry in line.split("&")]
        if len(entries) == 9 and entries[1] in PRINTED:
            figures = [re.findall(r"\d+\.\d", entry) for entry in entries[2:]]
            shares = [tuple(round(float(f) / 100, 6) for f in pair) for pair in figures]
            found[PRINTED[entries[1]]] = dict(zip(paper.GRAPHS, shares, strict=True))
    assert found == {"1": paper.TABLE_1, "2": paper.TABLE_2}[number]


def test_the_encoders_are_those_of_the_paper():
    if not TEX.exists():
        pytest.skip("the paper's source is not part of the package")
    text = TEX.read_text().split(r"\label{tab:linear}")[1].split(r"\end{tabular}")[0]
    for line in text.splitlines():
        figures = [round(float(n) / 100, 6) for n in re.findall(r"\d+\.\d", line)]
        if figures:
            name = line.split("&")[0].strip().lower().replace(" ", "")
            assert figures == [*paper.ENCODERS["gcn"][name], *paper.ENCODERS["mlp"][name]], name


@EVERY
def test_cells_are_whole(name):
    made = list(EXPERIMENTS[name]())
    assert EXPERIMENTS[name].__doc__
    assert len({cell.key for cell in made}) == len(made)
    for cell in made:
        assert cell.experiment == name
        assert cell.method in {*METHODS, "graphglow"}
        assert bool(cell.sources) == (cell.method in paper.TRANSFERRED)
        assert cell.target in paper.GRAPHS
        assert cell.target not in cell.sources
        assert cell.damage is None or cell.damage[0] in PERTURBATIONS
        assert setup(cell)  # its settings exist


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_tables_have_the_papers_rows_and_the_controls(name):
    made, table = cells(name), {"table1": paper.TABLE_1, "table2": paper.TABLE_2}[name]
    assert {cell.method for cell in made.values()} == {*table, *CONTROL_LINES}
    assert len(made) == 7 * (len(table) + len(CONTROL_LINES) + len(OWN_LINES))
    assert made["gcn/cora"].paper == (0.816, 0.004)
    assert made["linkx/cora"].paper is None


def test_sources_of_the_tables():
    social = ("cornell5", "johnshopkins55", "amherst41")
    assert cells("table1")["graphglow/reed98"].sources == social
    assert cells("table2")["graphglow-attention/reed98"].sources == paper.CITATION
    assert cells("table2")["graphglow-star/reed98"].sources == ()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("ablation", "full/cora"), ("table1", "graphglow/cora")),
        (("ablation", "random-theta/cora"), ("table2", "random-theta/cora")),
        (("edges", "add/0.0/gcn/citeseer"), ("table1", "gcn/citeseer")),
        (("edges", "add/0.0/graphglow/citeseer"), ("edges", "delete/0.0/graphglow/citeseer")),
    ],
)
def test_the_same_run_in_several_figures(a, b):
    assert setup(cells(a[0])[a[1]]) == setup(cells(b[0])[b[1]])


def test_runs_that_differ_in_anything_are_different():
    variants = [setup(cell) for cell in EXPERIMENTS["ablation"]() if cell.target == "cora"]
    assert len(set(variants)) == len(ABLATIONS) + 1
    table = cells("table2")
    plain = [setup(cell) for cell in table.values() if cell.line not in OWN_LINES]
    assert len(set(plain)) == len(plain)
    damaged = [c for c in EXPERIMENTS["edges"]() if c.method == "gcn" and c.target == "citeseer"]
    assert len({setup(cell) for cell in damaged}) == 3 * 5 + 1
    glow = table["graphglow/reed98"]
    assert setup(cells("homophily")["graphglow/reed98"]) != setup(glow)  # observed
    assert setup(glow, device="cpu") == setup(glow)
    assert setup(glow, epochs=7) != setup(glow)


def test_ablations_reach_pretraining_and_transfer():
    made = cells("ablation")
    run = run_of(made["no-iteration/cora"], 3, {}, PLAIN)
    assert (run.config.refinements, run.pretraining.config.refinements, run.config.seed) == (
        1,
        1,
        3,
    )
    tuned = {"graphglow": {"cora": {"pretrain": {"objective": {"entropy": 0.7, "sparsity": 0.2}}}}}
    objective = run_of(made["no-regularisation/cora"], 0, tuned, PLAIN).pretraining.config.objective
    assert (objective.smoothness, objective.sparsity, objective.entropy) == (0, 0, 0.7)


def test_attention_is_pretrained_with_the_settings_of_graphglow():
    cell = cells("table1")["graphglow-attention/cora"]
    given = {"pretrain": {"learner": {"num_heads": 6}}, "transfer": {"dropout": 0.2}}
    run = run_of(cell, 0, {"graphglow": {"cora": given}}, PLAIN)
    before = run.pretraining.config
    assert isinstance(run.config, PaperConfig)
    assert isinstance(before, PretrainConfig)
    assert (before.learner.similarity, before.learner.num_heads) == ("attention", 6)
    assert (run.config.dropout, before.dropout) == (0.2, 0.5)


def test_settings_are_those_of_the_sources_and_of_the_learned_graph_at_work():
    cell, table = cells("edges")["delete/0.1/graphglow/citeseer"], cells("table2")
    sources = f"citeseer < {'+'.join(sorted(cell.sources))}"
    off, on = {"transfer": {"input_weight": 1.0}}, {"transfer": {"input_weight": 0.5}}
    tuned = {"graphglow": {sources: off, "citeseer": {"transfer": {"input_weight": 0.2}}}}
    assert run_of(cell, 0, tuned, PLAIN).config.input_weight == 1.0  # no other is known
    tuned["graphglow-on"] = {sources: on}
    assert run_of(cell, 0, tuned, PLAIN).config.input_weight == 0.5
    assert run_of(table["graphglow/citeseer"], 0, tuned, PLAIN).config.input_weight == 1.0
    assert run_of(table["graphglow-on/citeseer"], 0, tuned, PLAIN).config.input_weight == 0.5


def test_sources_and_target_have_one_encoder():
    cell = cells("table2")["graphglow/cora"]
    run = run_of(cell, 0, {"graphglow": {"cora": {"transfer": {"encoder": "mlp"}}}}, PLAIN)
    assert (run.config.encoder, run.pretraining.config.encoder) == ("mlp", "mlp")


def test_selection():
    picked = paper.select_cells("all", methods=["lds"], targets=["cora", "reed98"])
    assert Counter(cell.experiment for cell in picked) == {"time": 2}
    lines = {cell.line for cell in paper.select_cells("table1", methods=["random-theta"])}
    assert lines == {"random-theta", "random-on", "random-backbone"}
    assert {c.line for c in paper.select_cells("table1", methods=["random-on"])} == {"random-on"}
    with pytest.raises(InputError, match=r"got 'gnc' \(nearest: gcn"):
        paper.select_cells("table1", methods=["gnc"])
    with pytest.raises(InputError, match="nearest: cora"):
        paper.select_cells("table1", targets=["corra"])
    with pytest.raises(InputError, match="no cell of these methods"):
        paper.select_cells("all", methods=["lds"], targets=["pubmed"])
