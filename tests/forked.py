"""Processes that begin with torch and PyG loaded, and nothing of graphglow.

Python takes four seconds of a core to import both. A server that has done so is forked for each
process here, which then imports of graphglow what it needs, as one that a user starts does.
"""

import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch_geometric.datasets"])
PATIENCE = 300
"""Seconds after which a process counts as one that hangs."""


class Forked:
    """A call of an importable function in a process of its own, which lies in ``folder``.

    Its environment is that of this moment; warnings are ignored, as ``python -W ignore`` does.
    """

    def __init__(self, function: Callable[..., object], *args: object, folder: Path) -> None:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        self.said = Path(name)
        job = (self.said, folder, dict(os.environ), function, args)
        self.process = CONTEXT.Process(target=_call, args=job, daemon=True)
        self.process.start()

    def wait(self, seconds: float = PATIENCE) -> str:
        """What it printed, on both streams; AssertionError with that unless it ended well."""
        self.process.join(seconds)
        self.process.kill()
        self.process.join()
        said = self.said.read_text()
        self.said.unlink()
        assert self.process.exitcode == 0, f"exit status {self.process.exitcode}\n{said}"
        return said


def _call(
    said: Path,
    folder: Path,
    environment: dict[str, str],
    function: Callable[..., object],
    args: tuple[object, ...],
) -> None:
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    warnings.simplefilter("ignore")
    function(*args)
