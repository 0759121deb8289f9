"""Reproduction: what rows hold, that only what is missing is run, and what failures leave."""

import gzip
import json
from collections import Counter
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pandas
import pytest
from small_cells import GLOW, SETTINGS, TARGET, cell, config, rows, run, slots

from graphglow.errors import InputError
from graphglow.lab.paper import Accuracy
from graphglow.lab.paper.cells import Damage
from graphglow.lab.runs import learners
from graphglow.lab.runs import reproduce as reproduction
from graphglow.lab.runs import run as run_module
from graphglow.lab.runs.learners import without_files
from graphglow.lab.runs.reproduce import learner_folder, make_plan
from graphglow.lab.runs.rows import line_of, read_rows, same_run
from graphglow.lab.settings import Settings
from graphglow.storage import append_line
from graphglow.workers.executor import InThisProcess, WorkerLost

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


def latest(out):
    """Of the rows about one cell and seed the last."""
    return list({row.slot: row for row in rows(out)}.values())


@pytest.fixture
def pretrained(monkeypatch):
    """Sources and seed of each pre-training that is made."""
    made, pretrain = [], learners.pretrain

    def counted(graphs, config):
        made.append(("+".join(graph.name for graph in graphs), config.seed))
        return pretrain(graphs, config)

    monkeypatch.setattr(learners, "pretrain", counted)
    return made


def test_rows_hold_what_was_agreed(out):
    cells = [cell(paper=Accuracy(0.6, 0.01), x=0.5, series="s"), cell("graphglow"), cell("mlp")]
    outcome = run(cells, out, seeds=1)
    assert outcome[:4] == (3, 0, 0, {})
    gcn, glow, mlp = rows(out)
    for row in (gcn, glow, mlp):
        assert {name: type(getattr(row, name)) for name in CONTRACT} == CONTRACT
        assert 0 <= row.test_accuracy <= 1
        assert (row.epochs, row.config["epochs"], row.error) == (2, 2, "")
        assert (row.split, row.seed, row.timed) == ("random seed 0", 0, True)
    assert (gcn.paper, gcn.paper_std, gcn.x, gcn.series) == (0.6, 0.01, 0.5, "s")
    assert (gcn.sources, gcn.pretrain_seconds, gcn.pretraining) == ((), None, {})
    assert (mlp.paper, mlp.paper_std, mlp.x) == (None, None, None)
    assert glow.sources == ("wine",)
    assert glow.pretrain_seconds > 0
    assert glow.pretraining["learner"]["embedding_size"] == 4
    assert glow.config["num_pivots"] == 8


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
    assert {row.epochs for row in latest(out)} == {3}
    assert len(rows(out)) == 4
    outcome = run([cell()], out)
    assert (outcome.made, outcome.copied) == (0, 2)
    assert {row.epochs for row in latest(out)} == {2}
    other = Settings({"gcn": {TARGET: {"hidden": 5}}})
    assert run([cell()], out, settings=other).made == 2


def test_experiments_share_their_runs(out):
    twin = cell(experiment="other", key="the same", x=2.0, label="Twin")
    assert run([cell(), twin], out).made == 2
    assert Counter(row.experiment for row in rows(out)) == {"tiny": 2, "other": 2}
    late = cell(experiment="late")
    assert run([late], out)[:2] == (0, 2)
    found = {(row.experiment, row.seed): row for row in rows(out)}
    for seed in (0, 1):
        one, two, three = (found[name, seed] for name in ("tiny", "other", "late"))
        assert one.test_accuracy == two.test_accuracy == three.test_accuracy
        assert (one.copied_from, two.copied_from, three.copied_from) == (
            "", "tiny", "tiny",
        )  # fmt: skip
        assert (two.x, two.label, two.cell) == (2.0, "Twin", "the same")
        assert one.config == two.config
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
        learner = row.seed, row.pretraining["encoder"]
        seconds.setdefault(learner, set()).add(row.pretrain_seconds)
    assert [len(found) for found in seconds.values()] == [1, 1, 1, 1]


def test_seeds_share_one_learner_unless_told_otherwise(out, pretrained):
    run([cell("graphglow")], out)
    assert pretrained == [("wine", 0)]
    assert [row.pretraining["seed"] for row in rows(out)] == [0, 0]
    run([cell("graphglow")], out, learners=2)
    assert pretrained == [("wine", 0), ("wine", 1)]
    assert len(rows(out)) == 3  # the first seed's learner is the same


def test_a_damaged_learner_is_made_anew(out, pretrained):
    run([cell("graphglow")], out, seeds=1)
    (path,) = learner_folder(out).glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:50])
    run([cell("graphglow", key="more", settings={"input_weight": 0.1})], out, seeds=1)
    assert len(pretrained) == 2
    assert rows(out)[-1].error == ""


def test_a_run_that_fails_is_a_row_and_is_not_tried_again(out):
    outcome = run([cell(), cell("mlp")], out, settings=NAN, epochs=20)
    assert (outcome.made, outcome.failed) == (4, 2)
    ((error, count),) = outcome.errors.items()
    assert count == 2
    assert "loss must stay finite" in error
    failed = [row for row in rows(out) if row.error]
    assert [row.test_accuracy for row in failed] == [None, None]
    assert all("\n" not in row.error and row.method == "gcn" for row in failed)
    assert run([cell(), cell("mlp")], out, settings=NAN, epochs=20).made == 0
    twin = run([cell(experiment="twin")], out, settings=NAN, epochs=20)
    assert (twin.made, twin.copied) == (0, 2)
    again = run([cell(), cell("mlp")], out, settings=NAN, epochs=20, retry_failed=True)
    assert (again.made, again.failed) == (2, 2)


def test_a_failure_that_is_mended_is_replaced(out, monkeypatch):
    def blown(*args):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "fit_many", blown)
        run([cell()], out)
    assert {row.error for row in rows(out)} == {
        "the run must fit in memory; it took more than there was"
    }
    assert run([cell()], out, retry_failed=True).failed == 0
    assert [row.error for row in latest(out)] == ["", ""]
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
    for there in (cell(target="citeseer"), cell("graphglow", sources=("citeseer",))):
        with pytest.raises(InputError, match=r"must exist|must be"):
            reproduction.reproduce([there], out, config(), SETTINGS, data_root=tmp_path)
    with pytest.raises(InputError, match="got 'wings'"):
        run([cell(settings={"wings": 2})], out)
    assert rows(out) == []


def test_a_batch_gives_what_runs_alone_give(out, tmp_path):
    cells = [cell(), cell("graphglow"), cell("random-theta")]
    run(cells, out)
    both = tmp_path / "both.jsonl"
    run(cells, both, batch_seeds=True)
    alone, batched = ({(r.cell, r.seed): r for r in rows(path)} for path in (out, both))
    assert alone.keys() == batched.keys()
    for key, row in batched.items():
        assert (row.runs_at_once, row.timed) == (2, False)
        assert row.val_accuracy == pytest.approx(alone[key].val_accuracy, abs=0.05)
        assert row.config == alone[key].config
    assert run(cells, both).made == 0


def test_a_batch_that_fails_is_tried_one_by_one(out, monkeypatch):
    fit_many = run_module.fit_many

    def fails_together(name, data, configs):
        if len(configs) > 1:
            raise InputError("too many")
        return fit_many(name, data, configs)

    monkeypatch.setattr(run_module, "fit_many", fails_together)
    assert run([cell()], out, batch_seeds=True).failed == 0
    assert [row.runs_at_once for row in rows(out)] == [1, 1]


def test_seconds_are_never_those_of_a_batch(out):
    timed = cell(experiment="time", timed=True)
    run([cell(), timed], out, batch_seeds=True)
    assert {row.runs_at_once for row in rows(out)} == {1}
    assert [row.experiment for row in rows(out)] == ["time", "tiny", "tiny"]  # once is enough
    run([cell("random-theta")], out, batch_seeds=True)
    timed = cell("random-theta", experiment="time", timed=True)
    assert run([timed], out, batch_seeds=True)[:2] == (1, 0)  # not from the batch
    assert run([timed], out)[:2] == (0, 0)


def test_seconds_of_another_experiment_are_not_taken_over(out):
    run([cell()], out)
    timed = [cell(experiment="time", timed=True)]
    plan = make_plan(timed, config(), SETTINGS, rows(out), learner_folder(out))
    counts = plan.counts["time"]
    assert (counts["copied"], counts["missing"]) == (0, 1)


def test_damage_is_done_to_the_target_by_the_seed(out, monkeypatch):
    seen, fit_many = [], run_module.fit_many

    def watched(name, data, configs):
        seen.append(data.edge_index)
        return fit_many(name, data, configs)

    monkeypatch.setattr(run_module, "fit_many", watched)
    run([cell(damage=Damage("delete", 0.5), x=0.5), cell(key="whole")], out, batch_seeds=True)
    one, other, whole = seen
    assert one.shape[1] == other.shape[1] == whole.shape[1] // 2
    assert not (one == other).all()
    assert rows(out)[0].damage == {"kind": "delete", "ratio": 0.5}


def test_an_observed_run_has_curves(out):
    run([cell("graphglow", observe_every=2), cell("graphglow", key="plain")], out, epochs=5)
    observed, _, plain, _ = rows(out)
    metrics = observed.metrics
    assert metrics["epoch"] == (0, 2, 4)
    for name in ("homophily", "edge_homophily", "neighbourhood_variance"):
        assert len(metrics[name]) == 3
        assert len(metrics[f"pivot_{name}"]) == 3
        assert all(0 <= value <= 1 for value in metrics[name] + metrics[f"pivot_{name}"])
        assert 0 <= metrics[f"input_{name}"] <= 1
    assert metrics["input_edge_homophily"] == pytest.approx(0.8, abs=0.01)
    assert plain.metrics == {}
    assert plain.test_accuracy == observed.test_accuracy
    assert (plain.timed, observed.timed) == (True, False)


def test_lines_that_are_no_rows_do_no_harm(out):
    run([cell()], out, seeds=1)
    whole = out.read_text()
    append_line(out, json.dumps({"benchmark": "op", "seed": 0}))
    append_line(out, "[1, 2]")
    with out.open("a") as file:
        file.write(whole[: len(whole) // 2])  # a writer that was killed
    assert run([cell()], out).made == 1
    assert len(latest(out)) == 2


def test_a_file_without_rows_is_left_alone(out):
    out.parent.mkdir()
    for content in (b"\x80\x00\xff", b"a,b\n1,2\n", b"\x00{}", b'{"benchmark": "op"}\n'):
        out.write_bytes(content)
        with pytest.raises(InputError, match=r"must be in a file of rows; .*no rows in it"):
            run([cell()], out)
        assert out.read_bytes() == content
    out.write_text("")
    assert run([cell()], out).made == 2


def test_pandas_reads_rows_and_a_folder_has_a_file_for_each_experiment(tmp_path):
    folder = tmp_path / "rows"
    run([cell("graphglow"), cell(experiment="other")], folder, epochs=5)
    assert sorted(path.name for path in folder.iterdir()) == ["other.jsonl", "tiny.jsonl"]
    (learner,) = (tmp_path / "rows_learners").iterdir()
    frame = pandas.read_json(folder / "tiny.jsonl", lines=True)
    assert list(frame["test_accuracy"]) == [row.test_accuracy for row in read_rows(
        folder / "tiny.jsonl").rows]  # fmt: skip
    assert list(frame["sources"]) == [["wine"], ["wine"]]
    assert frame["error"].isna().all()
    packed = folder / "tiny.jsonl.gz"
    packed.write_bytes(gzip.compress((folder / "tiny.jsonl").read_bytes()))
    (folder / "tiny.jsonl").unlink()
    learner.unlink()
    assert run([cell("graphglow")], folder, epochs=5).made == 0  # packed ones are read too
    assert run([cell("graphglow")], folder, epochs=5, seeds=3).made == 1
    assert [row.seed for row in rows(folder) if row.experiment == "tiny"] == [0, 1, 2]
    assert len(pandas.read_json(packed, lines=True)) == 2


def test_a_bug_is_a_row_that_says_so(out, monkeypatch):
    def buggy(*args):
        raise KeyError("lost\nkey")

    monkeypatch.setattr(run_module, "fit_many", buggy)
    run([cell()], out, seeds=1)
    assert rows(out)[0].error.startswith("the run met a bug of graphglow: KeyError")


def test_graphs_that_are_there_are_not_read(tmp_path):
    (tmp_path / "CITESEER" / "raw").mkdir(parents=True)
    (tmp_path / "CITESEER" / "raw" / "x").touch()
    assert without_files(["citeseer", "wine", TARGET], tmp_path) == []
    (tmp_path / "reed98" / "raw").mkdir(parents=True)
    (tmp_path / "reed98" / "raw" / "data.mat").touch()
    assert without_files(["reed98"], tmp_path) == ["reed98"]  # without the authors' split


def test_an_option_that_is_new_does_not_make_rows_foreign(out):
    run([cell("graphglow")], out, seeds=1)
    row = vars(rows(out)[0])
    key = same_run(row)
    for part in ("config", "pretraining"):
        del row[part]["pivots_by_degree"]
    del row["pretraining"]["learner"]["neighbours"]
    assert same_run(row) == key
    row["config"]["pivots_by_degree"] = True
    assert same_run(row) != key
    assert same_run(row | {"method": "of others"}) != key


def test_progress_is_told(out):
    seen = []
    run([cell(), cell("graphglow")], out, seeds=1, told=lambda *now: seen.append(now))
    assert seen[0] == ("pre-training on wine, seed 0", 0, 3)
    assert ("GCN on synthetic-small, seed 0", 1, 3) in seen
    assert seen[-1] == ("", 3, 3)


def test_ctrl_c_keeps_what_is_done(out, monkeypatch):
    fit_many = run_module.fit_many

    def stopped(name, data, configs):
        if name == "mlp":
            raise KeyboardInterrupt
        return fit_many(name, data, configs)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "fit_many", stopped)
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
        {"seed": [1]},
        {"val_accuracy": None},
        {"pretraining": 5},
    ],
)
def test_a_row_with_a_field_that_means_nothing_is_made_anew(out, wrong):
    run([cell()], out, seeds=1)
    row = json.loads(line_of(rows(out)[0]))
    other = json.dumps(row | {"cell": "other", "method": "of others"})
    out.write_text("[" * 100_000 + "\n" + json.dumps(row | wrong) + "\n" + other + "\n")
    assert run([cell()], out, seeds=1).made == 1
    assert run([cell()], out, seeds=1).made == 0


class Dying(InThisProcess):
    """Of its processes the second is killed."""

    device, calls = "cpu", 0

    def submit(self, fn, /, *args):
        self.calls += 1
        if self.calls != 2:
            return super().submit(fn, *args)
        future = Future()
        future.set_exception(BrokenProcessPool())
        return future


def test_a_process_that_dies_ends_it_and_what_is_done_is_kept(out, monkeypatch):
    monkeypatch.setattr(reproduction, "open_executor", lambda *_, **__: Dying())
    with pytest.raises(WorkerLost, match="a worker died; the same command goes on where it was"):
        run([cell()], out)
    assert [row.seed for row in rows(out)] == [0]
    monkeypatch.undo()
    assert run([cell()], out).made == 1
