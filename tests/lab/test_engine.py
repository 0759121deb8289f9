"""One engine: what is missing is made, what is there is kept, what fails is a row."""

import pandas as pd
import pytest
from small_cells import TARGET, TUNED, cell, config, rows, run

from graphglow.errors import InputError
from graphglow.lab import runs
from graphglow.lab.row_files import newest


@pytest.fixture
def out(tmp_path):
    return tmp_path / "rows.jsonl"


def slots(out):
    return [(row["cell"], row["seed"]) for row in rows(out)]


def test_every_cell_and_seed_leaves_a_row(out):
    outcome = run([cell(), cell("graphglow")], out)
    assert (outcome.made, outcome.failed, outcome.left) == (4, 0, 0)
    assert slots(out) == [(f"{m}/{TARGET}", s) for m in ("gcn", "graphglow") for s in (0, 1)]
    gcn, glow = rows(out)[0], rows(out)[-1]
    assert 0 < gcn["test_accuracy"] <= 1
    assert (gcn["epochs"], gcn["config"]["hidden"], gcn["device"]) == (2, 4, "cpu")
    assert gcn["provenance"]["versions"]["torch"]
    assert (glow["sources"], glow["pretraining"]["learner"]["embedding_size"]) == (["wine"], 4)
    assert glow["pretrain_seconds"] > 0
    assert pd.read_json(out, lines=True)["method"].tolist() == [r["method"] for r in rows(out)]


def test_only_what_is_missing_is_made(out):
    run([cell()], out, seeds=1)
    first = out.read_text()
    assert run([cell("mlp"), cell()], out, seeds=3).made == 5
    assert out.read_text().startswith(first)
    assert run([cell("mlp"), cell()], out, seeds=3).made == 0
    assert len(set(slots(out))) == len(slots(out)) == 6


def test_changed_settings_are_run_anew_and_the_last_ones_count(out):
    run([cell()], out)
    assert run([cell()], out, tuned={"gcn": {TARGET: {"hidden": 5}}}).made == 2
    assert {row["config"]["hidden"] for row in newest(rows(out))} == {5}
    assert run([cell()], out).made == 0  # rows of the first settings are still there


def test_cells_share_their_runs(out, monkeypatch):
    made = []
    fit = runs.fit
    monkeypatch.setattr(runs, "fit", lambda *given: made.append(given) or fit(*given))
    twin = cell(experiment="other", line="twin", x=2.0, label="Twin")
    assert run([cell(), twin], out, seeds=1).made == 2
    assert run([cell(line="third")], out, seeds=1).made == 1
    assert len(made) == 1
    one, two, three = sorted(rows(out), key=lambda row: row["label"] == "Twin")
    assert one["test_accuracy"] == two["test_accuracy"] == three["test_accuracy"]
    assert (three["experiment"], three["cell"], three["x"]) == ("other", f"twin/{TARGET}", 2.0)


def test_seconds_are_those_of_a_run_for_its_own_experiment(out):
    run([cell()], out)
    assert run([cell(experiment="other", timed=True)], out).made == 1  # one seed, none copied


def test_cells_with_one_learner_train_it_once(out, monkeypatch):
    made = []
    pretrain = runs.pretrain
    monkeypatch.setattr(
        runs, "pretrain", lambda *given, **more: made.append(given) or pretrain(*given, **more)
    )
    swept = [cell("graphglow", line=f"{x}", settings={"input_weight": x}) for x in (0.2, 0.4)]
    run(swept, out)
    run([cell("graphglow", line="more", settings={"input_weight": 0.6})], out)
    assert len(made) == 2  # each of the two seeds has a learner
    run([cell("graphglow", line="mlp", pretraining={"encoder": "mlp"})], out, seeds=1)
    assert len(made) == 3


def test_a_run_that_fails_is_a_row_and_is_not_tried_again_unless_told(out, monkeypatch):
    def blown(*_given):
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "fit", blown)
        outcome = run([cell()], out)
    assert (outcome.failed, outcome.errors) == (2, {"The run did not fit in memory.": 2})
    assert run([cell()], out).made == 0
    assert run([cell()], out, retry_failed=True).failed == 0
    assert ["error" in row for row in newest(rows(out))] == [False, False]


def test_what_keeps_all_from_starting_is_raised_and_no_row(out, tmp_path):
    with pytest.raises(InputError):
        runs.run_cells([cell(target="citeseer")], out, config(), TUNED, data_root=tmp_path)
    with pytest.raises(InputError, match="no setting 'wings'"):
        run([cell(settings={"wings": 2})], out)
    assert not out.exists()


def test_damage_is_done_to_the_target_by_the_seed(out, monkeypatch):
    seen, fit = [], runs.fit
    monkeypatch.setattr(runs, "fit", lambda m, data, c: seen.append(data) or fit(m, data, c))
    run([cell(damage=("delete", 0.5)), cell(line="whole")], out)
    one, other, whole, _ = (data.edge_index for data in seen)
    assert one.shape[1] == other.shape[1] == whole.shape[1] // 2
    assert not (one == other).all()
    assert rows(out)[0]["damage"] == ["delete", 0.5]


def test_an_observed_run_has_curves(out):
    run([cell("graphglow", observe_every=2), cell("graphglow", line="plain")], out, epochs=5)
    observed, _, plain, _ = rows(out)
    metrics = observed["metrics"]
    assert metrics["epoch"] == [0, 2, 4]
    for name in ("homophily", "edge_homophily", "neighbourhood_variance"):
        assert all(0 <= value <= 1 for value in metrics[name] + metrics[f"pivot_{name}"])
        assert len(metrics[name]) == len(metrics[f"pivot_{name}"]) == 3
    assert metrics["input_edge_homophily"] == pytest.approx(0.8, abs=0.01)
    assert plain["test_accuracy"] == observed["test_accuracy"]


def test_no_time_leaves_runs_for_the_next_time(out):
    outcome = run([cell()], out, seconds=0.0)
    assert (outcome.made, outcome.left) == (1, 1)
    assert run([cell()], out).made == 1


@pytest.mark.slow
def test_processes_make_the_same_rows(out, tmp_path):
    cells = [cell(), cell("mlp")]
    run(cells, out)
    run(cells, tmp_path / "two.jsonl", workers=2)
    found = [
        {(row["cell"], row["seed"]): row["test_accuracy"] for row in rows(path)}
        for path in (out, tmp_path / "two.jsonl")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"seed": -1}, {"workers": 0}, {"device": "gpu"}])
def test_settings_are_checked_at_birth(wrong):
    with pytest.raises(InputError):
        config(**wrong)
