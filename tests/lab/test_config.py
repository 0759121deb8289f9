"""The settings file: what it holds, for whom, and how it becomes a config."""

import json

import pytest

from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.lab.config import SETTINGS, config_of, merged, read_settings, tuned_settings
from graphglow.lab.paper_tables import OWN_LINES, TRANSFERRED
from graphglow.settings import PaperConfig, PretrainConfig

OURS = SETTINGS


def test_tuned_settings_given_sources_go_first():
    tuned = {"m": {"cora": {"a": 1}, "cora < x+y": {"a": 2}}}
    assert tuned_settings(tuned, "m", "cora") == {"a": 1}
    assert tuned_settings(tuned, "m", "cora", ("y", "x")) == {"a": 2}
    assert tuned_settings(tuned, "m", "cora", ("z",)) == {"a": 1}
    assert tuned_settings(tuned, "n", "cora") == tuned_settings(tuned, "m", "pubmed") == {}


def test_merging_goes_into_settings_and_changes_nothing():
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merged(first, {"a": {"c": 4}, "e": 5}) == {"a": {"b": 1, "c": 4}, "d": 3, "e": 5}
    assert first == {"a": {"b": 1, "c": 2}, "d": 3}


def test_a_config_is_built_with_those_inside_and_unknown_names_are_refused():
    config = config_of(PretrainConfig, {"objective": {"entropy": 0.3}, "episodes": 1}, seed=4)
    assert (config.objective.entropy, config.episodes, config.seed) == (0.3, 1, 4)
    with pytest.raises(InputError, match="ObjectiveConfig has no setting 'entrpy'"):
        config_of(PretrainConfig, {"objective": {"entrpy": 0.3}})


@pytest.mark.parametrize("text", ["{", ""])
def test_what_is_no_settings_file_is_refused(tmp_path, text):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"settings"):
        read_settings(path)


@pytest.mark.skipif(not OURS.exists(), reason="needs the repository")
def test_our_settings_exist():
    for method, targets in json.loads(OURS.read_text()).items():
        base = OWN_LINES.get(method, (method,))[0]
        for given in targets.values():
            if base in TRANSFERRED:
                config_of(PaperConfig, given["transfer"])
                config_of(PretrainConfig, given.get("pretrain", {}))
            else:
                config_of(METHODS[base].config, given)
