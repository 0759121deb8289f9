"""How large the house is: ``make census``.

Lines and files per folder, what ``import graphglow`` and ``graphglow --help`` take, how many
settings each config has, and how far a reader has to walk to follow three calls.
"""

import contextlib
import io
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import graphglow
from graphglow import settings
from graphglow.cli import main as command_line

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "graphglow"


def sizes(files: list[Path]) -> tuple[int, int]:
    """Lines and files, those of caches left out."""
    files = [path for path in files if "__pycache__" not in path.parts]
    return sum(len(path.read_text().splitlines()) for path in files), len(files)


def seconds(*words: str, repeats: int = 5) -> float:
    """The fastest of a few runs of Python."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def walk(job: Callable[[], object]) -> str:
    """Count the functions and files of graphglow that a call enters, and how deep they nest.

    Control changes its file whenever a function of another file is entered than the one before.
    """
    source = str(SOURCE)
    entered: dict[CodeType, None] = {}
    depth, deepest, changes, last = 0, 0, 0, ""

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, deepest, changes, last
        code = frame.f_code
        if not code.co_filename.startswith(source) or code.co_name.startswith("<"):
            return
        if event == "return":
            depth -= 1
        elif event == "call":
            entered[code] = None
            changes += code.co_filename != last
            last, depth = code.co_filename, depth + 1
            deepest = max(deepest, depth)

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            job()  # imports are no part of the walk
            sys.setprofile(watch)
            job()
            sys.setprofile(None)
    files = [code.co_filename for code in entered]
    first = sum(one != other for one, other in pairwise(files))
    return (
        f"{len(entered)} functions in {len(set(files))} files, depth {deepest}, {changes:,} changes"
        f" of file ({first} at the first entry of a function)"
    )


def walks() -> None:
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


def main() -> None:
    folders = [path for path in sorted(SOURCE.iterdir()) if path.is_dir()]
    groups = {folder.name: list(folder.rglob("*.py")) for folder in folders}
    groups |= {".": list(SOURCE.glob("*.py")), "src": list(SOURCE.rglob("*.py"))}
    groups |= {name: list((ROOT / name).rglob("*.py")) for name in ("tests", "benchmarks")}
    groups["docs"] = list((ROOT / "docs").glob("*.md"))
    for name, files in groups.items():
        lines, count = sizes(files)
        if count:
            print(f"{name:<12} {lines:>7,} lines {count:>4} files")
    for name, kind in vars(settings).items():
        if isinstance(kind, type) and is_dataclass(kind) and name.endswith("Config"):
            print(f"{name}: {len(fields(kind))} settings")
    print(f"import graphglow: {seconds('-c', 'import graphglow'):.2f} s")
    print(f"graphglow --help: {seconds('-m', 'graphglow', '--help'):.2f} s")
    print(f"graphglow transfer --help: {seconds('-m', 'graphglow', 'transfer', '--help'):.2f} s")
    walks()


if __name__ == "__main__":
    main()
