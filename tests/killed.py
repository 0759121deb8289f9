"""Kill a worker of this process in the middle of a job: one of its children, or of its Ray."""

import os
import signal
import threading
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def killing(children, when):
    """Kill one of the ``children()`` as soon as ``when()``."""
    killed, over = [], threading.Event()

    def kill():
        while not killed and not over.wait(0.01):
            if when():
                for pid in children():
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                        break

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
    assert len(killed) == 1


def ray_workers():
    """Processes of this one's Ray that are at a job."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            found += [pid] if words.startswith(b"ray::_work") else []
    return found


def descendants(pid):
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}
