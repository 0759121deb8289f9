"""Where a figure came from: the part of a result row that lets someone else make it again."""

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch
import torch_geometric

from graphglow.version import __version__


def provenance() -> dict[str, Any]:
    """Command, commit, machine, versions. ``GRAPHGLOW_COMMIT`` speaks where git cannot."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    triton = next((found.version for found in distributions(name="triton")), None)
    return {
        "command": _command(),
        "commit": os.environ.get("GRAPHGLOW_COMMIT") or _git_commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "gpu": gpu},
        "versions": {
            "graphglow": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "cuda": torch.version.cuda,
            "triton": triton,
        },
    }


def _command() -> str:
    """The command line; of absolute paths, which mean nothing elsewhere, the last part."""
    program, *words = (Path(w).name if Path(w).is_absolute() else w for w in sys.argv)
    if program in ("__main__.py", "graphglow"):
        return " ".join(["graphglow", *words])
    return " ".join([Path(sys.executable).name, program, *words])


@cache
def _git_commit() -> str:
    """The commit of the source tree, marked where files differ from it."""
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    where = Path(__file__).resolve().parent
    try:
        done = subprocess.run(words, cwd=where, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip() or "unknown"
