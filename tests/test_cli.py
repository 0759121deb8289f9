"""The command line, through its one entry point: ``main(argv)``, or a process of its own."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import graphglow
from graphglow import training
from graphglow.cli import main
from graphglow.commands import COMMANDS, MODULES, terminal
from graphglow.graphs.write import WRITERS

FAST = ["--epochs", "2", "--num-pivots", "8", "--refinements", "2"]


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of standard output, as strict JSON."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        facts: dict[str, Any] = json.loads(self.out.splitlines()[-1], parse_constant=refuse)
        return facts

    def refuses(self, status: int = 2) -> str:
        """Check for the exit status and exactly one line on standard error; return the line."""
        assert self.status == status, self
        assert self.out == ""
        assert len(self.err.splitlines()) == 1, self.err
        assert self.err.startswith("graphglow: ")
        assert "Traceback" not in self.err
        return self.err


Run = Callable[..., Outcome]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny graphs: a second thread only waits, and on a busy machine for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*argv: str | Path) -> Outcome:
        status = main([str(word) for word in argv])
        return Outcome(status, *capsys.readouterr())

    return run


def process(*argv: str | Path) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "graphglow", *map(str, argv)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def arrays(num_nodes: int = 40) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    ring = np.arange(num_nodes)
    return {
        "x": random.normal(size=(num_nodes, 4)).astype(np.float32),
        "y": ring % 2,
        "edge_index": np.stack([ring, (ring + 2) % num_nodes]),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small graph and a learner that was pre-trained on it."""
    folder = tmp_path_factory.mktemp("cli")
    np.savez(folder / "small.npz", **arrays())
    words = ["pretrain", "--sources", folder / "small.npz", "--out", folder / "learner.st", *FAST]
    words += ["--episodes", "1", "--learner.embedding-size", "6"]
    assert main([str(word) for word in words]) == 0
    return folder


def transfer_words(home: Path, *more: str | Path) -> list[str | Path]:
    target = ["--target", home / "small.npz", *FAST]
    return ["transfer", "--learner", home / "learner.st", *target, *more]


# Help


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_names_every_command_with_an_example(run: Run, argv: list[str]) -> None:
    outcome = run(*argv)
    assert outcome.status == 0
    assert outcome.err == ""
    for name, what in COMMANDS.items():
        assert f"  {name} " in outcome.out
        assert what in outcome.out
    assert "graphglow transfer --learner" in outcome.out


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"graphglow {graphglow.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_shared_flags_and_help(run: Run, name: str) -> None:
    outcome = run(name, "--help")
    assert outcome.status == 0
    assert outcome.err == ""
    assert COMMANDS[name] in outcome.out
    for flag in ("--seed", "--device", "--data-root", "--json"):
        assert flag in outcome.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_line_is_the_first_docstring_line(name: str) -> None:
    command = getattr(import_module(f"graphglow.commands.{MODULES.get(name, name)}"), name)
    assert (inspect.getdoc(command) or "").splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("argv", [["--help"], ["nonsense"], []])
def test_top_level_answers_without_torch(argv: list[str]) -> None:
    code = f"""
import sys
from graphglow.cli import main
main({argv!r})
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Success


def test_transfer_prints_one_json_object(run: Run, home: Path) -> None:
    outcome = run(*transfer_words(home, "--json", "--seed", "3"))
    assert outcome.status == 0
    assert outcome.err == ""
    facts = outcome.json
    assert facts["target"] == "small"
    assert facts["method"] == "graphglow"
    assert facts["backbone"] == "gcn"
    assert 0 <= facts["test_accuracy"] <= 1
    assert 0 <= facts["val_accuracy"] <= 1
    assert facts["epochs"] == 2
    assert 0 < facts["train_seconds"] <= facts["total_seconds"]
    assert facts["peak_memory_bytes"] > 0
    assert facts["device"] == "cpu"
    assert facts["seed"] == 3
    assert facts["split"] == "random seed 0"
    assert facts["out"] is None


def test_a_random_learner_is_a_control(run: Run, home: Path) -> None:
    words = ["transfer", "--learner", "random", "--target", home / "small.npz", *FAST, "--json"]
    assert run(*words, "--embedding-size", "5").json["method"] == "random-theta"


def test_summary_for_people(run: Run, home: Path) -> None:
    outcome = run(*transfer_words(home))
    assert outcome.status == 0
    assert "test accuracy" in outcome.out
    assert outcome.err == ""  # and no progress bar, since nobody watches


def test_transfer_names_a_delta_that_is_not_the_usual_and_its_trained_kappa(
    run: Run, home: Path
) -> None:
    words = ["transfer", "--target", home / "small.npz", *FAST, "--learner"]
    facts = run(*words, "sharp", "--json").json
    assert (facts["delta"], facts["kappa"]) == ("exp", pytest.approx(27.36, abs=0.01))
    assert "exp, kappa 27.4" in run(*words, "sharp").out
    assert "delta" not in run(*words, "universal", "--json").json
    assert "delta" not in run(*words, "universal").out


def test_the_split_is_named(run: Run, home: Path, tmp_path: Path) -> None:
    split = {"train": np.arange(10), "val": np.arange(10, 20), "test": np.arange(20, 30)}
    np.savez(tmp_path / "split.npz", **split)
    np.savez(tmp_path / "own.npz", **arrays(), **split)
    words = ["transfer", "--learner", "random", *FAST, "--json", "--target"]
    small = home / "small.npz"
    assert run(*words, small, "--split-seed", "7").json["split"] == "random seed 7"
    facts = run(*words, small, "--split-file", tmp_path / "split.npz").json
    assert facts["split"] == f"file:{tmp_path / 'split.npz'}"
    assert run(*words, tmp_path / "own.npz").json["split"] == "own"


def test_named_graph_under_a_data_root(run: Run, data_root: Path) -> None:
    words = ["transfer", "--learner", "random", "--target", "Cora", *FAST, "--json"]
    facts = run(*words, "--data-root", data_root).json
    assert (facts["target"], facts["split"]) == ("cora", "public")


def test_no_test_nodes_is_null(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **arrays(), train=np.arange(20), val=np.arange(20, 40))
    facts = run(
        "transfer", "--learner", "random", "--target", tmp_path / "g.npz", *FAST, "--json"
    ).json
    assert facts["test_accuracy"] is None


def test_flags_reach_the_configs(run: Run, home: Path, tmp_path: Path) -> None:
    facts = run(
        *["pretrain", "--sources", home / "small.npz", "synthetic-small"],
        *["--out", tmp_path / "l.safetensors", "--episodes", "1", *FAST],
        *["--learner.num-heads", "3", "--objective.samples", "2", "--input-weight", "0.25"],
        *["--seed", "5", "--json"],
    ).json
    assert facts["sources"] == ["small", "synthetic-small"]
    assert facts["seed"] == 5
    assert len(facts["visit_scores"]) == 2
    learner = graphglow.StructureLearner.load(tmp_path / "l.safetensors")
    assert learner.config.num_heads == 3
    made = learner.provenance["config"]
    assert (made["objective"]["samples"], made["input_weight"]) == (2, 0.25)


@pytest.mark.parametrize("suffix", WRITERS)
def test_refine_writes_every_format(run: Run, home: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"refined{suffix}"
    words = ["refine", "--learner", home / "learner.st", "--target", home / "small.npz", *FAST]
    facts = run(*words, "--top-k", "3", "--no-self-loops", "--out", out, "--json").json
    assert out.stat().st_size > 0
    assert 0 < facts["refined_edges"] <= 3 * 40
    assert facts["self_loops"] is False
    if suffix == ".npz":
        with np.load(out) as file:
            assert file["edge_index"].shape == (2, facts["refined_edges"])
            assert (file["edge_index"][0] != file["edge_index"][1]).all()


def test_refine_of_a_saved_result_is_the_same(run: Run, home: Path, tmp_path: Path) -> None:
    words = ["--learner", home / "learner.st", "--target", home / "small.npz", *FAST]
    assert run("transfer", *words, "--out", tmp_path / "r.st").status == 0
    assert run("refine", *words, "--out", tmp_path / "direct.npz").status == 0
    assert run("refine", "--result", tmp_path / "r.st", "--out", tmp_path / "saved.npz").status == 0
    with np.load(tmp_path / "direct.npz") as direct, np.load(tmp_path / "saved.npz") as saved:
        np.testing.assert_array_equal(direct["edge_index"], saved["edge_index"])


def test_datasets_says_which_files_are_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "Cora" / "raw").mkdir(parents=True)
    (tmp_path / "Cora" / "raw" / "ind.cora.x").touch()
    facts = run("datasets", "--data-root", tmp_path, "--json").json
    rows = {row["name"]: row for row in facts["datasets"]}
    assert set(rows) == set(graphglow.graphs.DATASETS)
    assert rows["cora"]["found"]
    assert not rows["pubmed"]["found"]
    assert rows["wine"]["found"]
    assert not rows["wine"]["needs_data"]
    shown = run("datasets", "--data-root", tmp_path / "absent").out
    assert "synthetic-heterophilous" in shown
    assert "missing" in shown


def test_progress_is_shown_on_a_terminal(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the captured stream for a terminal
    outcome = run(*transfer_words(home, "--json"))
    assert outcome.status == 0
    assert "training" in outcome.err
    assert outcome.json["epochs"] == 2


# Bad command lines


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("colour", ["0", "1"])
def test_usage_errors_of_a_process(encoding: str, colour: str) -> None:
    """Tyro draws its boxes by the terminal's abilities; the line must not depend on them."""
    code = "from graphglow.commands.usage import parse\ndef f(number: int): ...\nparse(f, ['--x'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "FORCE_COLOR": colour},
        check=False,
    )
    assert done.stderr.splitlines()[-1] == (
        "graphglow.errors.InputError: required options are missing: --number INT; "
        "unknown options: --x; see graphglow f --help"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tranfer", "perhaps transfer"),
        ("--json transfer", "unknown command '--json'"),
        ("transfer", "required options are missing: --learner NAME|FILE, --target"),
        ("transfer --learner", "--learner"),
        ("transfer --learner random --target wine --bogus 1", "unknown options: --bogus"),
        ("transfer --learner random --target wine --epoch 3", "perhaps you meant: --epochs"),
        ("transfer --learner random --target wine extra", "unknown options: extra"),
        (
            "transfer --learner random --target wine --epochs x",
            "--epochs must be a whole number; got 'x'",
        ),
        ("transfer --learner random --target wine --device tpu", "'tpu'"),
        ("pretrain --out l.st", "--sources"),
        ("pretrain --sources --out l.st", "at least one source"),
        ("refine --learner random --out g.csv", "--target"),
        ("refine --target wine --result r.st --out g.csv --epochs 3", "--target, --epochs"),
        ("datasets --epochs 3", "--epochs"),
        ("demo --targets wine", "--targets"),
    ],
)
def test_bad_usage_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in run(*words.split()).refuses()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [
        "--epochs 0",
        "--epochs -1",
        "--input-weight nan",
        "--input-weight 1.5",
        "--structure-momentum -0.1",
        "--learning-rate inf",
        "--learning-rate 1e400",
        "--weight-decay nan",
        "--dropout 1",
        "--num-pivots 0",
        "--refinements 0",
        "--num-layers 1",
        "--patience 0",
        "--seed -1",
        "--split-seed -1",
        "--split-seed 99999999999999999999",
        "--backbone nonsense",
        "--objective.samples 1",
        "--objective.temperature nan",
        "--embedding-size 0",
    ],
)
def test_absurd_values_are_refused(run: Run, home: Path, flags: str) -> None:
    words = ["transfer", "--learner", "random", "--target", home / "small.npz"]
    name, value = flags.split()
    line = run(*words, name, value).refuses()
    assert name.removeprefix("--").split(".")[-1].replace("-", "_") in line.replace("-", "_")


def test_gpu_that_is_not_there(run: Run, home: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert "cuda" in run(*transfer_words(home, "--device", "cuda")).refuses()


def test_loss_that_is_not_finite(run: Run, home: Path) -> None:
    words = transfer_words(home, "--learning-rate", "1e30", "--dropout", "0", "--epochs", "20")
    assert "finite" in run(*words).refuses()


# Bad files


@pytest.mark.parametrize(
    "target",
    ["no_such_graph", "wien", "empty.npz", "text.npz", "text.csv", "nan.npz", "range.npz", "."],
)
def test_bad_targets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.npz").touch()
    Path("text.npz").write_text("not an archive")
    Path("text.csv").write_text("a,b\n1,2\n")
    broken = arrays()
    broken["x"] = np.full_like(broken["x"], np.nan)
    np.savez("nan.npz", **broken)
    np.savez("range.npz", **(arrays() | {"edge_index": np.array([[0], [99]])}))
    run("transfer", "--learner", "random", "--target", target, *FAST).refuses()


def test_bad_learners(run: Run, home: Path, tmp_path: Path) -> None:
    target = ["--target", home / "small.npz", *FAST]
    whole = (home / "learner.st").read_bytes()
    (tmp_path / "cut.st").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.st").write_text("hello")
    assert run(*transfer_words(home, "--out", tmp_path / "result.st")).status == 0
    assert "'absent'" in run("transfer", "--learner", "absent", *target).refuses()
    for name in ("cut.st", "text.st", "result.st", "."):
        run("transfer", "--learner", tmp_path / name, *target).refuses()
    line = run("transfer", "--learner", home / "learner.st", *target, "--embedding-size", "3")
    assert "--embedding-size" in line.refuses()


def test_control_characters_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    line = run("transfer", "--learner", "random", "--target", "a\x1b[31m\nb").refuses()
    assert "\x1b" not in line


# Output files


def never(*args: object, **kwargs: object) -> None:
    raise AssertionError("training has begun")


OUTPUT_COMMANDS = {
    "pretrain": ["pretrain", "--sources", "wine"],
    "transfer": ["transfer", "--learner", "random", "--target", "wine"],
    "refine": ["refine", "--learner", "random", "--target", "wine"],
    "demo": ["demo"],
}


def test_an_output_is_never_one_of_the_inputs(run: Run, home: Path, tmp_path: Path) -> None:
    learner, graph = tmp_path / "l.st", tmp_path / "g.npz"
    learner.write_bytes((home / "learner.st").read_bytes())
    graph.write_bytes((home / "small.npz").read_bytes())
    kept = learner.read_bytes(), graph.read_bytes()
    words = ["--learner", learner, "--target", graph, *FAST, "--overwrite"]
    assert "one of the inputs" in run("transfer", *words, "--out", learner).refuses()
    assert "one of the inputs" in run("refine", *words, "--out", graph).refuses()
    assert (learner.read_bytes(), graph.read_bytes()) == kept


def test_predictions_name_ids_classes_and_probabilities(
    run: Run, home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "predictions.csv"
    words = ["--learner", home / "learner.st", "--target", home / "small.npz", *FAST]
    assert run("transfer", *words, "--predictions", out).status == 0
    header, *rows = out.read_text().splitlines()
    assert header.startswith("id,predicted,probability,p_")
    with np.load(home / "small.npz") as file:
        assert len(rows) == len(file["y"])
    for row in rows:
        _, _, best, *shares, _, split = row.split(",")
        assert split in ("train", "val", "test")
        assert float(best) == max(map(float, shares))
        assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)
    assert "predictions file" in run("transfer", *words, "--predictions", "p.txt").refuses()


@pytest.mark.parametrize("words", OUTPUT_COMMANDS.values(), ids=OUTPUT_COMMANDS)
def test_output_is_checked_before_training(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in ("pretrain", "transfer"):
        monkeypatch.setattr(training, name, never)
    monkeypatch.setattr("graphglow.commands.demo.run_demo", never)
    suffix = ".pt" if words[0] == "refine" else ".st"
    taken, folder = tmp_path / f"taken{suffix}", tmp_path / f"folder{suffix}"
    plain = tmp_path / "plain"
    taken.write_text("mine")
    folder.mkdir()
    plain.touch()
    before = sorted(tmp_path.iterdir())
    assert "--overwrite" in run(*words, "--out", taken).refuses()
    assert "folder" in run(*words, "--out", folder).refuses()
    assert "folder" in run(*words, "--out", folder, "--overwrite").refuses()
    assert "writable" in run(*words, "--out", plain / f"below{suffix}").refuses()
    assert "writable" in run(*words, "--out", tmp_path / f"{'n' * 250}{suffix}").refuses()
    device = run(*words, "--out", "/dev/null", "--overwrite").refuses()
    assert "regular" in device or "must end in" in device
    assert taken.read_text() == "mine"
    assert sorted(tmp_path.iterdir()) == before


def test_refine_checks_the_suffix_before_training(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "transfer", never)
    line = run(*OUTPUT_COMMANDS["refine"], "--out", tmp_path / "graph.xlsx").refuses()
    assert ".graphml" in line


def test_overwrite_replaces(run: Run, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "result.st"
    assert run(*transfer_words(home, "--out", out)).status == 0
    out.write_text("old")
    assert run(*transfer_words(home, "--out", out, "--overwrite")).status == 0
    assert training.TransferResult.load(out).epochs == 2


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), 130),
        (RuntimeError("two\nlines"), 1),
        (MemoryError("1 TiB"), 2),
        (graphglow.InputError("bad"), 2),
    ],
)
def test_failure_leaves_what_was_there(
    run: Run,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    out = tmp_path / "graph.csv"
    out.write_text("old")
    words = ["refine", "--learner", home / "learner.st", "--target", home / "small.npz", *FAST]
    for place in ("graphglow.training.transfer", "graphglow.graphs.write._edge_table"):
        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            run(*words, "--out", out, "--overwrite").refuses(status)
        assert out.read_text() == "old"
        assert [path.name for path in tmp_path.iterdir()] == ["graph.csv"]


def test_a_full_disk_is_one_line_and_keeps_the_old_file(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "graph.csv"
    out.write_text("old")
    words = ["refine", "--learner", home / "learner.st", "--target", home / "small.npz", *FAST]
    monkeypatch.setattr("graphglow.graphs.write._edge_table", fail)
    run(*words, "--out", out, "--overwrite").refuses(2)
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


# Processes


def test_exit_status_and_output_of_a_process(home: Path, tmp_path: Path) -> None:
    good = process(*transfer_words(home, "--json", "--out", tmp_path / "r.st"))
    assert good.status == 0
    assert good.err == ""
    assert good.json["target"] == "small"
    process("transfer", "--learner", "random", "--target", "absent").refuses()


def test_traceback_only_when_asked(monkeypatch: pytest.MonkeyPatch, run: Run, home: Path) -> None:
    monkeypatch.setattr(training, "transfer", lambda *a, **k: 1 / 0)
    assert "ZeroDivisionError" in run(*transfer_words(home)).refuses(1)
    monkeypatch.setenv("GRAPHGLOW_DEBUG", "1")
    outcome = run(*transfer_words(home))
    assert outcome.status == 1
    assert "Traceback" in outcome.err


def test_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -m graphglow datasets | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode in (0, 1)


# Demo


def test_demo_writes_a_report_and_replaces_only_reports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphglow.experiments.demo import DEMO

    small = replace(
        DEMO,
        targets=("wine",),
        num_seeds=2,
        labels_per_class=5,
        refined_target="wine",
        transfer=replace(DEMO.transfer, epochs=2, num_pivots=8),
    )
    monkeypatch.setattr("graphglow.commands.demo.DEMO", small)
    monkeypatch.chdir(tmp_path)
    first = run("demo")
    assert first.status == 0
    assert first.err == ""
    assert str(tmp_path / "demo_report.html") in first.out
    assert "random-theta" in first.out
    assert "the learner sharp, frozen" in " ".join(first.out.split())
    assert (
        "sharp (delta exp) is for graphs with few labels and mostly wrong edges; universal is for "
        "those whose edges you trust." in " ".join(first.out.split())
    )
    for learner, said in (
        ("universal", "is for graphs whose edges you trust; sharp is for those with few labels"),
        ("citation", "is for graphs whose edges you trust."),
    ):
        monkeypatch.setattr("graphglow.commands.demo.DEMO", replace(small, learner=learner))
        shown = " ".join(run("demo").out.split())
        assert f"{learner} (delta truncate) {said}" in shown
        assert ("sharp" in shown) == (learner == "universal")
    monkeypatch.setattr("graphglow.commands.demo.DEMO", small)
    again = run("demo", "--json", "--seed", "4")
    assert again.status == 0
    assert {row["seed"] for row in again.json["rows"]} == {4, 5}
    assert again.json["refined"]["before"]["edges"] > 0
    Path("demo_report.html").write_text("my own page")
    assert "--overwrite" in run("demo").refuses()
    assert Path("demo_report.html").read_text() == "my own page"


def test_names_from_data_reach_no_terminal_as_they_are(capsys):
    terminal.show_facts("t\x1b[2J", {"\x1b[31mred": "\x1b[2J"})
    assert "\x1b" not in capsys.readouterr().out


def test_a_stream_that_cannot_show_a_letter_shows_its_number(tmp_path):
    words = ["fit", "--method", "mlp", "--target", "M\u00fc.csv"]
    done = subprocess.run(
        [sys.executable, "-m", "graphglow", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"M\\xfc.csv" in done.stderr


def test_processes_that_torchrun_did_not_start_are_one_sentence(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    words = ["transfer", "--learner", "universal", "--target", "wine", "--device", "cpu"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "graphglow: several processes must be started by torchrun; got WORLD_SIZE=2 alone\n"
    )


def test_a_link_to_nowhere_is_an_output_that_exists(tmp_path, capsys):
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone.csv")
    words = ["fit", "--method", "mlp", "--target", "wine", "--epochs", "2"]
    assert main([*words, "--predictions", str(tmp_path / "link.csv")]) == 2
    assert "must not exist" in capsys.readouterr().err
    assert (tmp_path / "link.csv").is_symlink()
