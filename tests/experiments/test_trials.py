"""Trials by Optuna: each with settings of its own, resumable, shared; and where they are kept."""

import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import pytest
from small_search import FAST, found, graph

from graphglow.errors import InputError
from graphglow.experiments import search, trial_storage, trials
from graphglow.experiments.search import Work

SPACE = {f"s{i}": tuple(range(5)) for i in range(6)}


def total(trials):
    return [[float(sum(values.values()))] for values in trials]


def run_trials(storage, *, budget, seed=0, evaluate=total, at_once=1):
    """The settled trials of a study in a storage, gone on with up to a budget."""
    study = trials.Trials(storage, "study", SPACE, budget=budget, seed=seed)
    study.run(evaluate, lambda settled: None, at_once=at_once)
    return study.settled()


def in_memory(**more):
    with trial_storage.opened(None) as storage:
        return run_trials(storage, **more)


def test_the_seed_decides_the_draws():
    one, same, other = (
        [trial.values for trial in in_memory(budget=14, seed=seed)] for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other


def test_draws_go_where_scores_are_good():
    means = [trial.mean for trial in in_memory(budget=60)]
    assert sum(means[:10]) / 10 < 15  # at random 12 is expected
    assert sum(means[-20:]) / 20 > 18


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupted_trials_go_on_as_if_they_had_not_been(error):
    whole = in_memory(budget=20)
    with trial_storage.opened(None) as storage:
        for calls in (4, 9):
            left = iter(range(calls))

            def evaluate(values, left=left):
                if next(left, None) is None:
                    raise error
                return total(values)

            with pytest.raises(error):
                run_trials(storage, budget=20, evaluate=evaluate)
        parts = run_trials(storage, budget=20)
    assert [trial.number for trial in parts] == [n for n in range(22) if n not in (4, 14)]
    assert [trial.values for trial in parts] == [trial.values for trial in whole]


def test_the_trial_of_a_process_that_was_killed_is_void():
    with trial_storage.opened(None) as storage:
        study = trials.Trials(storage, "study", SPACE, budget=1, seed=0).study
        gone, elsewhere, here = study.ask(), study.ask(), study.ask()
        gone.set_user_attr("worker", trials._worker(2**22 + 1))  # above any process number
        elsewhere.set_user_attr("worker", "another-machine pid 1")
        here.set_user_attr("worker", trials._worker(os.getppid()))
        assert len(run_trials(storage, budget=5)) == 3  # two may still be running


def test_two_workers_may_find_the_same_killed_trial(monkeypatch):
    with trial_storage.opened(None) as storage:
        study = trials.Trials(storage, "study", SPACE, budget=2, seed=0)
        study.study.ask().set_user_attr("worker", trials._worker(2**22 + 1))
        real = study.study.tell

        def late(trial, *values, **more):
            real(trial, *values, **more)
            if trial == 0:  # the other's word, between our look and ours
                raise optuna.exceptions.UpdateFinishedTrialError

        monkeypatch.setattr(study.study, "tell", late)
        study.run(total, lambda settled: None)
        assert [trial.number for trial in study.settled()] == [1, 2]


def test_no_more_are_begun_than_the_budget_has_left():
    with trial_storage.opened(None) as storage:
        mine = trials.Trials(storage, "study", SPACE, budget=3, seed=0)

        def evaluate(values):
            if len(mine.settled()) == 1:  # while this one runs, another worker goes on
                other = trials.Trials(storage, "study", SPACE, budget=3, seed=0)
                other.run(total, lambda settled: None)
            return total(values)

        mine.run(evaluate, lambda settled: None)
        assert len(mine.settled()) == 3


def test_the_surplus_of_a_race_is_void():
    with trial_storage.opened(None) as storage:
        study = trials.Trials(storage, "study", SPACE, budget=2, seed=0)
        run_trials(storage, budget=1)
        early = study.study.ask()  # another worker's, ahead of ours
        early.suggest_categorical("s0", list(SPACE["s0"]))
        assert study._drawn() is None
        assert study.study.trials[-1].state == optuna.trial.TrialState.FAIL
        assert len(study.settled()) == 1


def test_where_others_try_all_that_is_left_nothing_hangs():
    with trial_storage.opened(None) as storage:
        study = trials.Trials(storage, "study", {"a": (0, 1, 2)}, budget=2, seed=0)
        for _ in range(3):
            study.study.ask().suggest_categorical("a", [0, 1, 2])
        assert study._drawn() is None


def test_several_at_once_are_different_and_no_more_than_the_budget():
    sizes = []

    def evaluate(drawn):
        sizes.append(len(drawn))
        assert len({tuple(values.items()) for values in drawn}) == len(drawn)
        return total(drawn)

    settled = in_memory(budget=14, at_once=6, evaluate=evaluate)
    assert sizes == [6, 6, 2]
    assert [trial.number for trial in settled] == list(range(14))


def test_of_several_at_once_one_that_fails_leaves_the_others():
    def evaluate(drawn):
        return [InputError("no"), *total(drawn[1:])]

    first, *others = in_memory(budget=3, at_once=3, evaluate=evaluate)
    assert (first.failure, first.scores) == ("no", [])
    assert all(trial.scores for trial in others)


def test_several_at_once_that_are_interrupted_are_void():
    def interrupt(drawn):
        raise KeyboardInterrupt

    with trial_storage.opened(None) as storage:
        with pytest.raises(KeyboardInterrupt):
            run_trials(storage, budget=4, at_once=4, evaluate=interrupt)
        assert [trial.number for trial in run_trials(storage, budget=4)] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        (".", "must be a file or an Optuna URL"),
        ("text.db", "file is not a database"),
        ("nonsense://nowhere", "that Optuna can open; got nonsense://nowhere"),
        ("postgresql://me:secret@host/db", "got postgresql://me:"),
        ("text.db/below.db", "must be writable"),
    ],
)
def test_a_storage_that_cannot_be_is_refused(tmp_path, monkeypatch, storage, said):
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("not a database, but long enough to be taken for one " * 99)
    with pytest.raises(InputError, match=said) as caught:
        found(work=Work(storage=storage))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "{x}.db", "what?.db", "#1.db"])
def test_a_file_may_be_called_anything(tmp_path, name):
    found(work=Work(storage=tmp_path / name), config=replace(FAST, trials=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_password_does_not_reach_the_row(monkeypatch, tmp_path):
    url = f"sqlite:///{tmp_path}/t.db"
    secret = "mysql://me:secret@host/db"
    assert "secret" not in trial_storage.hidden_password(secret)
    monkeypatch.setattr(sys, "argv", ["graphglow", "search", "--storage", url])
    row = search.search("gcn", graph(), FAST, work=Work(storage=url))
    assert url in row["provenance"]["command"]
    monkeypatch.setattr(sys, "argv", ["graphglow", "search", "--storage", secret])
    origin = search._origin(secret, trial_storage.hidden_password)
    assert "secret" not in origin["command"]


# Trials of processes that were killed before they could say a word


def before(path, seconds):
    """Let all trials have begun so long ago."""
    then = (datetime.now() - timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S.%f")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE trials SET datetime_start = ?", (then,))
        database.commit()


@pytest.mark.parametrize(("seconds", "settled"), [(0, 2), (110, 2), (130, 3)])
def test_a_trial_that_never_gave_a_sign_of_life_is_void_in_the_end(tmp_path, seconds, settled):
    path = tmp_path / "t.db"
    with trial_storage.opened(path) as storage:
        trials.Trials(storage, "study", SPACE, budget=3, seed=0).study.ask()
    before(path, seconds)
    with trial_storage.opened(path) as storage:
        assert len(run_trials(storage, budget=3)) == settled


def test_a_trial_with_signs_of_life_is_not_void_however_old(tmp_path):
    path = tmp_path / "t.db"
    with trial_storage.opened(path) as storage:
        study = trials.Trials(storage, "study", SPACE, budget=3, seed=0).study
        trial_storage.begun(storage, study, {"worker": "another-machine pid 1"})
    before(path, 10_000)
    with trial_storage.opened(path) as storage:
        assert len(run_trials(storage, budget=3)) == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", ["record_heartbeat", "get_trial"])
def test_a_kill_right_after_a_trial_was_made_leaves_nothing_behind(tmp_path, monkeypatch, at):
    """It has its worker from the first moment, and so is void at once on the same machine."""

    def die(*args, **kwargs):
        raise Killed

    path, gone = tmp_path / "t.db", trials._worker(2**22 + 1)
    with trial_storage.opened(path) as storage:
        study = trials.Trials(storage, "study", SPACE, budget=3, seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(trials, "_worker", lambda pid: gone)
            patch.setattr(optuna.storages.RDBStorage, at, die)
            with pytest.raises(Killed):
                study.run(total, lambda settled: None)
    with trial_storage.opened(path) as storage:
        found = run_trials(storage, budget=3)
    assert [trial.number for trial in found] == [1, 2, 3]


# A storage that is damaged


def test_a_storage_with_a_damaged_page_is_refused(tmp_path):
    path = tmp_path / "t.db"
    with trial_storage.opened(path) as storage:
        run_trials(storage, budget=4)
    whole, refused = path.read_bytes(), 0
    for start in range(4096, len(whole), 4096):
        path.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])
        with pytest.raises(InputError) as caught, trial_storage.opened(path) as storage:
            run_trials(storage, budget=6)
        assert "database that Optuna can open; got" in str(caught.value)
        assert "\n" not in str(caught.value)
        refused += 1
    assert refused > 10


def test_a_storage_that_fails_in_the_middle_is_one_sentence(tmp_path):
    path = tmp_path / "t.db"

    def lose(drawn):
        with closing(sqlite3.connect(path)) as database:
            database.execute("DROP TABLE trial_values")
        return total(drawn)

    said = r"got .*t\.db \(no such table: trial_values\)"
    with pytest.raises(InputError, match=said), trial_storage.opened(path) as storage:
        run_trials(storage, budget=3, evaluate=lose)
