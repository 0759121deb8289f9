"""What the README shows is run as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_python_examples_run_one_after_the_other(tmp_path: Path) -> None:
    script = "\n".join(blocks("python"))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split()[0])
    assert 0.8 < accuracy <= 1
    assert (tmp_path / "refined.csv").read_text().startswith("source,target,weight")


def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("graphglow ")]
    assert [words[1] for words in commands] == ["datasets", "transfer", "refine", "pretrain"]
    for words in commands:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "refined.csv").is_file()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_make_targets_exist(target: str) -> None:
    assert f"make {target}" in README.read_text()
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), flags=re.MULTILINE)
