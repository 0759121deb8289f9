"""The evidence learner's lines of Tables 1 and 2: what they run, and that rows say with what."""

import json
from dataclasses import replace
from functools import partial

import pytest
from small_cells import SETTINGS, TARGET, cell, config, rows, run

from graphglow.cli import main
from graphglow.errors import InputError
from graphglow.evidence import EvidenceLearner, EvidencePretrainConfig
from graphglow.graph import load_graph
from graphglow.lab.paper import CITATION, EVIDENCE, GRAPHS
from graphglow.lab.paper.cells import EVIDENCE_PRETRAINING, EXPERIMENTS
from graphglow.lab.runs import config as run_config
from graphglow.lab.runs.config import ReproduceConfig, run_of
from graphglow.lab.runs.learners import find_learner
from graphglow.lab.runs.reproduce import learner_folder, make_plan
from graphglow.lab.runs.rows import same_run, without_repeats
from graphglow.lab.settings import Settings, check_settings
from graphglow.pretrained import UNIVERSAL, evidence_learner, learner_identity
from graphglow.settings import TransferConfig
from graphglow.training.evidence import INPUT_WEIGHTS
from graphglow.transfer import transfer

SHORT = {
    "first_episodes": 2, "vote_episodes": 2, "second_episodes": 2, "predict_episodes": 2,
    "max_nodes": 300, "pairs": 64,
    "nodes": 16, "steps": 2,
}  # fmt: skip
LINES = [
    cell("evidence", sources=("wine",), pretraining=SHORT, label="evidence learner"),
    cell("evidence-universal"),
    cell("evidence-untrained"),
]
plan = partial(make_plan, settings=SETTINGS)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("evidence") / "rows.jsonl"
    outcome = run(LINES, out, batch_seeds=True)
    assert outcome[:4] == (6, 0, 0, {})
    return out


def test_a_table_asks_for_each_line_on_each_graph_with_default_settings():
    made = [c for c in EXPERIMENTS["table2"]() if c.method in EVIDENCE]
    assert {(c.method, c.target) for c in made} == {(m, g) for m in EVIDENCE for g in GRAPHS}
    tuned = Settings({"gcn": {"reed98": {"hidden": 4}}})
    for one in made:
        asked = run_of(one, 3, tuned, ReproduceConfig(device="cpu"))
        assert asked.config == TransferConfig(seed=3, device="cpu")
        own = one.method == "evidence"
        assert (asked.pretraining is not None) == own
        if own:
            halved = EvidencePretrainConfig(**EVIDENCE_PRETRAINING, device="cpu")
            assert asked.pretraining == halved
            assert one.sources == (CITATION if one.target not in CITATION else GRAPHS[:4])


def test_the_lines_have_no_tuned_settings(tmp_path):
    with pytest.raises(InputError, match="must be one of"):
        check_settings(Settings({"evidence": {"cora": {"hidden": 4}}}), tmp_path / "settings.json")


def test_rows_say_which_learner_it_was(out):
    own, _, shipped, _, untrained, other = rows(out)
    assert own.sources == ("wine",)
    assert own.pretrain_seconds > 0
    assert own.pretraining["first_episodes"] == 2
    assert own.label == "evidence learner"
    universal = evidence_learner(UNIVERSAL)
    assert shipped.pretraining["identity"] == learner_identity(universal)
    assert shipped.pretraining["sources"] == universal.provenance["sources"]
    assert not {*shipped.pretraining["sources"]} & {*GRAPHS}
    assert untrained.pretraining["logit_scale"] == universal.logit_scale.tolist()
    assert untrained.learner_seed is None
    for row in rows(out):
        assert 0 <= row.test_accuracy <= 1
        assert (row.config["epochs"], row.error, row.runs_at_once) == (2, "", 1)
        assert row.metrics["input_weight"] in INPUT_WEIGHTS
    assert untrained.pretraining == other.pretraining


def test_a_row_is_what_a_transfer_gives(out):
    *_, untrained = rows(out)
    settings = TransferConfig(seed=1, epochs=2, device="cpu")
    result = transfer(load_graph(TARGET), "untrained", settings)
    assert untrained.test_accuracy == pytest.approx(result.test_accuracy, abs=1e-6)


def test_seeds_of_a_line_are_one_cell(out):
    kept, repeats = without_repeats(rows(out))
    assert (len(kept), repeats, {row.left_out for row in kept}) == (6, 0, {0})


def test_what_is_done_is_not_missing_and_learners_are_kept(out):
    done = plan(LINES, config(), rows=rows(out), learners=learner_folder(out))
    assert done.counts["tiny"] == {"done": 6, "failed": 0, "copied": 0, "shared": 0, "missing": 0}
    more = plan(LINES, config(seeds=3), rows=rows(out), learners=learner_folder(out))
    assert (more.counts["tiny"]["missing"], more.lessons) == (3, [])
    ((lesson, path),) = more.learners.items()
    assert isinstance(lesson.config, EvidencePretrainConfig)
    assert path.name == "evidence-wine-seed0-1.safetensors"
    assert EvidenceLearner.load(path).provenance["splits"] == ["random seed 0"]
    other = lesson._replace(config=replace(lesson.config, steps=3))
    assert find_learner(learner_folder(out), other) is None
    twins = [replace(one, experiment="other") for one in LINES]
    again = plan(twins, config(), rows=rows(out), learners=learner_folder(out))
    assert again.counts["other"]["copied"] == 6


def test_another_learner_in_the_package_makes_other_runs(out, monkeypatch):
    _, shipped, untrained = LINES
    universal = evidence_learner(UNIVERSAL)
    universal.vote.load_state_dict({n: w + 1 for n, w in universal.vote.state_dict().items()})
    given = {"universal": universal, "untrained": evidence_learner("untrained")}
    monkeypatch.setattr(run_config, "evidence_learner", given.__getitem__)
    run_config._evidence_facts.cache_clear()
    found = {same_run(vars(row)) for row in rows(out)}
    facts = [run_of(one, 0, SETTINGS, config()).facts() for one in (shipped, untrained)]
    run_config._evidence_facts.cache_clear()
    assert [same_run(one) in found for one in facts] == [False, True]


def test_dry_run_says_what_is_missing(tmp_path, capsys):
    words = ["--methods", *EVIDENCE, "--out", str(tmp_path / "rows"), "--dry-run", "--json"]
    assert main(["reproduce", "table2", *words]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["counts"]["table2"]["missing"], said["learners"]) == (105, 2)
