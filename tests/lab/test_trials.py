"""Trials by Optuna: each with settings of its own, resumable, shared; and where they are kept."""

import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from small_search import FAST, found, graph

from graphglow.errors import InputError
from graphglow.lab.search.study import Trials, open_storage, search, without_password
from graphglow.workers.executor import RunFailed, Workers, open_executor

SPACE = {f"s{i}": tuple(range(5)) for i in range(6)}


def total(trials):
    return [[float(sum(values.values()))] for values in trials]


def run_trials(storage, *, budget, seed=0, evaluate=total, space=SPACE, executor=None, **more):
    """The settled trials of a study in a storage, gone on with up to a budget."""
    study = Trials(storage, "study", space, budget, seed)
    *_, settled = study.run(evaluate, executor or open_executor(1), **more)
    return settled


def in_memory(**more):
    return run_trials(open_storage(None), **more)


def params(settled):
    return [trial.params for trial in settled]


def test_the_seed_decides_the_draws_and_they_go_where_scores_are_good():
    one, same, other = (
        in_memory(budget=budget, seed=s) for budget, s in ((60, 0), (14, 0), (14, 1))
    )
    assert params(one)[:14] == params(same)
    assert params(same) != params(other)
    scores = [trial.value for trial in one]
    assert sum(scores[:10]) / 10 < 15  # at random 12 is expected
    assert sum(scores[-20:]) / 20 > 16
    assert len({str(values) for values in params(one)}) == 60


@pytest.mark.parametrize("space", [SPACE, {"a": (0, 1, 2, 3), "b": (0, 1, 2, 3)}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupted_trials_go_on_as_if_they_had_not_been(error, space):
    calls = []

    def interrupted(drawn):
        calls.append(drawn)
        if len(calls) in (4, 13):
            raise error
        return total(drawn)

    storage = open_storage(None)
    for _ in range(2):
        with pytest.raises(error):
            run_trials(storage, budget=16, evaluate=interrupted, space=space)
    settled = run_trials(storage, budget=16, evaluate=interrupted, space=space)
    assert params(settled) == params(in_memory(budget=16, space=space))
    assert len(calls) == 18


def test_what_another_process_has_in_hand_is_not_tried_again_and_does_not_count():
    """Whether it lives or was killed."""
    storage = open_storage(None)
    theirs = Trials(storage, "study", SPACE, budget=5, seed=0)._drawn([]).params
    settled = run_trials(storage, budget=5)
    assert len(settled) == 5
    assert theirs not in params(settled)


def test_of_a_small_space_that_which_a_killed_process_had_is_tried_in_the_end():
    storage = open_storage(None)
    Trials(storage, "study", {"a": (0, 1, 2)}, budget=3, seed=0)._drawn([])
    settled = run_trials(storage, budget=3, space={"a": (0, 1, 2)})
    assert {trial.params["a"] for trial in settled} == {0, 1, 2}


def test_several_processes_end_together_with_the_first_of_their_trials():
    storage = open_storage(None)

    def evaluate(drawn):
        if len(mine.settled()) == 1:  # while this one is made, another process goes on
            run_trials(storage, budget=3)
        return total(drawn)

    mine = Trials(storage, "study", SPACE, budget=3, seed=0)
    list(mine.run(evaluate, open_executor(1)))
    complete = [t for t in mine.study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    assert len(complete) == 4  # one too many
    assert mine.settled() == complete[:3]


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
    assert (first.user_attrs["failure"], first.value) == ("no", None)
    assert all(trial.value is not None for trial in others)


class Dying(Workers):
    """Two workers, of which some calls die."""

    processes = 2

    def __init__(self, dies):
        self.calls, self.dies = 0, dies

    def submit(self, function, *args):
        future = Future()
        self.calls += 1
        if self.dies(self.calls):
            future.set_exception(RunFailed("killed"))
        else:
            future.set_result(function(*args))
        return future


def test_the_trial_of_a_worker_that_dies_is_void_and_another_takes_its_place():
    executor = Dying(lambda call: call in (2, 3))
    storage = open_storage(None)
    assert len(run_trials(storage, budget=4, executor=executor)) == 4
    assert executor.calls == 6
    with pytest.raises(InputError, match=r"must live through a trial; got none that did"):
        run_trials(storage, budget=6, executor=Dying(lambda call: True))
    assert len(run_trials(storage, budget=6)) == 6


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        (".", "must be writable"),
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
        found(storage=storage)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "what?.db", "#1.db"])
def test_a_file_may_be_called_anything(tmp_path, name):
    found(storage=tmp_path / name, config=replace(FAST, trials=1, seeds_per_trial=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_password_does_not_reach_the_row(monkeypatch):
    assert without_password("mysql://me:se@cret@host/db") == "mysql://me:***@host/db"
    assert without_password("folder/t:1@x.db") == "folder/t:1@x.db"
    url = "postgresql://me:secret@host/db"
    monkeypatch.setattr(sys, "argv", ["graphglow", "search", "--storage", url, "--trials", "1"])
    row = search("gcn", graph(), replace(FAST, trials=1))
    assert "postgresql://me:***@host/db --trials 1" in row["provenance"]["command"]
