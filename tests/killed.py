"""Kill a worker in the middle of a job, a child or one of Ray's, and see who is left."""

import os
import signal
import threading
import time
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


def until(condition, process=None, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def members(session):
    """Processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found
