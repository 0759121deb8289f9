"""What goes wrong around a run: each fault has one sentence, and costs nothing that was there.

The faults are real ones, in a child process with a small disk of its own where the system allows
that, and without the rights of root.
"""

import json
import subprocess
import sys

import pytest
import torch

import graphglow

PRELUDE = """
import contextlib, ctypes, io, json, os, subprocess, sys
from pathlib import Path
from graphglow.cli import main
home, disk = Path(sys.argv[1]), Path(sys.argv[2])
report = {}

def run(name, *words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    lines = [line for line in err.getvalue().splitlines() if "has no split of its own" not in line]
    report[name] = [status, lines, sorted(os.listdir(disk))]

graph = ["--target", home / "g.npz", "--device", "cpu"]
fast = ["--epochs", "2"]
"""
SMALL_DISK = """
(disk / "old.st").write_text("old")
with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
    while True:
        file.write(b"x" * 4096)
run("transfer", "transfer", *graph, *fast, "--out", disk / "old.st", "--overwrite")
run("table", "predict", *graph, "--out", disk / "p.csv")
for kind in ("npz", "csv", "parquet", "graphml"):
    run(kind, "refine", *graph, "--out", disk / f"g.{kind}")
report["old"] = (disk / "old.st").read_text()
subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], check=True)
run("read-only transfer", "transfer", *graph, "--epochs", "1000000", "--out", disk / "r.st")
run("read-only refine", "refine", *graph, "--out", disk / "g.npz")
"""
NO_RIGHTS = """
(disk / "mine.npz").write_bytes((home / "g.npz").read_bytes())
(disk / "mine.npz").chmod(0)
disk.chmod(0o555)
if os.geteuid() == 0:  # root may read and write anything, until it gives that up
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
run("unreadable", "refine", "--target", disk / "mine.npz", "--out", home / "x.csv")
run("unwritable", "transfer", *graph, "--epochs", "1000000", "--out", disk / "r.st")
"""
MOUNT = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'

pytestmark = pytest.mark.slow


def outcomes(script, home, disk, *, mounted):
    """Run commands in a process of its own; return their outcomes by name."""
    code = f"{PRELUDE}\n{script}\nprint(json.dumps(report))"
    words = [sys.executable, "-W", "ignore", "-c", code, str(home), str(disk)]
    if mounted:
        words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(disk),
                 *words]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if mounted and "unshare" in done.stderr:
        pytest.skip("this system mounts nothing for a process")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_disk_that_is_full_or_read_only(home, tmp_path):
    report = outcomes(SMALL_DISK, home, tmp_path, mounted=True)
    assert report.pop("old") == "old"
    for name, (status, lines, files) in report.items():
        assert (status, len(lines)) == (2, 1), (name, status, lines)
        assert ("Read-only" if "read-only" in name else "No space") in lines[0], (name, lines)
        assert files == ([] if "read-only" in name else ["ballast", "old.st"])


def test_files_without_permission(home, tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    try:
        report = outcomes(NO_RIGHTS, home, folder, mounted=False)
    finally:
        folder.chmod(0o755)
    for status, lines, files in report.values():
        assert (status, len(lines), files) == (2, 1, ["mine.npz"])
    assert "can be read" in report["unreadable"][1][0]
    assert "cannot be written" in report["unwritable"][1][0]


@pytest.mark.gpu
def test_without_memory_on_a_gpu_the_sentence_says_what_would_fit():
    graph = graphglow.synthetic_graph(num_nodes=20_000, average_degree=20.0)
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(0.002)
    try:
        with pytest.raises(graphglow.InputError, match="memory"):
            graphglow.transfer(graph, "universal", epochs=1, hidden=4096, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(before)
