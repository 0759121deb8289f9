"""Use the wheel on every Python from 3.10 on, each in an environment of its own: ``make pythons``.

A Python that is not here, or has no wheel of torch here, is named and left out; a check that fails
is an exit status of 1. On Linux torch is a CPU build, so that nothing of gigabytes is fetched: if
pip does not find one, point PIP_EXTRA_INDEX_URL at PyTorch's index of CPU wheels.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def find_python(version: str) -> str | None:
    """A Python of this version that starts: on the path, or one of pyenv's."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for name in (f"python{version}", *map(str, reversed(kept))):
        path = shutil.which(name)
        if path is not None and run([path, "-c", "pass"]).returncode == 0:
            return path
    return None


def run(command: list[str], cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def pinned_torch() -> str:
    """The requirement for torch: the pinned version, on Linux built for the CPU."""
    pin = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pin is not None, "constraints.txt pins torch"
    return pin[0] + ("+cpu" if sys.platform == "linux" else "")


def use_wheel(python: str, wheel: Path, folder: Path) -> tuple[str, str]:
    """Install and use the wheel; return what came of it in a word, and the end of the output."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = run([*pip, "--no-deps", pinned_torch()])
    if torch.returncode:
        return "no torch", f"pip finds no {pinned_torch()} for it"
    installed = run([*pip, "--only-binary", ":all:", str(wheel)])
    if installed.returncode:
        return "FAILED", installed.stderr
    for command in (["-m", "pip", "check"], ["-W", "ignore", str(ROOT / "tests/use_the_wheel.py")]):
        used = run([inside, *command], cwd=folder)
        if used.returncode:
            return "FAILED", used.stdout + used.stderr
    return "works", used.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "pythons")
    arguments = parser.parse_args()
    failed = []
    for version in VERSIONS:
        python = find_python(version)
        word, text = (
            ("absent", "skipped")
            if python is None
            else use_wheel(python, arguments.wheel.resolve(), arguments.folder.resolve() / version)
        )
        if word == "FAILED":
            failed.append(version)
        else:
            shutil.rmtree(arguments.folder / version, ignore_errors=True)  # a gigabyte each
        print(f"Python {version}: {word} ({text.strip()[-2000:]})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
