"""The learners that come with the package, by name: in Python and on the command line."""

import json
from pathlib import Path

import pytest
import torch

import graphglow
from graphglow.cli import main
from graphglow.commands.output import check_output
from graphglow.graph import DATASETS
from graphglow.pretrained import (
    FOLDER,
    PRETRAINED,
    evidence_learner,
    load_learner,
)

REPO = Path(__file__).parents[2]
SHORT = ["--target", "wine", "--epochs", "2"]
FAST = [*SHORT, "--num-pivots", "8", "--refinements", "2"]


def weights(learner: torch.nn.Module) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in learner.parameters()])


@pytest.mark.parametrize("name", PRETRAINED)
def test_every_learner_is_small_and_says_how_it_was_made(name: str) -> None:
    assert (FOLDER / f"{name}.safetensors").stat().st_size < 200_000
    made = load_learner(name).provenance
    assert made["trained"]
    paper = {name for name, known in DATASETS.items() if known.kind in ("citation", "social")}
    assert len(paper) == 7
    assert paper & set(made["sources"]) == (paper if name == "paper" else set())


def test_the_learner_of_the_paper_says_how_it_was_made() -> None:
    learner = load_learner("paper")
    made = learner.provenance
    assert made["name"] == "paper"
    assert learner.config.delta == "truncate"
    assert made["config"]["learner"]["num_heads"] == learner.config.num_heads
    assert 0 < made["validation_accuracy"] <= 1
    assert "benchmarks/" in made["provenance"]["command"]
    assert made["provenance"]["commit"] != "unknown"
    untrained = graphglow.StructureLearner(learner.config, seed=made["seed"])
    assert not torch.equal(weights(learner), weights(untrained))


def test_names_and_files_are_the_same_and_sources_are_known() -> None:
    assert {path.stem for path in FOLDER.glob("*.safetensors")} == {*PRETRAINED, "audit"}
    assert all(name in DATASETS for name in load_learner("paper").provenance["sources"])


def test_learners_are_of_two_kinds() -> None:
    assert isinstance(load_learner(), graphglow.EvidenceLearner)
    assert isinstance(load_learner("paper"), graphglow.StructureLearner)
    assert isinstance(load_learner("PAPER"), graphglow.StructureLearner)
    with pytest.raises(graphglow.InputError, match="needs an evidence learner; got one of the pap"):
        evidence_learner("paper")


def test_the_control_has_the_weights_of_its_seed() -> None:
    one, same, other = (load_learner("untrained", seed=seed) for seed in (1, 1, 2))
    assert isinstance(one, graphglow.EvidenceLearner)
    assert not one.provenance["trained"]
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))
    assert not torch.equal(weights(one), weights(load_learner("universal")))


def test_each_load_is_a_learner_of_its_own() -> None:
    one, other = load_learner("Universal"), load_learner("universal")
    with torch.no_grad():
        next(one.parameters()).zero_()
    assert weights(other).abs().sum() > 0
    assert not torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("univrsal", "paper, untrained or an existing file; got 'univrsal' (nearest: universal)"),
        ("papre", "(nearest: paper)"),
        ("xyz", "must be universal, paper, untrained or an existing file; got 'xyz'"),
        ("evidence", "must be universal, paper, untrained or an existing file; got 'evidence'"),
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
    assert isinstance(load_learner("Universal"), graphglow.EvidenceLearner)
    for file in ("./universal", str(tmp_path / "universal"), Path("universal")):
        assert load_learner(file).config.embedding_size == 3
    assert load_learner(own) is own


def test_transfer_and_refine_take_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("universal").mkdir()  # no matter what lies here
    methods = {"universal": "evidence", "Untrained": "untrained", "paper": "graphglow"}
    for learner, method in methods.items():
        words = FAST if learner == "paper" else SHORT
        assert main(["transfer", "--learner", learner, *words, "--json"]) == 0
        facts = json.loads(capsys.readouterr().out)
        assert (facts["learner"], facts["method"]) == (learner, method)
        if learner == "paper":
            continue
        words = ["--learner", learner, *words[:2], "--out", "universal/refined.csv", "--overwrite"]
        assert main(["refine", *words]) == 0
        assert Path("universal/refined.csv").read_text().startswith("source,target,weight")
        capsys.readouterr()


def test_a_target_that_was_a_source_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphglow.write_graph(graphglow.load_graph("wine"), tmp_path / "cora.npz")
    words = ["--target", str(tmp_path / "cora.npz"), *SHORT[2:]]
    for learner, seen in {"universal": False, "untrained": False, "paper": True}.items():
        assert main(["transfer", "--learner", learner, *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["target_was_source"] is seen
    assert main(["transfer", "--learner", "paper", *words]) == 0
    assert "pre-trained on a graph of this name" in capsys.readouterr().out


def test_a_shipped_file_is_never_an_output() -> None:
    for name in PRETRAINED:
        with pytest.raises(graphglow.InputError, match="one of the inputs"):
            check_output(FOLDER / f"{name}.safetensors", overwrite=True, inputs=(name,))


def test_datasets_lists_the_learners(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["learners"]
    assert {row["name"]: row["what"] for row in listed} == PRETRAINED
    assert main(["datasets"]) == 0
    assert "universal  evidence learner, pre-trained on" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_files_are_in_what_is_built(kind: str) -> None:
    builders = pytest.importorskip(f"hatchling.builders.{kind}")
    builder = {"wheel": "WheelBuilder", "sdist": "SdistBuilder"}[kind]
    built = getattr(builders, builder)(str(REPO)).recurse_included_files()
    files = {Path(file.path).name: Path(file.path) for file in built}
    assert {f"{name}.safetensors" for name in PRETRAINED} <= files.keys()
    assert {"cora.npz", "cora_license.txt"} <= files.keys()
    assert files["cora.npz"].stat().st_size < 200_000
    assert "MIT License" in files["cora_license.txt"].read_text()
