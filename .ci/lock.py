"""Write requirements.lock: the versions, here, of all that graphglow[dev] needs.

    .venv/bin/python .ci/lock.py requirements.lock

Local parts of versions (``+cpu``) are left out: they name a build, not a release.
"""

import platform
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement


def asked_for(extra: str) -> list[Requirement]:
    """What pyproject.toml asks for with an extra, those that it refers to included."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    found = list(map(Requirement, project["dependencies"]))
    waiting = [extra]
    while waiting:
        for need in map(Requirement, project["optional-dependencies"][waiting.pop()]):
            if need.name == project["name"]:
                waiting += need.extras
            else:
                found.append(need)
    return found


def versions(waiting: list[Requirement]) -> dict[str, str]:
    """Name -> installed version of requirements and of whatever they ask for in turn."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        new = [(name, extra) for extra in ("", *wanted.extras) if (name, extra) not in seen]
        seen.update(new)
        installed = distribution(name)
        found[name] = installed.version.split("+")[0]
        for need in map(Requirement, installed.requires or ()):
            if any(not need.marker or need.marker.evaluate({"extra": e}) for _, e in new):
                waiting.append(need)
    return found


def main(path: Path) -> None:
    """Write the file."""
    python = ".".join(platform.python_version_tuple()[:2])
    known = versions([r for r in asked_for("dev") if not r.marker or r.marker.evaluate()])
    lines = [f"{name}=={version}\n" for name, version in sorted(known.items())]
    head = f"# What the tests last passed with, on Python {python}: made by `make lock`.\n"
    path.write_text(head + "".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
