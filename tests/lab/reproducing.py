"""``graphglow reproduce`` in a session of its own, on an experiment of two cells."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from small_cells import SETTINGS

from graphglow.lab.settings import write_settings

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from graphglow.cli import main
from graphglow.lab.paper.cells import EXPERIMENTS
from small_cells import cell

if __name__ == "__main__":
    EXPERIMENTS["tiny"] = lambda: iter([cell(), cell("graphglow")])
    words = ["--pretrain-epochs", "1", "--device", "cpu", "--processes", "2"]
    sys.exit(main(["reproduce", "tiny", *words, *sys.argv[1:]]))
"""


@contextmanager
def reproducing(folder, *words):
    """The process, and its rows in the folder."""
    script, out, settings = (folder / n for n in ("script.py", "rows.jsonl", "settings.json"))
    script.write_text(SCRIPT)
    write_settings(settings, SETTINGS)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = [script, *words, "--out", out, "--settings", settings]
    process = subprocess.Popen(
        [sys.executable, *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a suite that runs in the background hands on an ignored Ctrl-C
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process, out
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it may have left behind
        process.communicate()
