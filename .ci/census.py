"""How large the house is: ``make census``.

Lines and files per folder, what ``import graphglow`` and ``graphglow --help`` take, and how many
functions and files a reader enters who follows three calls.
"""

import contextlib
import io
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import graphglow
from graphglow.cli import main as command_line

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "graphglow"


def seconds(*words: str) -> float:
    """The fastest of five runs of Python."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def walk(job: Callable[[], object]) -> str:
    """Count the functions and files of graphglow that a call enters."""
    entered: set[CodeType] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name[0] != "<":
            entered.add(code)

    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        job()  # imports are no part of the walk
        sys.setprofile(watch)
        job()
        sys.setprofile(None)
    return f"{len(entered)} functions in {len({code.co_filename for code in entered})} files"


def main() -> None:
    groups = {folder.name: folder for folder in sorted(SOURCE.iterdir()) if folder.is_dir()}
    groups |= {name: ROOT / name for name in ("src", "tests", "benchmarks", "docs")}
    for name, folder in groups.items():
        files = list(folder.rglob("*.md" if name == "docs" else "*.py"))
        if files:
            lines = sum(len(path.read_text().splitlines()) for path in files)
            print(f"{name:<12} {lines:>7,} lines {len(files):>4} files")
    print(f"import graphglow: {seconds('-c', 'import graphglow'):.2f} s")
    print(f"graphglow --help: {seconds('-m', 'graphglow', '--help'):.2f} s")
    graph, paper = "breast_cancer", {"epochs": 2, "device": "cpu"}
    refine, transfer, load = graphglow.refine, graphglow.transfer, graphglow.load_graph
    print(f"refine: {walk(lambda: refine(load(graph)))}")
    print(f"transfer, paper: {walk(lambda: transfer(load(graph), 'paper', **paper))}")
    with tempfile.TemporaryDirectory() as folder:
        people = [f"{i},{'ab'[i % 2]},{i % 2 + i % 7 / 9},{i}" for i in range(60)]
        (Path(folder) / "nodes.csv").write_text("\n".join(["id,label,age,size", *people]))
        pairs = [f"{i},{(i + 2) % 60}" for i in range(60)]
        (Path(folder) / "edges.csv").write_text("\n".join(["source,target", *pairs]))
        words = ["transfer", "--target", folder, "--epochs", "2"]
        print(f"graphglow transfer --target FOLDER: {walk(lambda: command_line(words))}")


if __name__ == "__main__":
    main()
