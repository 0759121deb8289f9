"""Help and mistyped flags: quick, as wide as the terminal, and about what the command has."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphglow.commands import COMMANDS
from graphglow.commands.options import ELSEWHERE, KINDS, USUAL, help_of, table

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "command_options.py"


def test_the_table_is_not_stale(run_script):
    assert run_script(SCRIPT, "--check") == 0, "run python benchmarks/command_options.py"


def test_torch_is_not_imported_for_help_or_a_typo():
    lines = [[*words.split(), flag] for words in table() for flag in ("--help", "--help-all")]
    lines += [["--help"], [], ["tranfer"], ["transfer", "--target", "wine", "--epoch", "3"]]
    lines += [["transfer"], ["transfer", "--learner", "paper", "--target", "wine", "--hidden", "8"]]
    code = f"""
import sys
from graphglow.cli import main
for words in {lines!r}:
    main(words)
sys.exit("torch was imported" if {{"torch", "numpy", "tyro"}} & {{*sys.modules}} else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", table())
@pytest.mark.parametrize("width", [60, 80, 100])
def test_help_is_as_wide_as_the_terminal_and_shows_what_people_use_first(monkeypatch, words, width):
    monkeypatch.setenv("COLUMNS", str(width))
    short, whole = (help_of(words, whole=flag) for flag in (False, True))
    for text in (short, whole):
        assert max(len(one) for one in text.splitlines() if "[{" not in one) <= width
        assert "No effect" not in text
    shown = [line.split()[0].strip(",") for line in short.splitlines() if line.startswith("  --")]
    usual = USUAL.get(words, USUAL.get(words.split()[0], ""))
    assert len(shown) <= (10 if usual else 16)
    known = table()[words].options
    for one in known:
        assert one.names.split()[0] in whole
    flags = [one for one in known if one.names[:2] == "--"]
    assert ("--help-all shows" in " ".join(short.split())) == (len(shown) < len(flags))


def test_the_lists_name_options_that_there_are():
    for words, names in USUAL.items():
        kinds = [one for one in table() if one == words or one.startswith(f"{words} --")]
        known = {option.usual_name for one in kinds for option in table()[one].options}
        assert set(names.split()) <= known
    assert set(KINDS) | set(USUAL) <= {*COMMANDS, "refine --learner paper", "pretrain --kind paper"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_speaks_json(name):
    assert "--json" in table()[name].flags


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("transfer --target wine --epoch 3", "unknown option --epoch: perhaps --epochs"),
        ("transfer --target wine --bogus", "unknown option --bogus; see graphglow transfer"),
        ("transfer --target wine --suspects a.csv", "it belongs to graphglow audit"),
        ("transfer --target wine --num-pivots 8", "no effect here: it belongs to --learner paper"),
        ("transfer --target wine --learner=paper --hidden 8", "belongs to --learner universal"),
        ("refine --target wine --out g.csv --epochs 3", "belongs to --learner paper"),
        ("pretrain --sources wine --out l.st --epochs 3", "belongs to --kind paper"),
        ("fit --method gcn --target wine --steps 3", "belongs to --method appnp, --method gpr"),
        ("audit --sedd 3", "missing: --target NAME|FILE; unknown option --sedd: perhaps --seed"),
        ("transfer --target wine --lr 0.1", "unknown option --lr: here it is --learning-rate; see"),
        ("audit --dataset wine", "unknown option --dataset: here it is --target"),
    ],
)
def test_a_flag_that_is_not_there_is_explained(run, words, said):
    assert said in run(*words.split()).refuses()


def test_names_from_elsewhere_are_none_of_ours():
    ours = {flag for entry in table().values() for flag in entry.flags}
    for theirs, here in ELSEWHERE.items():
        assert {*here.split()} <= ours
        assert theirs == theirs.lower()


@pytest.mark.parametrize("words", ["refine", "refine --learner paper", "nonsense"])
def test_help_goes_before_a_command_too(run, words):
    assert run("help", *words.split()) == run(*words.split(), "--help")


def test_a_learner_in_a_file_says_which_flags_there_are(run, home):
    words = ["transfer", "--learner", home / "learner.st", "--target", home / "g.npz"]
    assert "belongs to --learner universal" in run(*words, "--hidden", "8").refuses()
    assert "--num-pivots" in run(*words, "--help-all").out


def test_both_spellings_of_a_flag_are_read(run, home):
    words = ["fit", "--method=mlp", f"--target={home / 'g.npz'}", "--epochs=1", "--split_seed=3"]
    assert run(*words, "--json").json["split"] == "random seed 3"
