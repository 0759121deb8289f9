"""The pages of docs/ build without a broken link, and what they show runs as it stands."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from forked import CONTEXT, PATIENCE, Forked

pytestmark = pytest.mark.slow
REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
FENCE = re.compile(r"^```(python|bash)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LONG = {
    "graphglow reproduce",
    "graphglow report results/",
    "python benchmarks/",
}
"""Beginnings of commands that measure for minutes, or need the paper's graphs or our rows."""
PAGES = sorted(page for page in DOCS.glob("*.md") if FENCE.search(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    """As one script: Python blocks share their names, as a reader's session does."""
    script = []
    for language, block in FENCE.findall(page.read_text()):
        lines = [block] if language == "python" else [called(line) for line in block.splitlines()]
        script += lines
    run("\n".join(script), tmp_path)


def called(line: str) -> str:
    """A line of a shell block as Python; nothing for one that is not to be run here."""
    if line.startswith((*LONG, "#")) or not line.strip():
        return ""
    assert line.startswith("graphglow "), f"cannot run {line!r}"
    return f"in_a_shell({shlex.split(line, comments=True)[1:]!r})"


def run(script: str, folder: Path) -> None:
    """In one process; each command of graphglow in another."""
    here, there = CONTEXT.Pipe()
    session = Forked(execute, script, there, folder=folder)
    there.close()
    try:
        with contextlib.suppress(EOFError):  # the session has ended
            while here.poll(PATIENCE):
                Forked(command, here.recv(), folder=folder).wait()
                here.send(None)
    finally:
        here.close()  # a session that waits for a command ends, too
    session.wait()


def execute(script: str, pipe: Connection) -> None:
    def in_a_shell(words: list[str]) -> None:
        pipe.send(words)
        pipe.recv()

    exec(script, {"__name__": "__main__", "in_a_shell": in_a_shell})


def command(words: list[str]) -> None:
    from graphglow.cli import main

    sys.exit(main(words))


@pytest.mark.parametrize(
    "notebook", sorted(DOCS.glob("notebooks/*.ipynb")), ids=lambda path: path.name
)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    run("\n".join(code), tmp_path)


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "load_learner" in (tmp_path / "api.html").read_text()


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"(\w+\.md)$", (REPO / "mkdocs.yml").read_text(), re.MULTILINE))
    assert listed == {page.name for page in DOCS.glob("*.md")}
