"""The settings file: read, merged, replaced in one step, and turned into configs."""

import json
import os
import threading
from pathlib import Path

import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.lab.search.settings import (
    Settings,
    check_settings,
    config_of,
    locked,
    read_settings,
    write_settings,
)
from graphglow.lab.search.space import encoded, nested
from graphglow.settings import LearnerConfig, ObjectiveConfig, PretrainConfig

GCN = METHODS["gcn"].config
KNOWN = Settings({"gcn": {"cora": {"dropout": 0.2}, "reed98": {"hidden": 16}}})


def test_an_absent_file_holds_nothing(tmp_path):
    assert read_settings(tmp_path / "settings.json") == Settings()
    assert Settings().of("gcn", "cora") == {}
    (tmp_path / "settings.json").touch()
    assert read_settings(tmp_path / "settings.json") == Settings()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "settings.json"
    write_settings(path, KNOWN)
    assert read_settings(path) == KNOWN
    assert read_settings(path).of("gcn", "cora") == {"dropout": 0.2}
    assert read_settings(path).of("gcn", "pubmed") == {}
    assert read_settings(path).of("gat", "cora") == {}
    assert list(path.parent.iterdir()) == [path]


def test_what_is_given_out_is_a_copy():
    KNOWN.of("gcn", "cora")["dropout"] = 0.9
    nested = Settings({"graphglow": {"cora": {"transfer": {"dropout": 0.1}}}})
    nested.of("graphglow", "cora")["transfer"]["dropout"] = 0.9
    assert KNOWN.of("gcn", "cora") == {"dropout": 0.2}
    assert nested.of("graphglow", "cora") == {"transfer": {"dropout": 0.1}}


def test_one_entry_is_replaced_and_the_others_stay():
    after = KNOWN.having("gcn", "cora", {"hidden": 8}).having("mlp", "cora", {"hidden": 4})
    assert after.of("gcn", "cora") == {"hidden": 8}
    assert after.of("gcn", "reed98") == {"hidden": 16}
    assert after.of("mlp", "cora") == {"hidden": 4}
    assert KNOWN.of("gcn", "cora") == {"dropout": 0.2}


def test_settings_of_given_sources_stand_beside_the_latest():
    both = Settings()
    both = both.having("graphglow", "reed98", {"transfer": {"dropout": 0.1}}, ["cora", "citeseer"])
    both = both.having("graphglow", "reed98", {"transfer": {"dropout": 0.2}}, ["amherst41"])
    assert both.of("graphglow", "reed98", ["citeseer", "cora"]) == {"transfer": {"dropout": 0.1}}
    assert both.of("graphglow", "reed98", ["amherst41"]) == {"transfer": {"dropout": 0.2}}
    assert both.of("graphglow", "reed98") == {"transfer": {"dropout": 0.2}}
    assert both.of("graphglow", "reed98", ["pubmed"]) == {"transfer": {"dropout": 0.2}}


@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", "3", '{"gcn": 3}', '{"gcn": {"cora": []}}', '{"gcn": {"cora": 0.5}}', "{"],
)
def test_another_file_is_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"settings file must .*settings\.json") as caught:
        read_settings(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="must be a file; got the folder"):
        read_settings(tmp_path)


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "settings.json"
    write_settings(path, KNOWN)
    with pytest.raises(ValueError, match="JSON"):
        write_settings(path, KNOWN.having("gcn", "cora", {"dropout": float("nan")}))
    assert read_settings(path) == KNOWN
    assert list(tmp_path.iterdir()) == [path]


def test_no_entry_of_several_writers_is_lost(tmp_path):
    path = tmp_path / "new" / "settings.json"

    def add(writer):
        for number in range(15):
            with locked(path):
                before = read_settings(path)
                write_settings(path, before.having(f"m{writer}", f"t{number}", {"a": number}))

    writers = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_settings(path).entries
    assert {name: len(targets) for name, targets in found.items()} == {
        f"m{i}": 15 for i in range(4)
    }
    assert list(path.parent.iterdir()) == [path]


def test_a_lock_where_nothing_can_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "settings.json"):
        with pytest.raises(InputError, match="must be writable"), locked(path):
            raise AssertionError("locked")


def test_a_lock_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "settings.json")
    with pytest.raises(InputError, match="regular file"), locked(tmp_path / "settings.json"):
        raise AssertionError("locked")


def test_a_config_from_settings():
    assert config_of(GCN, {}) == GCN()
    made = config_of(GCN, {"hidden": 8, "dropout": 0.1, "seed": 3}, seed=5, device="cpu")
    assert made == GCN(hidden=8, dropout=0.1, seed=5, device="cpu")


def test_a_config_with_configs_inside():
    settings = {
        "learner": {"embedding_size": 16, "num_heads": 6},
        "objective": {"smoothness": 0.3},
        "episodes": 2,
    }
    assert config_of(PretrainConfig, settings, seed=1) == PretrainConfig(
        learner=LearnerConfig(embedding_size=16, num_heads=6),
        objective=ObjectiveConfig(smoothness=0.3),
        episodes=2,
        seed=1,
    )
    ready = ObjectiveConfig(sparsity=0.0)
    assert config_of(PretrainConfig, {"objective": ready}).objective is ready


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("gcn", {"widht": 3}, "settings of GNNConfig must be among .*hidden.*; got 'widht'"),
        ("gcn", {"hidden": 64.0}, "hidden must be an integer; got 64.0"),
        ("gcn", {"dropout": "much"}, "dropout must be a number; got 'much'"),
        ("graphglow-knn", {"backend": "eager"}, "got 'backend'"),
        (
            "graphglow-star",
            {"objective": 3},
            "ObjectiveConfig must be made of settings; got 3",
        ),
        (
            "graphglow-star",
            {"objective": {"alpha": 1}},
            "ObjectiveConfig .*got 'alpha'",
        ),
        ("graphglow-star", {"objective": {"smoothness": "x"}}, "must be a number; got 'x'"),
    ],
)
def test_what_is_no_setting_is_refused_in_one_sentence(name, settings, said):
    with pytest.raises(InputError, match=said) as caught:
        config_of(METHODS[name].config, settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_value_of_every_space_survives_the_file_and_the_storage(name, tmp_path):
    method = METHODS[name]
    for setting, values in method.space.items():
        stored = [encoded(value) for value in values]
        assert len(set(stored)) == len(values)
        assert stored == json.loads(json.dumps(stored))
        for value in values:
            written = json.loads(json.dumps(nested({setting: encoded(value)})))
            assert config_of(method.config, written) == method.config(**{setting: value})


def test_a_stored_value_is_the_same_whatever_the_order():
    assert encoded(ObjectiveConfig(sparsity=0.3)) == encoded(ObjectiveConfig(sparsity=0.3))
    assert encoded((1, 2)) == "[1, 2]"
    assert encoded("text") == "text"
    keys = list(json.loads(encoded(ObjectiveConfig())))
    assert keys == sorted(keys)


# The check before anything runs

FILE = Path("mine.json")
GLOW = {"pretrain": {"episodes": 2, "epochs": 50}, "transfer": {"dropout": 0.2}}


def test_what_search_writes_passes():
    entries = {
        "gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
        "lds": {"cora": {"knn": None}, "citeseer": {"knn": 5}},
        "graphglow": {
            "reed98": GLOW,
            "reed98 < cora+pubmed": GLOW,
            "cora < learner universal": {"transfer": {"dropout": 0.2}},
        },
        "graphglow-star": {"cora": {"objective": {"entropy": 0}}},
    }
    assert check_settings(Settings(entries), FILE) == []


def test_the_settings_of_the_tables_pass():
    path = Path(__file__).parents[2] / "results" / "settings.json"
    assert check_settings(read_settings(path), path) == []


def test_graphs_of_the_users_own_are_named():
    (said,) = check_settings(Settings({"gcn": {"my-shop": {"dropout": 0.5}}}), FILE)
    assert said == "settings of gcn on my-shop in mine.json are not used: no graph has that name"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"gnc": {}}, "methods in mine.json must be one of .*; got 'gnc'"),
        ({"gcn": {"cora": {"seed": 1}}}, "got seed .*, for gcn on cora in mine.json"),
        ({"gcn": {"cora": {"epochs": 1}}}, "must be given to graphglow reproduce"),
        ({"graphglow": {"cora": {"transfer": {"patience": 1}}}}, "got patience"),
        ({"graphglow": {"cora": {"pretrain": {"device": "cpu"}}}}, "got device"),
        (
            {"graphglow": {"cora": {"pretrain": 3}}},
            "be made of settings; got 3, for graphglow",
        ),
        ({"graphglow": {"cora": {"wings": 2}}}, "parts must be one of pretrain, .*got 'wings'"),
        ({"gcn": {"cora": {"dropout": "high"}}}, "must be a number; got 'high', for gcn on cora"),
        ({"random-theta": {"cora": {"redraw_pivots": "no"}}}, "true or false; got 'no'"),
    ],
)
def test_what_no_run_can_use_is_refused(entries, message):
    with pytest.raises(InputError, match=message):
        check_settings(Settings(entries), FILE)
