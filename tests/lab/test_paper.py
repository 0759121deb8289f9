"""The paper's tables: as printed, where the paper is at hand."""

import re
from pathlib import Path

import pytest

from graphglow.lab import paper as numbers

TEX = Path(__file__).parents[3] / "shared" / "paper.tex"
PRINTED = {
    "GCN": "gcn", "SAGE": "sage", "GAT": "gat", "GPR": "gpr", "APPNP": "appnp", "H$_2$GCN": "h2gcn",
    "CPGNN": "cpgnn", r"$\mathrm{\mymodel_{dp}}$": "graphglow-dot",
    r"$\mathrm{\mymodel_{knn}}$": "graphglow-knn", r"$\mathrm{\mymodel_{cos}}$": "graphglow-cosine",
    r"$\mathrm{\mymodel_{at}}$": "graphglow-attention", r"\mymodel": "graphglow",
    r"\mymodelvar": "graphglow-star",
}  # fmt: skip
TABLES = {"1": numbers.TABLE_1, "2": numbers.TABLE_2}


@pytest.mark.parametrize("number", TABLES)
def test_the_tables_are_those_of_the_paper(number):
    if not TEX.exists():
        pytest.skip("the paper's source is not part of the package")
    text = TEX.read_text().split(rf"\label{{tab-res{number}}}")[1].split(r"\end{tabular}")[0]
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("&")]
        if len(cells) == 9 and cells[1] in PRINTED:
            figures = [re.findall(r"\d+\.\d", cell) for cell in cells[2:]]
            means, stds = zip(*((float(m), float(s)) for m, s in figures), strict=True)
            found[PRINTED[cells[1]]] = numbers.Line(means, stds)
    assert found == TABLES[number]


def test_the_encoders_are_those_of_the_paper():
    if not TEX.exists():
        pytest.skip("the paper's source is not part of the package")
    text = TEX.read_text().split(r"\label{tab:linear}")[1].split(r"\end{tabular}")[0]
    for line in text.splitlines():
        figures = [float(n) for n in re.findall(r"\d+\.\d", line)]
        if figures:
            name = line.split("&")[0].strip().lower().replace(" ", "")
            column = numbers.GRAPHS.index(name)
            gcn, mlp = numbers.ENCODERS["gcn"], numbers.ENCODERS["mlp"]
            shown = [gcn.means[column], gcn.stds[column], mlp.means[column], mlp.stds[column]]
            assert figures == shown, name


@pytest.mark.parametrize("table", [numbers.TABLE_1, numbers.TABLE_2, numbers.ENCODERS])
def test_every_row_has_a_figure_for_every_graph(table):
    for row in table.values():
        assert len(row.means) == len(row.stds) == len(numbers.GRAPHS) == 7


def test_accuracies_are_fractions():
    assert numbers.accuracy(numbers.TABLE_1, "graphglow", "cora") == (0.835, 0.006)
    assert numbers.accuracy(numbers.TABLE_2, "gcn", "reed98") == (0.608, 0.016)
    assert numbers.accuracy(numbers.TABLE_2, "linkx", "reed98") is None


def test_sources_are_never_the_target():
    assert numbers.others_of_its_kind("cora") == ("citeseer", "pubmed")
    assert numbers.of_the_other_kind("reed98") == ("cora", "citeseer", "pubmed")
    for graph in numbers.GRAPHS:
        assert graph not in numbers.others_of_its_kind(graph) + numbers.of_the_other_kind(graph)
