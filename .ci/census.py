"""How large the house is: ``make census``.

Lines and files per folder; what one small ``graphglow transfer`` imports and enters, and how deep;
what ``import graphglow`` and ``graphglow --help`` take; how many settings each config has.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "graphglow"
WALK = """
import sys
files, deepest = set(), 0
def enter(frame, event, argument):
    global deepest
    if event != "call" or "/graphglow/" not in frame.f_code.co_filename:
        return
    if frame.f_code.co_name == "<module>":
        return
    files.add(frame.f_code.co_filename)
    depth = 0
    while frame is not None:
        depth += "/graphglow/" in frame.f_code.co_filename
        frame = frame.f_back
    deepest = max(deepest, depth)
from graphglow.cli import main
sys.setprofile(enter)
status = main(["transfer", "--learner", "universal", "--target", "synthetic-small", "--epochs", "2",
               "--json"])
sys.setprofile(None)
assert status == 0, status
imported = [name for name in sys.modules if name.startswith("graphglow")]
print(f"a transfer: {len(imported)} modules imported, {len(files)} files entered, "
      f"{deepest} frames deep", file=sys.stderr)
"""
CONFIGS = """
import dataclasses, graphglow
from graphglow.training.config import GROUPS
of = {name: group for group, kind in GROUPS.items() for name in kind.__annotations__}
for name in ("TransferConfig", "PretrainConfig"):
    counts = {}
    for field in dataclasses.fields(getattr(graphglow, name)):
        nested = dataclasses.is_dataclass(field.default_factory)
        group = field.name if nested else of.get(field.name, "its own")
        counts[group] = counts.get(group, 0) + (
            len(dataclasses.fields(field.default_factory)) if nested else 1)
    shown = ", ".join(f"{group} {number}" for group, number in counts.items())
    print(f"{name}: {sum(counts.values())} settings; {shown}")
"""


def sizes(folder: Path, pattern: str = "*.py") -> tuple[int, int]:
    """Lines and files of a folder and all below."""
    files = [path for path in folder.rglob(pattern) if "__pycache__" not in path.parts]
    return sum(len(path.read_text().splitlines()) for path in files), len(files)


def seconds(command: list[str], repeats: int = 5) -> float:
    """The fastest of a few runs."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    rows = [
        (folder.name, *sizes(folder))
        for folder in sorted(SOURCE.iterdir())
        if folder.is_dir() and folder.name != "__pycache__"
    ]
    top = list(SOURCE.glob("*.py"))
    rows.append((".", sum(len(p.read_text().splitlines()) for p in top), len(top)))
    rows.append(("src", *sizes(SOURCE)))
    rows += [(name, *sizes(ROOT / name)) for name in ("tests", "benchmarks")]
    rows.append(("docs", *sizes(ROOT / "docs", "*.md")))
    for name, lines, files in rows:
        print(f"{name:<12} {lines:>7,} lines {files:>4} files")
    print(subprocess.run([sys.executable, "-c", CONFIGS], **TEXT).stdout, end="")
    print(subprocess.run([sys.executable, "-c", WALK], **TEXT).stderr.splitlines()[-1])
    print(f"import graphglow: {seconds([sys.executable, '-c', 'import graphglow']):.2f} s")
    print(f"graphglow --help: {seconds([sys.executable, '-m', 'graphglow', '--help']):.2f} s")


TEXT = {"check": True, "capture_output": True, "text": True}

if __name__ == "__main__":
    main()
