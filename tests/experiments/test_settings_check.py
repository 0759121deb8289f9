"""Settings files are refused, before anything runs, in a sentence that can be acted on."""

from pathlib import Path

import pytest

from graphglow.errors import InputError
from graphglow.experiments.settings import Settings
from graphglow.experiments.settings_check import check_settings

FILE = Path("mine.json")
GLOW = {"pretrain": {"episodes": 2, "epochs": 50}, "transfer": {"dropout": 0.2}}


def test_what_search_writes_passes():
    entries = {
        "gcn": {"cora": {"dropout": 0.5, "hidden": 64}},
        "lds": {"cora": {"knn": None}, "citeseer": {"knn": 5}},
        "graphglow": {
            "reed98": GLOW,
            "reed98 < cora+pubmed": GLOW,
        },
        "graphglow-star": {"cora": {"objective": {"entropy": 0}}},
    }
    assert check_settings(Settings(entries), FILE) == []


def test_graphs_of_the_users_own_are_named():
    (said,) = check_settings(Settings({"gcn": {"my-shop": {"dropout": 0.5}}}), FILE)
    assert said == "settings of gcn on my-shop in mine.json are not used: no graph has that name"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"gnc": {}}, "methods in mine.json must be among"),
        ({"gnc": {}}, r"got 'gnc' \(did you mean gcn"),
        ({"gcn": {"corra": {}}}, r"gcn on corra in mine.json .*did you mean cora"),
        ({"gcn": {"cora": {"seed": 1}}}, "got seed among the settings of gcn on cora in mine.json"),
        ({"gcn": {"cora": {"epochs": 1}}}, "must be given to graphglow reproduce"),
        ({"graphglow": {"cora": {"transfer": {"patience": 1}}}}, "got patience"),
        ({"graphglow": {"cora": {"pretrain": {"device": "cpu"}}}}, "got device"),
        ({"graphglow": {"cora": {"pretrain": 3}}}, "pretrain of graphglow on cora .*; got 3"),
        ({"graphglow": {"cora": {"wings": 2}}}, "got 'wings'"),
        ({"gcn": {"cora": {"dropout": "high"}}}, "dropout of gcn on cora .* a number; got 'high'"),
        ({"gcn": {"cora": {"dropout": True}}}, "must be a number; got True"),
        ({"gcn": {"cora": {"dropout": 2}}}, r"lie in \[0, 1\); got 2, for gcn on cora in mine"),
        (
            {"graphglow": {"cora": {"pretrain": {"objective": {"sparks": 1}}}}},
            "settings of objective of the pre-training of graphglow on cora .*got 'sparks'",
        ),
        (
            {"graphglow": {"cora": {"pretrain": {"objective": 1}}}},
            "objective of the pre-training of graphglow on cora in mine.json must be settings",
        ),
    ],
)
def test_what_no_run_can_use_is_refused(entries, message):
    with pytest.raises(InputError, match=message) as refused:
        check_settings(Settings(entries), FILE)
    assert "Config" not in str(refused.value)
