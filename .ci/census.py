"""How large the house is: ``make census``.

Lines and files per folder, what ``import graphglow`` and ``graphglow --help`` take, and how many
settings each config has.
"""

import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

from graphglow import settings

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


if __name__ == "__main__":
    main()
