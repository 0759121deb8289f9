import json
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from parsed_page import Page
from synthetic_rows import CLASSES, HOSTILE, row, sweep_rows, table_rows, write_rows

import graphglow
from graphglow.cli import main
from graphglow.lab.runs.rows import read_rows
from graphglow.lab.settings import Settings
from graphglow.report import is_report
from graphglow.report.page import embedded
from graphglow.report.results import write_results


def written(folder: Path, rows: list[dict[str, object]], *transfers: object, **more: str) -> Page:
    files = [read_rows(write_rows(folder / "rows.jsonl", rows))] if rows else []
    given = [(folder / "t.safetensors", transfer) for transfer in transfers]
    write_results(files, given, folder / "page.html", **more)  # type: ignore[arg-type]
    return Page((folder / "page.html").read_text(encoding="utf-8"))


def test_page_is_well_formed_loads_nothing_and_plotly_knows_its_charts(
    tmp_path: Path, transfer: graphglow.TransferResult
) -> None:
    page = written(tmp_path, [*table_rows(), *sweep_rows()], transfer, title="A title")
    assert "A title" in page.text
    assert page.seen.count("caption") == page.seen.count("table") >= 8
    assert page.scopeless == 0
    assert [load for load in page.loads if not load.startswith("#")] == []
    assert not {"link", "iframe", "img"} & set(page.seen)
    assert (tmp_path / "page.html").stat().st_size < 6e6
    assert is_report(tmp_path / "page.html")
    raw = (tmp_path / "page.html").read_text(encoding="utf-8")
    figures = json.loads(raw.partition('id="figures">')[2].partition("</script>")[0])
    assert len(figures) >= 15
    for figure in figures.values():
        go.Figure(figure)  # a property that it does not know is an error


def test_hostile_names_are_text(tmp_path: Path, transfer: graphglow.TransferResult) -> None:
    names = {"label": HOSTILE, "method": HOSTILE, "target": HOSTILE, "split": HOSTILE}
    names |= {"experiment": HOSTILE, "cell": HOSTILE, "device": HOSTILE}
    rows = [
        row(**names, x=x, seed=seed, sources=[HOSTILE], metrics={HOSTILE: 1.0, "l": [1, 2]})
        for x in (None, 1, 2)
        for seed in (0, 1)
    ]
    rows = [r | {"cell": f"{HOSTILE}{r['x']}", "provenance": {"commit": HOSTILE}} for r in rows]
    rows += [r | {"cell": "o", "method": "graphglow", "label": "o"} for r in rows[:2]]
    damaged = row(seed=HOSTILE)
    page = written(tmp_path, [*rows, damaged], transfer, title=HOSTILE)
    assert page.seen.count("script") == 3  # data, Plotly, ours
    assert page.seen.count("img") == 0
    assert page.text.count(HOSTILE) >= 10
    assert CLASSES[0] in page.text
    raw = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert raw.count("hacked()</script>") == 0


def test_embedded_json_cannot_end_its_element_and_has_no_nan() -> None:
    given = {"a": "</script><!--\u2028&", "n": [1.5, float("nan")], "array": np.arange(2)}
    text = embedded(given)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == given | {"n": [1.5, None], "array": [0, 1]}


def test_bold_signs_marks_and_damage_are_said(tmp_path: Path) -> None:
    rows = [row(seed=seed, test_accuracy=0.5 + seed / 100, paper=0.6) for seed in range(3)]
    ours = {"cell": "g", "label": "GraphGLOW", "method": "graphglow", "paper": 0.55}
    rows += [row(**ours, seed=s, test_accuracy=0.7 + s / 100) for s in range(3)]
    rows += [row(**ours, seed=0, test_accuracy=0.7), row(test_accuracy="50")]
    page = written(tmp_path, rows)
    assert page.strong == ["71.0"]
    assert "\u22129.0" in page.text
    assert "+16.0" in page.text
    assert "+20.0 points against GCN, p < 0.001" in page.text
    assert "\u25b2" in page.text
    assert "line 8: test_accuracy must be of type int or float; got '50'" in page.text
    assert "1 row repeats a cell and seed" in page.text
    words = " ".join(page.text.split())
    assert "GraphGLOW1 of 1 target higher on 1, lower on 0of 1+16.0 pointson average0 of 1" in words


def test_verdicts_and_learned_graphs_are_said_in_words(tmp_path: Path) -> None:
    rows = [row(seed=seed, test_accuracy=0.5 + seed / 100) for seed in range(3)]
    ours = {"cell": "g", "label": "GraphGLOW", "method": "graphglow"}
    rows += [row(**ours, seed=s, test_accuracy=0.7 + s / 100) for s in range(3)]
    rows += [row(cell="b", target="reed98"), row(**ours | {"cell": "h"}, target="reed98")]
    rows += [r for r in sweep_rows() if r["experiment"] == "homophily"]
    words = " ".join(written(tmp_path, rows).text.split())
    assert "Our lines against their controls" in words
    assert "GraphGLOWGCN +0.0 not tested +20.0 p < 0.001" in words
    assert "two steps on 0 of 2, to pivots on 2 of 2 targets." in words
    assert "The two-step graph joins nearly every pair of nodes" in words
    assert "amherst41, class-insensitive homophily" in words
    assert "lambda = 1 won" not in words


def test_cells_older_than_their_settings_are_marked(tmp_path: Path) -> None:
    old = {"experiment": "table1", "cell": "gcn/cora", "config": {"dropout": 0.5}}
    files = [read_rows(write_rows(tmp_path / "rows.jsonl", [row(**old), row(**old, seed=1)]))]
    for held, marks in ((0.5, 0), (0.25, 1)):
        settings = Settings({"gcn": {"cora": {"dropout": held}}})
        write_results(files, [], tmp_path / "page.html", settings=settings)
        words = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
        assert words.count("\u2021 made before its settings or its learner") == marks


def test_cells_of_a_backbone_alone_are_marked_and_explained(tmp_path: Path) -> None:
    off = {"config": {"input_weight": 1.0, "backbone": "gcn"}, "pretraining": {"seed": 0}}
    ours = off | {"cell": "graphglow/cora", "label": "GraphGLOW", "method": "graphglow"}
    theta = ours | {"cell": "random-theta/cora", "label": "random theta", "method": "random-theta"}
    rows = [row(seed=seed, test_accuracy=0.5 + seed / 100) for seed in range(3)]
    rows += [row(**ours, seed=s, test_accuracy=0.7 + s / 100, device="cuda") for s in range(3)]
    rows += [row(**theta, seed=s, test_accuracy=0.6 + s / 100) for s in range(3)]
    words = " ".join(written(tmp_path, rows).text.split())
    assert "71.0\u2020, learned graph switched off" in words
    assert "level\u2020, both have switched the learned graph off" in words
    assert "\u2020 lambda = 1 won on validation, here or where the settings come from" in words
    assert "+20.0 p < 0.001" in words  # against GCN, which has no learned graph
    assert "One pre-trained learner serves all seeds of a cell" in words


def test_lines_are_in_the_order_of_the_paper(tmp_path: Path) -> None:
    labels = {"random-theta": "random theta", "graphglow": "GraphGLOW", "sage": "SAGE"}
    rows = [row(cell=f"{m}/cora", method=m, label=label) for m, label in labels.items()]
    text = written(tmp_path, [*rows, row()]).text
    places = [text.index(f"\n{name}\n") for name in ("GCN", "SAGE", "GraphGLOW", "random theta")]
    assert places == sorted(places)


def test_times_of_several_machines_are_not_to_be_compared(tmp_path: Path) -> None:
    other = {"machine": {"cpu": "x", "cores": 1, "gpu": "G"}}
    rows = [row(), row(cell="b", method="mlp", label="MLP", provenance=other, device="cuda")]
    page = written(tmp_path, rows)
    assert "Times were taken on different machines (G; none)" in page.text


def test_failures_are_said_and_times_without_care_are_not_shown(tmp_path: Path) -> None:
    failed = {"cell": "b", "label": "LDS", "method": "lds", "test_accuracy": None}
    failed |= {"train_seconds": None, "timed": False, "error": "must fit in memory; got 9 GB"}
    rows = [row(), row(cell="c", label="MLP", method="mlp", timed=False), row(**failed)]
    page = written(tmp_path, rows)
    assert "No result from LDS on cora: must fit in memory; got 9 GB." in page.text
    assert page.text.count("1 run, 1 s") == 1
    assert "Accuracy against training time" not in page.text  # one time alone


def test_a_transfer_without_test_nodes(tmp_path: Path) -> None:
    data = graphglow.synthetic_graph(
        num_nodes=20, num_classes=2, num_features=4, homophily=0.5, average_degree=2.0,
        feature_noise=0.5, seed=0,
    )  # fmt: skip
    part = data.y.new_zeros(20).bool()
    data.train_mask, data.val_mask, data.test_mask = part.clone(), part.clone(), part
    data.train_mask[:10], data.val_mask[10:] = True, True
    learner = graphglow.StructureLearner(graphglow.LearnerConfig(embedding_size=4), seed=0)
    config = graphglow.PaperConfig(
        epochs=1, num_pivots=5, refinements=1, device="cpu", input_weight=0.4
    )
    page = written(tmp_path, [], graphglow.transfer(data, learner, config))
    assert "0.4" in page.text  # lambda
    assert "no test nodes" in page.text
    assert "Confusions" not in page.text
    assert "How to read" not in page.text


def test_a_page_shows_a_transfer_under_an_evidence_learner(tmp_path: Path) -> None:
    data = graphglow.load_graph("synthetic-small")
    made = graphglow.transfer(data, config=graphglow.TransferConfig(epochs=3, hidden=8))
    made.save(tmp_path / "made.safetensors")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "made.safetensors"), "--out", str(page)]) == 0
    text = page.read_text()
    assert "input weight" in text
    assert "balanced accuracy" in text
    assert "pivots" not in text.split("The learned structure of")[1].split("<h3>")[0]
