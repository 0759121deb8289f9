"""What goes wrong around a run: each fault has one sentence, and costs nothing that was there.

They are real ones, in two child processes: one has a small disk of its own, where the system
allows that, the other is short of memory and of permissions. What a run leaves when it ends badly
is tested in test_cli_resume.py; a table of all faults is in docs/resuming.md.
"""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import pytest
import torch

import graphglow
from forked import Forked
from graphglow.errors import InputError
from graphglow.evidence.stages import watched

PRELUDE = """
import contextlib, ctypes, io, json, os, resource, subprocess, sys
from pathlib import Path
import numpy as np
import torch
from graphglow.cli import main
torch.set_num_threads(1)
home, disk = Path(sys.argv[1]), Path(sys.argv[2])
report = {}

def run(name, *words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(word) for word in words])
    lines = [line for line in err.getvalue().splitlines() if "has no split of its own" not in line]
    report[name] = [status, lines, sorted(os.listdir(disk))]

def fill():
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

def drop_capabilities():
    if os.geteuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, none) == 0

fast = "--num-pivots 8 --refinements 2 --device cpu".split()
transfer = ["transfer", "--learner", home / "learner.st", "--target", home / "g.npz", *fast]
sources = "pretrain --kind paper --sources".split()
pretrain = [*sources, home / "g.npz", "--episodes", "1", *fast]
refine = ["refine", *transfer[1:], "--epochs", "2"]
"""
MOUNT = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'


def whole(script):
    """With the prelude; the commands' outcomes, by name, are printed."""
    return f"{PRELUDE}\n{script}\nprint(json.dumps(report))"


# A disk that is full, or read-only

SMALL_DISK = """
(disk / "old.st").write_text("old")
fill()
run("full pretrain", *pretrain, "--epochs", "2", "--out", disk / "l.st")
run("full transfer", *transfer, "--epochs", "2", "--out", disk / "old.st", "--overwrite")
run("full table", *transfer, "--epochs", "2", "--predictions", disk / "p.csv")
for kind in ("npz", "csv", "parquet", "graphml"):
    run(f"full {kind}", *refine, "--out", disk / f"g.{kind}")
report["old"] = (disk / "old.st").read_text()
(disk / "ballast").unlink()
(disk / "old.st").unlink()

from graphglow.training import checkpoint
real = checkpoint.Checkpoints.offer
def offer(self, *state):
    real(self, *state)
    if len(self.files()) == 2:
        fill()
checkpoint.Checkpoints.offer = offer
words = [*transfer, "--epochs", "12", "--checkpoint-seconds", "0", "--out", disk / "r.st"]
run("fills up", *words)
checkpoint.Checkpoints.offer = real
(disk / "ballast").unlink()
run("left over", *words)
run("room again", *words, "--resume", "--json")
run("unbroken", *words[:-1], home / "unbroken.st", "--overwrite")
from graphglow import TransferResult
one, other = TransferResult.load(disk / "r.st"), TransferResult.load(home / "unbroken.st")
report["same"] = one.history == other.history and torch.equal(
    one.predict_proba(), other.predict_proba())

(disk / "r.st").unlink()

from graphglow.evidence import candidates
candidates.NODES["cpu"], candidates.PAIRS["cpu"] = 16, 64
keep = checkpoint.Parts.keep
def filling(self, *part):
    keep(self, *part)
    if len(self.files()) == 2:
        fill()
checkpoint.Parts.keep = filling
words = ["refine", "--target", home / "g.npz", "--device", "cpu", "--workers", "1", "--out"]
run("parts fill up", *words, disk / "e.csv")
checkpoint.Parts.keep = keep
(disk / "ballast").unlink()
run("room for parts", *words, disk / "e.csv", "--resume")
run("all parts", *words, home / "e.csv", "--overwrite")
report["same parts"] = (disk / "e.csv").read_bytes() == (home / "e.csv").read_bytes()

subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], check=True)
run("read-only pretrain", *pretrain, "--epochs", "1000000", "--out", disk / "l.st")
run("read-only transfer", *transfer, "--epochs", "1000000", "--out", disk / "r.st", "--resume")
run("read-only table", *transfer, "--epochs", "1000000", "--predictions", disk / "p.csv")
run("read-only refine", *refine[:-1], "1000000", "--out", disk / "g.npz")
run("read-only rows", "reproduce", "table1", "--out", disk / "rows.jsonl")
"""


@pytest.fixture(scope="module")
def small_disk(home, tmp_path_factory):
    """What commands did on a disk of 256 KB."""
    disk = tmp_path_factory.mktemp("disk")
    prefix = ["unshare", "-rm", "sh", "-c", MOUNT, str(disk)]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("needs leave to mount in a namespace (unshare -rm)")
    words = [sys.executable, "-W", "ignore", "-c", whole(SMALL_DISK), str(home), str(disk)]
    done = subprocess.run([*prefix, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def of(report, kind):
    """The outcomes whose name begins so."""
    found = {name: outcome for name, outcome in report.items() if name.startswith(kind)}
    assert len(found) > 1
    return found.items()


@pytest.mark.slow
def test_on_a_full_disk_the_sentence_says_so_and_what_was_there_stays(small_disk):
    assert small_disk["old"] == "old"
    for name, (status, errors, left) in of(small_disk, "full "):
        assert status == 2, name
        assert len(errors) == 1
        assert errors[0].startswith("graphglow: the output path must be writable; got ")
        assert "No space left on device" in errors[0]
        assert left == ["ballast", "old.st"]


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_no_parts(small_disk):
    status, (note, kept, last), left = small_disk["parts fill up"]
    assert status == 2
    assert "a part was not written, what was written stays and the run goes on" in note
    assert "when there is room, the same command with --resume goes on" in kept
    assert "the output path must be writable" in last
    assert left == ["ballast", "e.csv.parts"]
    assert small_disk["room for parts"] == [0, [], ["e.csv"]]
    assert small_disk["same parts"] is True


@pytest.mark.slow
def test_a_read_only_disk_is_refused_before_any_work(small_disk):
    for name, (status, errors, left) in of(small_disk, "read-only "):
        assert (status, left) == (2, []), name
        assert len(errors) == 1
        assert "must be writable" in errors[0]
        assert "(Read-only file system)" in errors[0]


# Limits and permissions

LIMITED = """
soft = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, soft[1]))  # a learner is smaller, its run is not
run("file size", *pretrain, "--learner.embedding-size", "6", "--epochs", "3",
    "--checkpoint-seconds", "0", "--out", disk / "l.st")
resource.setrlimit(resource.RLIMIT_FSIZE, soft)

n = 40_000
ring = np.arange(n)
np.savez(disk / "large.npz", x=np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32),
         y=ring % 2, edge_index=np.stack([ring, (ring + 2) % n]))
(disk / "old.st").write_text("old")
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
soft = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (size + 2**28, soft[1]))
large = [disk / "large.npz", "--num-pivots", "2000", "--backend", "eager", "--refinements", "8",
         "--device", "cpu", "--out", disk / "old.st", "--overwrite"]
run("memory transfer", *transfer[:4], *large)
run("memory pretrain", *sources, *large)
resource.setrlimit(resource.RLIMIT_AS, soft)
report["old"] = (disk / "old.st").read_text()

from graphglow.evidence.stages import watched

@contextlib.contextmanager
def without_room(name):
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 2**20, soft[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, soft)

np.savez(disk / "wide.npz", x=np.random.default_rng(0).normal(size=(2000, 4000)).astype(np.float32),
         y=ring[:2000] % 2, edge_index=np.stack([ring[:1999], ring[1:2000]]))
with watched(without_room):
    run("memory: a stage", "refine", "--target", disk / "wide.npz", "--device", "cpu",
        "--out", disk / "wide.csv")

for name in ("g.npz", "learner.st", "split.npz", "result.st"):
    (disk / name).write_bytes(b"secret")
    (disk / name).chmod(0)
(disk / "locked").mkdir(mode=0o500)
drop_capabilities()  # root, too, now needs permission
run("unreadable graph", *sources, disk / "g.npz", "--out", disk / "o.st")
run("unreadable learner", *transfer[:2], disk / "learner.st", *transfer[3:])
run("unreadable split", *transfer, "--split-file", disk / "split.npz")
run("unreadable result", "refine", "--result", disk / "result.st", "--out", disk / "o.csv")
run("locked pretrain", *pretrain, "--epochs", "1000000", "--out", disk / "locked" / "l.st")
run("locked table", *transfer, "--epochs", "1000000", "--predictions", disk / "locked" / "p.csv")
(disk / "locked").chmod(0o700)
"""


@pytest.fixture(scope="module")
def limited(home, tmp_path_factory):
    """What commands did in a process with limits and without permissions."""
    words = ["", str(home), str(tmp_path_factory.mktemp("limited"))]
    script = f"import sys; sys.argv = {words}\n{whole(LIMITED)}"
    return json.loads(Forked(exec, script, {}, folder=home).wait().splitlines()[-1])


@pytest.mark.slow
def test_without_memory_on_a_cpu_the_sentence_says_what_would_fit(limited):
    assert limited["old"] == "old"
    for name, (status, errors, left) in of(limited, "memory "):
        assert status == 2, (name, errors)
        assert len(errors) == 1
        assert "the graph must fit in memory; 40000 nodes with 2000 pivots" in errors[0]
        assert "--backend chunked" in errors[0]
        assert left == ["l.st", "large.npz", "old.st"]


@pytest.mark.slow
def test_an_unreadable_file_is_refused_by_its_name(limited):
    for name, (status, errors, _) in of(limited, "unreadable "):
        assert status == 2, (name, errors)
        assert len(errors) == 1
        assert "must be a regular file that can be read; got" in errors[0]
        assert name.removeprefix("unreadable ") in errors[0]


@pytest.mark.slow
def test_a_folder_without_permission_is_refused_before_any_work(limited):
    for name, (status, errors, _) in of(limited, "locked "):
        assert status == 2, (name, errors)
        assert len(errors) == 1
        assert "must be writable" in errors[0]
        assert "(Permission denied)" in errors[0]


# Memory, by stages

COLUMNS = "fewer columns of features by --columns leave_out=NAME"
HELPS = {
    "pretrain channels": ("an episode", "a smaller --max-nodes"),
    "pretrain fitting": ("a scorer", "smaller --pairs, fewer episodes"),
}
COMMANDS = {
    "refine": ["reading", "views", "channels", "candidates", "evidence", "scoring"],
    "audit": ["reading", "views", "channels", "candidates", "evidence", "scoring"],
    "pretrain": ["channels", "fitting"],
}


@pytest.mark.slow
def test_a_stage_without_memory_says_so_on_a_cpu(limited):
    status, (error,), left = limited["memory: a stage"]
    assert (status, left) == (2, ["l.st", "large.npz", "old.st", "wide.npz"])
    rule = "graphglow: reading of this graph must fit in memory; got no room for 32 MB"
    assert error.startswith(f"{rule} (what helps: ")
    assert COLUMNS in error


@pytest.mark.parametrize(
    ("command", "stage"), [(c, stage) for c, stages in COMMANDS.items() for stage in stages]
)
def test_a_gpu_without_memory_says_what_helps_in_each_stage(command, stage, run, tmp_path):
    @contextmanager
    def full(name):
        if name == stage:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0")
        yield

    words = ["--sources" if command == "pretrain" else "--target", "synthetic-small"]
    words += ["--first-episodes", "1", "--max-nodes", "300"] if command == "pretrain" else []
    out = tmp_path / {"refine": "o.csv", "audit": "o.html", "pretrain": "o.st"}[command]
    with watched(full):
        status, _, said = run(command, *words, "--device", "cpu", "--out", out)
    of, by = HELPS.get(f"{command} {stage}", ("this graph", COLUMNS))
    assert (status, said) == (
        2,
        f"graphglow: {stage} of {of} must fit in memory; got no room for 12 GiB "
        f"(what helps: --device cpu, {by})\n",
    )


# Ctrl-C

STARTED = """
import runpy, sys

class Saying:
    @classmethod
    def find_spec(cls, name, *_):
        if name == "graphglow.cli":  # from here on the command is responsible
            print(flush=True)

sys.meta_path.insert(0, Saying)
sys.argv = ["graphglow", "datasets"]
runpy.run_module("graphglow", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8])
def test_ctrl_c_while_a_command_is_imported_is_one_line(seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", STARTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "graphglow: interrupted\n")


@pytest.mark.gpu
def test_without_memory_on_a_gpu_the_sentence_says_what_would_fit():
    free, _ = torch.cuda.mem_get_info()
    data = graphglow.synthetic_graph(num_nodes=20_000)
    config = graphglow.PaperConfig(
        device="cuda", backend="eager", num_pivots=20_000, refinements=8, epochs=3
    )
    learner = graphglow.StructureLearner()
    torch.cuda.set_per_process_memory_fraction(min(1.0, 2**31 / free))
    try:
        with pytest.raises(
            InputError, match=r"must fit in memory; 20000 nodes .*--backend chunked"
        ):
            graphglow.transfer(data, learner, config)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
