"""What the README shows is run as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
COUNT = """
added = {frozenset(pair) for pair in false.T.tolist()}
first = suspects[["source", "target"]].head(100).values.tolist()
print("false:", sum(frozenset(pair) in added for pair in first))
"""
README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_python_blocks_and_then_the_commands_run_in_one_folder(tmp_path: Path) -> None:
    done = run(["-c", "\n".join([*blocks("python"), COUNT])], tmp_path)
    assert int(re.search(r"^false: (\d+)$", done, flags=re.MULTILINE)[1]) >= 95
    figures = [float(line) for line in done.splitlines() if re.fullmatch(r"[01]\.\d+", line)]
    predicted, given, refined, _ = figures
    assert refined > given + 0.03
    assert predicted > given
    assert (tmp_path / "refined.csv").read_text().startswith("source,target,weight")
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("graphglow ")]
    expected = ["predict", "audit", "refine", "explain"]
    assert [words[1] for words in commands] == expected
    for words in commands:
        run(["-m", *words], tmp_path)
    assert (tmp_path / "better.csv").is_file()


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
