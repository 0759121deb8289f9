"""Reproduction: what rows hold, that only what is missing is run, and what failures leave."""

import json
import os
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
from small_cells import GLOW, SETTINGS, TARGET, cell, config, rows, run, slots

from graphglow.errors import InputError
from graphglow.experiments import cell_run, learner_files
from graphglow.experiments import reproduce as reproduction
from graphglow.experiments.cell import Damage
from graphglow.experiments.cell_rows import append_row, find_rows, latest, read_rows, same_run
from graphglow.experiments.learner_files import check_data
from graphglow.experiments.paper import Accuracy
from graphglow.experiments.reproduce import learner_folder, planned
from graphglow.experiments.search.settings import Settings
from graphglow.storage import append_line

NAN = Settings({"gcn": {TARGET: {"hidden": 4, "learning_rate": 1e30}}})
CONTRACT = {
    "experiment": str, "cell": str, "label": str, "method": str, "target": str, "split": str,
    "seed": int, "test_accuracy": float, "val_accuracy": float, "epochs": int,
    "train_seconds": float, "total_seconds": float, "peak_memory_bytes": int, "device": str,
    "metrics": dict, "config": dict, "provenance": dict,
}  # fmt: skip


@pytest.fixture
def out(tmp_path):
    return tmp_path / "new" / "rows.jsonl"


@pytest.fixture
def pretrained(monkeypatch):
    """Sources and seed of each pre-training that is made."""
    made, pretrain = [], learner_files.pretrain

    def counted(graphs, config):
        made.append(("+".join(graph.name for graph in graphs), config.seed))
        return pretrain(graphs, config)

    monkeypatch.setattr(learner_files, "pretrain", counted)
    return made


def test_rows_hold_what_was_agreed(out):
    cells = [cell(paper=Accuracy(0.6, 0.01), x=0.5, series="s"), cell("graphglow"), cell("mlp")]
    outcome = run(cells, out, seeds=1)
    assert outcome[:4] == (3, 0, 0, {})
    gcn, glow, mlp = rows(out)
    for row in (gcn, glow, mlp):
        assert {name: type(row[name]) for name in CONTRACT} == CONTRACT
        assert 0 <= row["test_accuracy"] <= 1
        assert (row["epochs"], row["config"]["epochs"], row["error"]) == (2, 2, None)
        assert (row["split"], row["seed"], row["timed"]) == ("random seed 0", 0, True)
    assert (gcn["paper"], gcn["paper_std"], gcn["x"], gcn["series"]) == (0.6, 0.01, 0.5, "s")
    assert (gcn["sources"], gcn["pretrain_seconds"], gcn["pretraining"]) == (None, None, None)
    assert (mlp["paper"], mlp["paper_std"], mlp["x"]) == (None, None, None)
    assert glow["sources"] == ["wine"]
    assert glow["pretrain_seconds"] > 0
    assert glow["pretraining"]["learner"]["embedding_size"] == 4
    assert glow["config"]["num_pivots"] == 8


def test_a_rerun_makes_nothing(out, pretrained):
    cells = [cell(), cell("graphglow"), cell("graphglow-attention")]
    assert run(cells, out).made == 6
    before, made = out.read_bytes(), list(pretrained)
    assert run(cells, out)[:3] == (0, 0, 0)
    assert out.read_bytes() == before
    assert pretrained == made


def test_only_what_is_missing_is_made(out):
    run([cell()], out, seeds=1)
    first = out.read_text()
    assert run([cell("mlp"), cell()], out, seeds=3).made == 5
    assert out.read_text().startswith(first)
    assert Counter(slots(out)).most_common(1)[0][1] == 1
    assert run([cell()], out, seed=7, seeds=1).made == 1


def test_changed_settings_are_run_anew_and_old_ones_taken_back(out):
    run([cell()], out)
    assert run([cell()], out, epochs=3).made == 2
    assert {row["epochs"] for row in latest(rows(out))} == {3}
    assert len(rows(out)) == 4
    outcome = run([cell()], out)
    assert (outcome.made, outcome.copied) == (0, 2)
    assert {row["epochs"] for row in latest(rows(out))} == {2}
    other = Settings({"gcn": {TARGET: {"hidden": 5}}})
    assert run([cell()], out, settings=other).made == 2


def test_experiments_share_their_runs(out):
    twin = cell(experiment="other", key="the same", x=2.0, label="Twin")
    assert run([cell(), twin], out).made == 2
    assert Counter(row["experiment"] for row in rows(out)) == {"tiny": 2, "other": 2}
    late = cell(experiment="late")
    assert run([late], out)[:2] == (0, 2)
    found = {(row["experiment"], row["seed"]): row for row in rows(out)}
    for seed in (0, 1):
        one, two, three = (found[name, seed] for name in ("tiny", "other", "late"))
        assert one["test_accuracy"] == two["test_accuracy"] == three["test_accuracy"]
        assert (one["copied_from"], two["copied_from"], three["copied_from"]) == (
            None, "tiny", "tiny",
        )  # fmt: skip
        assert (two["x"], two["label"], two["cell"]) == (2.0, "Twin", "the same")
        assert one["config"] == two["config"]
    assert run([cell(), twin, late], out)[:2] == (0, 0)


def test_cells_with_one_learner_train_it_once(out, pretrained):
    swept = [cell("graphglow", key=f"{x}", settings={"input_weight": x}) for x in (0.2, 0.4)]
    run(swept, out, learners=2)
    assert sorted(pretrained) == [("wine", 0), ("wine", 1)]
    run([cell("graphglow", key="more", settings={"input_weight": 0.6})], out, learners=2)
    assert len(pretrained) == 2
    assert len(list(learner_folder(out).glob("wine-seed*.safetensors"))) == 2
    run([cell("graphglow", key="mlp", pretraining={"encoder": "mlp"})], out, learners=2)
    assert len(pretrained) == 4
    seconds: dict[tuple[int, str], set[float]] = {}
    for row in rows(out):
        learner = row["seed"], row["pretraining"]["encoder"]
        seconds.setdefault(learner, set()).add(row["pretrain_seconds"])
    assert [len(found) for found in seconds.values()] == [1, 1, 1, 1]


def test_seeds_share_one_learner_unless_told_otherwise(out, pretrained):
    run([cell("graphglow")], out)
    assert pretrained == [("wine", 0)]
    assert [row["pretraining"]["seed"] for row in rows(out)] == [0, 0]
    run([cell("graphglow")], out, learners=2)
    assert pretrained == [("wine", 0), ("wine", 1)]
    assert len(rows(out)) == 3  # the first seed's learner is the same


def test_a_damaged_learner_is_made_anew(out, pretrained):
    run([cell("graphglow")], out, seeds=1)
    (path,) = learner_folder(out).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:50])
    run([cell("graphglow", key="more", settings={"input_weight": 0.1})], out, seeds=1)
    assert len(pretrained) == 2
    assert rows(out)[-1]["error"] is None


def test_attention_is_pretrained_on_the_sources(out, pretrained):
    run([cell("graphglow-attention")], out, seeds=1)
    assert pretrained == [("wine", 0)]
    (row,) = rows(out)
    assert row["pretraining"]["learner"]["similarity"] == "attention"
    assert row["method"] == "graphglow-attention"


def test_a_run_that_fails_is_a_row_and_is_not_tried_again(out):
    outcome = run([cell(), cell("mlp")], out, settings=NAN, epochs=20)
    assert (outcome.made, outcome.failed) == (4, 2)
    ((error, count),) = outcome.errors.items()
    assert count == 2
    assert "loss must stay finite" in error
    failed = [row for row in rows(out) if row["error"]]
    assert [row["test_accuracy"] for row in failed] == [None, None]
    assert all("\n" not in row["error"] and row["method"] == "gcn" for row in failed)
    assert run([cell(), cell("mlp")], out, settings=NAN, epochs=20).made == 0
    twin = run([cell(experiment="twin")], out, settings=NAN, epochs=20)
    assert (twin.made, twin.copied) == (0, 2)
    again = run([cell(), cell("mlp")], out, settings=NAN, epochs=20, retry_failed=True)
    assert (again.made, again.failed) == (2, 2)


def test_a_failure_that_is_mended_is_replaced(out, monkeypatch):
    def blown(*args):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(cell_run, "fit_many", blown)
        run([cell()], out)
    assert {row["error"] for row in rows(out)} == {
        "the run must fit in memory; it took more than there was"
    }
    assert run([cell()], out, retry_failed=True).failed == 0
    assert [row["error"] for row in latest(rows(out))] == [None, None]
    assert run([cell()], out, retry_failed=True).made == 0


def test_failed_pretraining_fails_the_cells_that_need_it(out):
    late = {**GLOW["pretrain"], "learning_rate": 1e30}
    settings = Settings({"graphglow": {TARGET: {**GLOW, "pretrain": late}}})
    cells = [cell("graphglow"), cell("graphglow", key="b", settings={"dropout": 0.1}), cell()]
    outcome = run(cells, out, settings=settings, seeds=1, pretrain_epochs=20)
    assert (outcome.made, outcome.failed) == (3, 2)
    (error,) = outcome.errors
    assert error.startswith("pre-training on wine failed: the loss must stay finite")


def test_what_keeps_all_from_starting_is_raised_and_no_row(out, tmp_path):
    for there in (cell(target="cora"), cell("graphglow", sources=("cora",))):
        with pytest.raises(InputError, match=r"must exist|must be"):
            run_elsewhere([there], out, tmp_path)
    with pytest.raises(InputError, match="got 'wings'"):
        run([cell(settings={"wings": 2})], out)
    assert rows(out) == []


def run_elsewhere(cells, out, folder):
    from graphglow.experiments.reproduce import reproduce

    return reproduce(cells, out, config(), SETTINGS, data_root=folder)


def test_a_batch_gives_what_runs_alone_give(out, tmp_path):
    cells = [cell(), cell("graphglow"), cell("random-theta")]
    run(cells, out)
    both = tmp_path / "both.jsonl"
    run(cells, both, batch_seeds=True)
    alone, batched = ({(r["cell"], r["seed"]): r for r in rows(path)} for path in (out, both))
    assert alone.keys() == batched.keys()
    for key, row in batched.items():
        assert (row["runs_at_once"], row["timed"]) == (2, False)
        assert row["val_accuracy"] == pytest.approx(alone[key]["val_accuracy"], abs=0.05)
        assert row["config"] == alone[key]["config"]
    assert run(cells, both).made == 0


def test_a_batch_that_fails_is_tried_one_by_one(out, monkeypatch):
    fit_many = cell_run.fit_many

    def fails_together(name, data, configs):
        if len(configs) > 1:
            raise InputError("too many")
        return fit_many(name, data, configs)

    monkeypatch.setattr(cell_run, "fit_many", fails_together)
    assert run([cell()], out, batch_seeds=True).failed == 0
    assert [row["runs_at_once"] for row in rows(out)] == [1, 1]


def test_seconds_are_never_those_of_a_batch(out):
    timed = cell(experiment="time", timed=True)
    run([cell(), timed], out, batch_seeds=True)
    assert {row["runs_at_once"] for row in rows(out)} == {1}
    assert [row["experiment"] for row in rows(out)] == ["time", "tiny"] * 2
    run([cell("random-theta")], out, batch_seeds=True)
    timed = cell("random-theta", experiment="time", timed=True)
    assert run([timed], out, batch_seeds=True)[:2] == (2, 0)  # not from the batch
    assert run([timed], out)[:2] == (0, 0)


def test_seconds_of_another_machine_are_not_taken_over(out):
    run([cell()], out)
    timed = [cell(experiment="time", timed=True)]
    assert planned(timed, out, config(), SETTINGS).counts["time"]["copied"] == 2
    lines = [json.dumps({**row, "threads": 99}) for row in rows(out)]
    out.write_text("\n".join(lines) + "\n")
    counts = planned(timed, out, config(), SETTINGS).counts["time"]
    assert (counts["copied"], counts["missing"]) == (0, 2)


def test_damage_is_done_to_the_target_by_the_seed(out, monkeypatch):
    seen, fit_many = [], cell_run.fit_many

    def watched(name, data, configs):
        seen.append(data.edge_index)
        return fit_many(name, data, configs)

    monkeypatch.setattr(cell_run, "fit_many", watched)
    run([cell(damage=Damage("delete", 0.5), x=0.5), cell(key="whole")], out, batch_seeds=True)
    one, other, whole = seen
    assert one.shape[1] == other.shape[1] == whole.shape[1] // 2
    assert not (one == other).all()
    assert rows(out)[0]["damage"] == {"kind": "delete", "ratio": 0.5}


def test_an_observed_run_has_curves(out):
    run([cell("graphglow", observe_every=2), cell("graphglow", key="plain")], out, epochs=5)
    observed, _, plain, _ = rows(out)
    metrics = observed["metrics"]
    assert metrics["epoch"] == [0, 2, 4]
    for name in ("homophily", "edge_homophily", "neighbourhood_variance"):
        assert len(metrics[name]) == 3
        assert len(metrics[f"pivot_{name}"]) == 3
        assert all(0 <= value <= 1 for value in metrics[name] + metrics[f"pivot_{name}"])
        assert 0 <= metrics[f"input_{name}"] <= 1
    assert metrics["input_edge_homophily"] == pytest.approx(0.8, abs=0.01)
    assert plain["metrics"] == {}
    assert plain["test_accuracy"] == observed["test_accuracy"]
    assert (plain["timed"], observed["timed"]) == (True, False)


def test_lines_that_are_no_rows_do_no_harm(out):
    run([cell()], out, seeds=1)
    whole = out.read_text()
    append_line(out, json.dumps({"benchmark": "op", "seed": 0}))
    append_line(out, "[1, 2]")
    with out.open("a") as file:
        file.write(whole[: len(whole) // 2])  # a writer that was killed
    assert run([cell()], out).made == 1
    assert len(latest(read_rows(out))) == 2


def test_damaged_lines_are_named_and_foreign_files_are_left_alone(out):
    run([cell()], out)
    first, second = read_rows(out)
    absurd = [{**first, "val_accuracy": None}, {**second, "train_seconds": -1}]
    lines = ["{cut", *map(json.dumps, absurd), json.dumps({"benchmark": "op"})]
    out.write_text("\n".join(lines) + "\n")
    assert find_rows(out)[:2] == (
        [],
        [
            "line 1: not JSON",
            "line 2: val_accuracy or error must say how the run ended; got neither",
            "line 3: train_seconds must lie in [0, 1e+12]; got -1",
        ],
    )
    before = out.read_text()
    assert run([cell()], out).made == 2
    assert out.read_text().startswith(before)
    for content in (b"\x80\x00\xff", b"a,b\n1,2\n", b"\x00{}"):
        out.write_bytes(content)
        with pytest.raises(InputError, match="must be in a file of JSON lines"):
            run([cell()], out)
        assert out.read_bytes() == content
    out.write_text('{"experiment": "ti')  # a writer that was killed at its first row
    assert run([cell()], out).made == 2


def test_what_rows_have_in_common_stands_in_the_file_once(out):
    run([cell()], out, seeds=3)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    common = {line["as"]: line["value"] for line in lines if set(line) == {"as", "value"}}
    short = [line for line in lines if set(line) != {"as", "value"}]
    assert [line["seed"] for line in short] == [0, 1, 2]
    assert len(common) == len(lines) - 3
    assert len({line["as"] for line in short}) == 1
    assert common[short[0]["as"]]["config"]["as"] in common
    assert not any("config" in line for line in short)
    rows = read_rows(out)
    assert [row["config"]["seed"] for row in rows] == [0, 1, 2]
    for given in ({"seed": 7, "epochs": 2}, {"epochs": 2}, {}):  # of others: as it is
        append_row(out, rows[0] | {"config": given}, set())
        assert read_rows(out)[-1]["config"] == given
    assert {row["config"]["epochs"] for row in rows} == {2}
    assert {(row["method"], row["target"], row["error"]) for row in rows} == {("gcn", TARGET, None)}
    assert all(row["provenance"]["commit"] for row in rows)
    out.write_text(f"{json.dumps(short[0])}\n{json.dumps({'as': 3, 'value': {}})}\n")
    assert [why.split(";")[0] for why in find_rows(out).damaged] == [
        "line 1: the row must be defined in a line before",
        "line 2: what rows have in common must have at most 100 fields",
    ]


def test_a_bug_is_a_row_that_says_so(out, monkeypatch):
    def buggy(*args):
        raise KeyError("lost\nkey")

    monkeypatch.setattr(cell_run, "fit_many", buggy)
    run([cell()], out, seeds=1)
    assert rows(out)[0]["error"].startswith(
        "the run must not meet a bug of graphglow; got KeyError"
    )


def test_data_is_looked_for_before_anything_runs(out, tmp_path):
    with pytest.raises(InputError, match="Cora"):
        run_elsewhere([cell(), cell("graphglow", sources=("cora",))], out, tmp_path)
    assert rows(out) == []


def test_graphs_that_are_there_are_not_read(tmp_path):
    (tmp_path / "CORA" / "raw").mkdir(parents=True)
    (tmp_path / "CORA" / "raw" / "x").touch()
    check_data(["cora", "wine", TARGET], tmp_path)
    (tmp_path / "reed98" / "raw").mkdir(parents=True)
    (tmp_path / "reed98" / "raw" / "data.mat").touch()
    with pytest.raises(InputError, match="reed98"):
        check_data(["reed98"], tmp_path)  # without the authors' split


def test_an_option_that_is_new_does_not_make_rows_foreign(out):
    run([cell("graphglow")], out, seeds=1)
    (row,) = rows(out)
    key = same_run(row)
    for part in ("config", "pretraining"):
        del row[part]["pivots_by_degree"]
    del row["pretraining"]["learner"]["neighbours"]
    assert same_run(row) == key
    row["config"]["pivots_by_degree"] = True
    assert same_run(row) != key
    assert same_run({"method": "gcn"}) is None


def test_progress_is_told(out):
    seen = []
    run([cell(), cell("graphglow")], out, seeds=1, on_progress=seen.append)
    assert {now.total for now in seen} == {3}
    assert (seen[0].done, seen[0].seconds_left, seen[0].running) == (
        0, None, ("GCN on synthetic-small, seed 0",),
    )  # fmt: skip
    assert seen[-1].done == 3
    assert seen[-1].running == ()
    assert all(now.seconds_left >= 0 for now in seen[1:])
    assert any("pre-training on wine" in now.running for now in seen) is False
    assert any(now.running == ("pre-training on wine, seed 0",) for now in seen)


def test_ctrl_c_keeps_what_is_done(out, monkeypatch):
    fit_many = cell_run.fit_many

    def stopped(name, data, configs):
        if name == "mlp":
            raise KeyboardInterrupt
        return fit_many(name, data, configs)

    with monkeypatch.context() as patch:
        patch.setattr(cell_run, "fit_many", stopped)
        with pytest.raises(KeyboardInterrupt):
            run([cell(), cell("mlp")], out)
    assert slots(out) == [("tiny", f"gcn/{TARGET}", 0), ("tiny", f"gcn/{TARGET}", 1)]
    assert run([cell(), cell("mlp")], out).made == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("seeds", 0), ("seed", -1), ("seed", 2**32), ("epochs", 0), ("processes", 0), ("patience", 0)],
)
def test_settings_are_checked_at_birth(name, value):
    with pytest.raises(InputError, match="must be"):
        replace(config(), **{name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"config": None},
        {"config": "x"},
        {"seed": [1]},
        {"cell": {}},
        {"val_accuracy": None},
        {"test_accuracy": "x"},
        {"error": {"a": 1}},
        {"pretraining": 5},
    ],
)
def test_a_row_with_a_field_that_means_nothing_is_made_anew(out, wrong):
    run([cell()], out, seeds=1)
    (row,) = rows(out)
    out.write_text("[" * 100_000 + "\n" + json.dumps(row | wrong) + "\n")
    assert rows(out) == []
    assert run([cell()], out, seeds=1).made == 1
    assert len(rows(out)) == 1


def test_a_second_reproduction_of_the_same_rows_is_refused_while_one_is_at_work(out, tmp_path):
    refused = []

    def meddle(progress):
        if not refused:
            with pytest.raises(InputError, match=r"one process at a time; got .*, which another"):
                run([cell()], out)
            refused.append(progress)
            assert run([cell()], tmp_path / "other.jsonl").made == 2  # its own rows

    assert run([cell()], out, on_progress=meddle).made == 2
    assert len(refused) == 1
    assert len(rows(out)) == 2
    left = {path.name for path in (*tmp_path.iterdir(), *out.parent.iterdir())}
    assert left == {"new", "other.jsonl", "rows.jsonl"}


def test_a_lock_that_is_a_pipe_is_refused(out):
    folder = learner_folder(out)
    folder.mkdir(parents=True)
    os.mkfifo(folder / reproduction.LOCK)
    with pytest.raises(InputError, match="regular file"):
        run([cell()], out)


def test_a_worker_that_a_signal_ended_is_no_failed_run(out, monkeypatch):
    """A scheduler sends SIGTERM to all of them: what they were at is lost, not failed."""

    def all_hear_it(futures, **_):
        for future in futures:
            future.exception = lambda: BrokenProcessPool()
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "wait", all_hear_it)
    with pytest.raises(reproduction.Interrupted):
        run([cell()], out)
    assert rows(out) == []
