"""The learners that come with the package, by name: in Python and on the command line."""

import json
from pathlib import Path

import pytest
import torch

import graphglow
from graphglow.cli import main
from graphglow.commands.files import read_learner
from graphglow.graphs import DATASETS
from graphglow.pretrained import FOLDER, PRETRAINED, learner_file, load_learner

REPO = Path(__file__).parents[2]
FAST = ["--target", "wine", "--epochs", "2", "--num-pivots", "8", "--refinements", "2"]


def weights(learner: graphglow.StructureLearner) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in learner.parameters()])


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_learner_is_small_and_says_how_it_was_made(name: str) -> None:
    learner = graphglow.load_learner(name)
    assert learner_file(name).stat().st_size < 20_000
    made = learner.provenance
    assert made["trained"]
    assert tuple(made["sources"]) == PRETRAINED[name]
    assert made["name"] == name
    assert made["config"]["learner"]["num_heads"] == learner.config.num_heads
    assert 0 < made["validation_accuracy"] <= 1
    assert "benchmarks/" in made["provenance"]["command"]
    assert made["provenance"]["commit"] != "unknown"
    untrained = graphglow.StructureLearner(learner.config, seed=made["seed"])
    assert not torch.equal(weights(learner), weights(untrained))


def test_names_and_files_are_the_same_and_sources_are_known() -> None:
    assert {path.stem for path in FOLDER.glob("*.safetensors")} == {
        *PRETRAINED,
        "evidence",
        "audit",
    }
    assert all(name in DATASETS for of in PRETRAINED.values() for name in of)
    assert load_learner("universal").config.delta == "truncate"


def test_each_load_is_a_learner_of_its_own() -> None:
    one, other = load_learner("Universal"), load_learner("universal")
    with torch.no_grad():
        next(one.parameters()).zero_()
    assert weights(other).abs().sum() > 0
    assert not torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("univrsal", "must be universal or an existing file; got 'univrsal' (nearest: universal)"),
        ("xyz", "must be universal or an existing file; got 'xyz'"),
        ("sharp", "must be universal or an existing file; got 'sharp'"),
        ("universal.safetensors", "nearest: universal"),
        (3, "a name or a file; got int"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name: str, said: str) -> None:
    with pytest.raises(graphglow.InputError) as error:
        load_learner(name)
    assert said in str(error.value)


def test_a_bare_name_is_the_package_s_and_a_path_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = graphglow.StructureLearner(graphglow.LearnerConfig(embedding_size=3))
    own.save("universal")
    assert load_learner("Universal").config.embedding_size != 3
    for file in ("./universal", str(tmp_path / "universal"), Path("universal")):
        assert load_learner(file).config.embedding_size == 3
    assert load_learner(own) is own
    assert read_learner("untrained", 3, 0).config.embedding_size == 3
    assert learner_file("universal") == FOLDER / "universal.safetensors"
    assert learner_file("./universal") == Path("universal")
    with pytest.raises(graphglow.InputError, match="a name or a file; got int"):
        load_learner(3)


@pytest.mark.parametrize("name", ["univrsal", "x" * 5000, "a\0b"])
def test_the_command_line_refuses_an_unknown_learner(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transfer", "--learner", name, *FAST]) == 2
    line = capsys.readouterr().err
    assert len(line.splitlines()) == 1
    assert "must be universal, untrained or an existing file" in line
    assert ("nearest: universal" in line) == (name == "univrsal")


def test_transfer_and_refine_take_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("universal").mkdir()  # no matter what lies here
    assert main(["transfer", "--learner", "universal", *FAST, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["learner"], facts["method"]) == ("universal", "graphglow")
    words = ["--learner", "universal", *FAST, "--out", "universal/refined.csv", "--overwrite"]
    assert main(["refine", *words]) == 0
    assert Path("universal/refined.csv").read_text().startswith("source,target,weight")
    capsys.readouterr()
    assert main(["refine", *words, "--embedding-size", "3"]) == 2
    assert "--embedding-size must go with --learner untrained" in capsys.readouterr().err


def test_a_target_that_was_a_source_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphglow.write_graph(graphglow.load_graph("wine"), tmp_path / "cora.npz")
    words = ["--target", str(tmp_path / "cora.npz"), *FAST[2:]]
    for learner, seen in {"universal": True, "random": False}.items():
        assert main(["transfer", "--learner", learner, *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["target_was_source"] is seen
    assert main(["transfer", "--learner", "universal", *words]) == 0
    assert "pre-trained on a graph of this name" in capsys.readouterr().out


def test_a_shipped_file_is_never_an_output(capsys: pytest.CaptureFixture[str]) -> None:
    shipped = learner_file("universal")
    before = shipped.read_bytes()
    words = ["--learner", "universal", *FAST, "--out", str(shipped), "--overwrite"]
    assert main(["transfer", *words]) == 2
    assert "one of the inputs" in capsys.readouterr().err
    assert shipped.read_bytes() == before


def test_datasets_lists_the_learners(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["learners"]
    assert {row["name"]: tuple(row["sources"]) for row in listed} == PRETRAINED
    assert main(["datasets"]) == 0
    assert "universal  cora, citeseer, pubmed" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_files_are_in_what_is_built(kind: str) -> None:
    builders = pytest.importorskip(f"hatchling.builders.{kind}")
    builder = {"wheel": "WheelBuilder", "sdist": "SdistBuilder"}[kind]
    built = getattr(builders, builder)(str(REPO)).recurse_included_files()
    names = {Path(file.path).name for file in built if "pretrained" in file.path}
    assert {f"{name}.safetensors" for name in PRETRAINED} <= names
