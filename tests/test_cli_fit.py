"""``graphglow fit`` through the command line's one entry point: help, flags, JSON, refusals."""

from dataclasses import fields, replace

import pytest

from graphglow import competitors
from graphglow.commands import COMMANDS
from graphglow.competitors import METHODS

EVERY = pytest.mark.parametrize("name", sorted(METHODS))
KEYS = (
    "target method backbone test_accuracy val_accuracy epochs train_seconds total_seconds "
    "peak_memory_bytes device seed split predictions"
)


@pytest.fixture
def graph(home):
    return home / "g.npz"


def plain(text):
    """Help without frames, tables and line breaks."""
    return " ".join(text.encode("ascii", "ignore").decode().split())


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_method_by_family(run, flag):
    status, out, err = run("fit", flag)
    assert (status, err) == (0, "")
    assert COMMANDS["fit"] in out
    for name, method in METHODS.items():
        assert f" {name} {method.summary} " in plain(out)
    places = [out.index(f"\n  {name} ") for name in ("gcn", "mlp")]
    assert out.index("GNNs on the input graph:") < places[0] < out.index("Controls:") < places[1]
    assert "graphglow fit --method gcn --help shows" in plain(out)


@EVERY
def test_help_of_a_method_has_its_settings_and_its_defaults(run, name):
    status, out, err = run("fit", "--method", name, "--help-all")
    assert (status, err) == (0, "")
    method, shown = METHODS[name], plain(out)
    assert method.summary in shown
    assert f"graphglow fit --method {name} --target" in shown
    for field in fields(method.config):
        value, flag = getattr(method.config(), field.name), field.name.replace("_", "-")
        if not field.init:  # fixed in this method
            assert f"--{flag}" not in out
            continue
        assert f"--{flag}" in out
        if isinstance(value, int | float) and not isinstance(value, bool):
            after = shown.split(f" --{flag} ", 1)[1]
            assert f"(default: {value})" in after.split(" --")[0]
    for flag in ("--target", "--split-file", "--split-seed", "--predictions", "--overwrite"):
        assert flag in out


@EVERY
def test_every_method_prints_one_json_object(run, graph, name):
    words = ["fit", "--method", name, "--target", graph, "--epochs", "2", "--seed", "3", "--json"]
    outcome = run(*words, "--device", "cpu")
    assert outcome.err == ""
    facts = outcome.json
    assert set(facts) >= set(KEYS.split())
    assert (facts["target"], facts["method"], facts["epochs"]) == ("g", name, 2)
    assert facts["backbone"] == METHODS[name].backbone
    assert 0 <= facts["test_accuracy"] <= 1
    assert 0 <= facts["val_accuracy"] <= 1
    assert (facts["seed"], facts["device"], facts["split"]) == (3, "cpu", "random seed 0")
    assert facts["predictions"] is None


def test_the_flags_reach_the_config(run, graph, monkeypatch):
    seen = []
    real = competitors.fit
    monkeypatch.setattr(
        competitors, "fit", lambda *args, **more: seen.append(args) or real(*args, **more)
    )
    words = ["--target", graph, "--epochs", "2", "--teleport", "0.25", "--steps", "3"]
    words += ["--hidden", "5", "--no-capture", "--weight-decay", "0"]
    assert run("fit", "--method=appnp", *words).status == 0
    name, _, config = seen[0]
    assert name == "appnp"
    assert config == METHODS["appnp"].config(
        epochs=2, teleport=0.25, steps=3, hidden=5, capture=False, weight_decay=0.0
    )


def test_a_summary_for_people(run, graph):
    status, out, err = run("fit", "--method", "link", "--target", graph, "--epochs", "2")
    assert (status, err) == (0, "")
    assert "test accuracy" in out
    assert "link" in out
    assert "None" not in out
    assert "backbone" not in out


def test_a_delta_that_is_not_the_usual_is_named(run, graph):
    words = ["fit", "--method", "random-theta", "--target", graph, "--epochs", "1"]
    assert "delta" not in run(*words, "--json").json
    assert run(*words, "--delta", "affine", "--json").json["delta"] == "affine"
    shown = plain(run(*words, "--delta", "affine").out)
    assert " delta affine " in shown


def test_predictions_are_written_once(run, graph, tmp_path, monkeypatch):
    out = tmp_path / "p.csv"
    words = ["fit", "--method", "mlp", "--target", graph, "--epochs", "1", "--predictions", out]
    assert run(*words, "--json").json["predictions"] == str(out)
    assert len(out.read_text().splitlines()) == 41
    out.write_text("mine")

    def never(*args, **kwargs):
        raise AssertionError("training has begun")

    with monkeypatch.context() as patch:
        patch.setattr(competitors, "fit", never)
        assert "--overwrite" in run(*words).refuses()
        assert "predictions file" in run(*words[:-1], tmp_path / "p.txt").refuses()
        same = ["--target", tmp_path / "g.csv", "--predictions", tmp_path / "g.csv"]
        assert "one of the inputs" in run(*words[:3], *same, "--overwrite").refuses()
    assert out.read_text() == "mine"
    assert run(*words, "--overwrite").status == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "required options are missing: --method NAME, --target NAME|FILE;"),
        ("--target wine", "required options are missing: --method NAME"),
        ("--target wine --method", "--method must be followed by a name"),
        ("--method --target wine", "--method must be followed by a name"),
        ("--method gnc --target wine", "got 'gnc' (nearest: gcn)"),
        ("--method=gnc --help", "got 'gnc' (nearest: gcn)"),
        ("--method= --target wine", "method must be one of"),
        ("--method gcn", "required options are missing: --target NAME|FILE"),
        ("--method gcn --target", "--target"),
        ("--method gcn --target wine --hidden 0", "hidden must be >= 1; got 0"),
        ("--method gcn --target wine --epochs 0", "epochs must"),
        ("--method gcn --target wien", "wine"),
        ("--method gcn --target wine --attention-heads 2", "it belongs to --method gat,"),
    ],
)
def test_bad_usage_is_one_line(run, words, said):
    assert said in run("fit", *words.split()).refuses()


def test_the_last_of_two_methods_counts(run, graph):
    words = ["fit", "--method", "gat", "--method", "mlp", "--target", graph, "--epochs", "1"]
    assert run(*words, "--json").json["method"] == "mlp"


def test_what_would_not_fit_is_said_before_training(run, graph, monkeypatch):
    monkeypatch.setattr("graphglow.device.free_bytes", lambda device: 10)
    heavy = replace(METHODS["gcn"], memory=lambda graph, config: 2 * 10**9, lighter="mlp")
    monkeypatch.setitem(METHODS, "gcn", heavy)
    line = run("fit", "--method", "gcn", "--target", graph).refuses()
    assert "gcn must fit in memory; on g, with these settings, it would need about 2 GB" in line
    assert "mlp needs far less" in line


def test_an_output_never_replaces_a_file_of_the_target_folder(run, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    rows = [f"{i},{i % 3},{'ab'[i % 2]}" for i in range(12)]
    (folder / "nodes.csv").write_text("\n".join(["id,size,label", *rows]) + "\n")
    (folder / "edges.csv").write_text("source,target\n0,1\n1,2\n3,4\n")
    before = (folder / "nodes.csv").read_text()
    words = ["fit", "--method", "mlp", "--target", folder, "--epochs", "1", "--overwrite"]
    line = run(*words, "--predictions", folder / "nodes.csv").refuses()
    assert "must not be one of the inputs" in line
    assert (folder / "nodes.csv").read_text() == before
    assert run(*words, "--predictions", folder / "new.csv").status == 0
    assert (folder / "new.csv").exists()


def test_graphglow_itself_is_two_steps(run, graph):
    line = run("fit", "--method", "graphglow", "--target", graph).refuses()
    assert "pretrain on other graphs, then transfer" in line
