"""Epochs as curves: TensorBoard as it is, MLflow and Weights & Biases as fakes that keep calls."""

import gc
import sys
import types

import pytest
from tiny_graphs import learner, pretrain_config, small_data, transfer_config

from graphglow.errors import InputError, InputWarning
from graphglow.training import Epoch, pretrain, transfer, transfer_many
from graphglow.training.run_log import RunLog, log_to, safe, series_name

CURVES = {"loss", "val_loss", "val_accuracy", "refinements"}
NUMBERS_RUNS = "run" in Epoch._fields


class Kept:
    """A tracker that keeps what it is told."""

    def __init__(self):
        self.written, self.closed = [], []

    def write(self, series, values, step):
        self.written.append((series, dict(values), step))

    def close(self, *, failed):
        self.closed.append(failed)


def epoch(number, *, graph="g", loss=1.0):
    return Epoch(graph, number, loss, 2.0, 0.5, 3)


def test_every_epoch_of_a_transfer_is_logged_with_its_numbers():
    kept = Kept()
    with RunLog(kept, "name") as log:
        result = transfer(learner(), small_data(), transfer_config(epochs=3), on_epoch=log)
        log.summary(result.summary())
    *epochs, summary = kept.written
    assert [(series, step) for series, _, step in epochs] == [
        ("small-0/run0", number) for number in (1, 2, 3)
    ]
    assert [values for _, values, _ in epochs] == [
        {name: getattr(e, name) for name in CURVES} for e in result.history
    ]
    assert summary[0] == "small-0/run0"
    assert summary[2] == 3
    assert summary[1]["test_accuracy"] == result.test_accuracy
    assert "target" not in summary[1]
    assert kept.closed == [False]


def test_steps_count_on_where_the_epochs_start_again():
    kept = Kept()
    log = RunLog(kept, "name")
    pretrain([small_data(), small_data(seed=1)], pretrain_config(episodes=2), on_epoch=log)
    for series in ("small-0/run0", "small-1/run0"):
        steps = [step for name, _, step in kept.written if name == series]
        assert steps == list(range(1, 9))


@pytest.mark.skipif(not NUMBERS_RUNS, reason="an epoch does not say yet of which run it is")
def test_the_runs_of_a_batch_have_series_of_their_own():
    kept = Kept()
    configs = [transfer_config(epochs=4, seed=seed) for seed in (0, 1, 2)]
    results = transfer_many(learner(), small_data(), configs, on_epoch=RunLog(kept, "name"))
    for run, result in enumerate(results):
        losses = [v["loss"] for series, v, _ in kept.written if series == f"small-0/run{run}"]
        assert losses == [e.loss for e in result.history]


def test_a_log_is_closed_once_and_says_whether_it_failed():
    kept = Kept()
    with pytest.raises(KeyboardInterrupt), RunLog(kept, "name") as log:
        raise KeyboardInterrupt
    log.close()
    assert kept.closed == [True]
    with pytest.raises(InputError, match="must be open"):
        log(epoch(1))


def test_a_log_that_nobody_closes_is_closed_in_the_end():
    kept = Kept()
    log = RunLog(kept, "name")
    log(epoch(1))
    del log
    gc.collect()
    assert kept.closed == [False]


@pytest.mark.parametrize("where", ["", "tensorboard", "tensorboard:", "file:x", ":x", None, 3])
def test_a_place_that_is_none_is_refused(where):
    with pytest.raises(InputError, match="tensorboard:FOLDER"):
        log_to(where)


@pytest.mark.parametrize(
    ("kind", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow"), ("wandb", "wandb")],
)
def test_a_missing_package_is_named_with_its_pip_line(kind, module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf'pip install "graphglow\[{kind}\]"'):
        log_to(f"{kind}:{tmp_path / 'logs'}")
    assert not (tmp_path / "logs").exists()


def test_names_are_made_safe():
    assert series_name("../a graph/b", 2) == "_a_graph_b/run2"
    assert safe("..") == "_"
    assert safe("cora-1.5_x") == "cora-1.5_x"


def curves(folder):
    """The scalars in a folder of event files, as TensorBoard reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_what_was_logged(tmp_path):
    pytest.importorskip("tensorboard")
    with log_to(f"tensorboard:{tmp_path}", name="mine", settings=transfer_config()) as log:
        log(epoch(1, loss=0.5))
        log(epoch(2, loss=0.25))
        log(epoch(1, graph="../other", loss=4.0))
    found = curves(tmp_path / "mine" / "g" / "run0")
    assert set(found) == CURVES
    assert found["loss"] == [(1, 0.5), (2, 0.25)]
    assert curves(tmp_path / "mine" / "_other" / "run0")["loss"] == [(1, 4.0)]


def test_two_logs_never_share_a_folder(tmp_path):
    pytest.importorskip("tensorboard")
    names = []
    for _ in range(3):
        with log_to(f"tensorboard:{tmp_path}", name="mine") as log:
            log(epoch(1))
            names.append(log.name)
    assert names == ["mine", "mine-2", "mine-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_a_log_folder_that_cannot_be_made_is_refused(tmp_path):
    pytest.importorskip("tensorboard")
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "inside"):
        with pytest.raises(InputError, match="log folder"):
            log_to(f"tensorboard:{place}")
    assert file.read_text() == "mine"


class FakeClient:
    """What is called of ``mlflow.MlflowClient``."""

    calls: list

    def get_experiment_by_name(self, name):
        if name == "unreachable":
            raise RuntimeError("no server\nat all")
        stage = {"known": "active", "gone": "deleted"}.get(name)
        known = types.SimpleNamespace(experiment_id="7", lifecycle_stage=stage)
        return None if stage is None else known

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "8"

    def create_run(self, experiment, *, tags):
        self.calls.append(("run", experiment, tags["mlflow.runName"]))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=tags["mlflow.runName"]))

    def log_batch(self, run, *, metrics=(), params=()):
        self.calls.append(("params", run, dict(params)) if params else ("metrics", run, metrics))

    def set_terminated(self, run, *, status):
        self.calls.append((status, run))


@pytest.fixture
def mlflow_calls(monkeypatch):
    calls = []
    monkeypatch.setattr(FakeClient, "calls", calls, raising=False)
    entities = types.ModuleType("mlflow.entities")
    entities.Metric = lambda key, value, timestamp, step: (key, value, step)
    entities.Param = lambda key, value: (key, value)
    mlflow = types.ModuleType("mlflow")
    mlflow.MlflowClient, mlflow.entities = FakeClient, entities
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return calls


def test_mlflow_gets_a_run_for_each_series(mlflow_calls):
    settings = {"epochs": 2, "objective": {"entropy": 0.5}}
    with log_to("mlflow:new", name="mine", settings=settings) as log:
        log(epoch(1, loss=0.5))
        log(epoch(1, graph="other"))
        log(epoch(2))
    assert mlflow_calls[:3] == [
        ("experiment", "new"),
        ("run", "8", "mine/g/run0"),
        ("params", "mine/g/run0", {"epochs": "2", "objective.entropy": "0.5"}),
    ]
    metrics = {}
    for call in mlflow_calls:
        if call[0] == "metrics":
            metrics.setdefault(call[1], []).extend(call[2])
    assert {key for key, _, _ in metrics["mine/g/run0"]} == CURVES
    assert [m for m in metrics["mine/g/run0"] if m[0] == "loss"] == [
        ("loss", 0.5, 1),
        ("loss", 1.0, 2),
    ]
    assert mlflow_calls[-2:] == [("FINISHED", "mine/g/run0"), ("FINISHED", "mine/other/run0")]


def test_mlflow_takes_a_known_experiment_and_marks_a_failure(mlflow_calls):
    log = log_to("mlflow:known", name="mine")
    log(epoch(1))
    log.close(failed=True)
    assert mlflow_calls[0] == ("run", "7", "mine/g/run0")
    assert mlflow_calls[-1] == ("FAILED", "mine/g/run0")


def test_what_cannot_be_opened_is_one_sentence(mlflow_calls):
    with pytest.raises(InputError, match=r"mlflow must be ready to log to '.*'; got: no server$"):
        log_to("mlflow:unreachable")
    with pytest.raises(InputError, match="an MLflow experiment must not be deleted; got 'gone'"):
        log_to("mlflow:gone")
    assert mlflow_calls == []


class FakeRun:
    def __init__(self, **settings):
        self.settings, self.defined, self.logged, self.exit_code = settings, [], [], None

    def define_metric(self, name, *, step_metric):
        self.defined.append((name, step_metric))

    def log(self, values):
        self.logged.append(values)

    def finish(self, *, exit_code):
        self.exit_code = exit_code


def test_weights_and_biases_gets_one_run_with_a_step_for_each_series(monkeypatch):
    runs = []
    wandb = types.ModuleType("wandb")
    wandb.init = lambda **settings: runs.append(FakeRun(**settings)) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with log_to("wandb:project", name="mine", settings={"epochs": 2}) as log:
        log(epoch(1))
        log(epoch(2))
        log(epoch(1, graph="other"))
    (run,) = runs
    assert run.settings == {"project": "project", "name": "mine", "config": {"epochs": 2}}
    assert run.defined == [("g/run0/*", "g/run0/epoch"), ("other/run0/*", "other/run0/epoch")]
    assert [values.get("g/run0/epoch") for values in run.logged] == [1, 2, None]
    assert run.logged[2]["other/run0/loss"] == 1.0
    assert run.exit_code == 0


def test_a_log_that_is_lost_does_not_end_the_training():
    class Full(Kept):
        def write(self, series, values, step):
            if step == 2:
                raise OSError(28, "No space left on device")
            super().write(series, values, step)

        def close(self, *, failed):
            raise OSError(28, "No space left on device")

    kept = Full()
    with (
        pytest.warns(InputWarning, match="training goes on: .*No space left") as told,
        RunLog(kept, "name") as log,
    ):
        result = transfer(learner(), small_data(), transfer_config(epochs=4), on_epoch=log)
    assert len(told) == 1
    assert len(result.history) == 4
    assert [step for _, _, step in kept.written] == [1]
