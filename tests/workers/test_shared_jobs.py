"""refine, audit and pretrain by several workers: the same bytes, and a killed job goes on."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch

import graphglow
from graphglow.audit import load_auditor
from graphglow.errors import InputError
from graphglow.evidence import EvidencePretrainConfig, candidates, pretrain_evidence
from graphglow.graph.graph import known_graph
from graphglow.pretrained import evidence_learner
from graphglow.training.checkpoint import Parts
from graphglow.workers.blocks import Blocks
from killed import members, until

TINY = EvidencePretrainConfig(
    first_episodes=3,
    vote_episodes=3,
    second_episodes=3,
    predict_episodes=3,
    max_nodes=300,
    pairs=64,
    nodes=32,
    steps=2,
)
REFINED = ("edge_index", "edge_weight", "edge_probability", "probabilities", "pair_log_odds")
AUDITED = ("edge_log_odds", "pairs", "pair_log_odds")
JOB = Path(__file__).with_name("shared_job.py")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setitem(candidates.NODES, "cpu", 40)
    monkeypatch.setitem(candidates.PAIRS, "cpu", 1024)


@pytest.fixture(scope="module")
def data():
    return graphglow.load_graph("synthetic-small")


def everything(data, each=candidates.in_turn):
    """Tensors of a refinement, an audit and a pre-trained learner."""
    refined = evidence_learner().refine(data, each=each)
    audited = load_auditor().examine(known_graph(data), each=each)
    learner = pretrain_evidence([data], TINY, each=each)
    found = [getattr(refined, name) for name in REFINED]
    found += [getattr(audited, name) for name in AUDITED]
    return [*found, *learner.state_dict().values()]


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 7])
def test_several_processes_give_the_bytes_of_one(data, processes):
    with Blocks(processes, device="cpu") as each:
        assert_same(everything(data, each), everything(data))


@pytest.mark.gpu
def test_workers_draw_on_cpu_cores_for_a_gpu(data):
    learner = graphglow.pretrain([data], TINY, workers=2, device="cuda")
    assert learner.provenance["device"] == "cuda"
    assert all(tensor.isfinite().all() for tensor in learner.state_dict().values())


@pytest.mark.slow
def test_ray_gives_the_bytes_of_one_process(cluster, data):
    alone = evidence_learner().refine(data)
    for tasks in (1, 7):
        with Blocks(tasks, "auto", device="cpu") as each:
            refined = evidence_learner().refine(data, each=each)
        for name in REFINED:
            assert torch.equal(getattr(refined, name), getattr(alone, name)), name
    with Blocks(2, "auto", device="cpu") as each:
        assert_same(everything(data, each), everything(data))


class Killed(BaseException):
    """Nothing catches it."""


class Dying(Parts):
    left = 7

    def keep(self, stage, number, part):
        super().keep(stage, number, part)
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("job", [graphglow.refine, graphglow.audit])
def test_a_job_goes_on_from_its_parts_and_other_jobs_do_not(data, job, tmp_path):
    def edges(made):
        return made.edge_index if job is graphglow.refine else made.findings.edge_log_odds

    with pytest.raises(Killed):
        job(data, device="cpu", parts=Dying(tmp_path / "p"))
    kept = len(Parts(tmp_path / "p").files())
    assert kept == Dying.left
    for other in ({"seed": 1}, {"device": "cpu"}):
        graph = data if "seed" in other else data.clone().update({"x": data.x * 2 + data.x**2})
        with pytest.raises(InputError, match=r"parts must be of the same run; got .*differs in"):
            job(graph, parts=Parts(tmp_path / "p"), **{"device": "cpu"} | other)
    assert len(Parts(tmp_path / "p").files()) == kept
    parts = Parts(tmp_path / "p")
    assert torch.equal(edges(job(data, device="cpu", parts=parts)), edges(job(data, device="cpu")))
    assert parts.resumed
    parts.remove()
    assert not (tmp_path / "p").exists()


def test_workers_are_counted_from_one(data):
    with pytest.raises(InputError, match="workers must be >= 1; got 0"):
        graphglow.refine(data, workers=0)


def test_the_commands_say_what_they_resume(run, tmp_path):
    out = tmp_path / "o.csv"
    words = ["refine", "--target", "synthetic-small", "--out", out, "--device", "cpu", "--json"]
    assert json.loads(run(*words).out)["resumed"] is False
    alone = out.read_bytes()
    status, _, said = run(*words, "--resume")
    assert (status, "whose run has ended" in said) == (2, True)
    assert run(*words, "--workers", "1", "--overwrite").status == 0
    assert out.read_bytes() == alone
    assert [path.name for path in tmp_path.iterdir()] == ["o.csv"]
    status, _, said = run("audit", "--target", "synthetic-small", "--resume")
    assert said == "graphglow: --resume must go with --out FILE, beside which a run is kept\n"
    status, _, said = run(*words, "--workers", "0")
    assert (status, said) == (
        2,
        "graphglow: --workers must be >= 1; got 0; see graphglow refine --help\n",
    )


# Commands as processes that are killed


def start(*words):
    return subprocess.Popen(
        [sys.executable, str(JOB), *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def ended(process, sent, parts, count):
    """Send a signal to a job and its workers once it has added so many parts; what it said."""
    count += len(parts.files())
    try:
        until(lambda: len(parts.files()) >= count, process)
        os.killpg(process.pid, sent)
        said = process.communicate(timeout=60)[1]
        until(lambda: not members(process.pid))
        return said
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "signals"),
    [
        (["refine", "--out"], (signal.SIGTERM, signal.SIGINT)),
        (["audit", "--suspects"], (signal.SIGKILL,)),
    ],
)
def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(words, signals, tmp_path, run):
    words = [words[0], "--target", "synthetic-small", "--device", "cpu", "--json", words[1]]
    assert run(*words, tmp_path / "alone.csv").status == 0
    out, parts = tmp_path / "o.csv", Parts(tmp_path / "o.csv.parts")
    job = [*words, out, "--workers", "2", "--resume"]
    for sent in signals:
        process = start(*job)
        said = ended(process, sent, parts, 3)
        assert not out.exists()
        assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}.get(sent, -sent)
        if sent != signal.SIGKILL:
            word = "terminated" if sent == signal.SIGTERM else "interrupted"
            kept = f"the run is kept in {parts.folder}; the same command with --resume goes on"
            assert said.endswith(f"graphglow: {kept}\ngraphglow: {word}\n")
    said, _ = start(*job).communicate(timeout=120)
    assert json.loads(said.splitlines()[-1])["resumed"] is True
    assert out.read_bytes() == (tmp_path / "alone.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.csv", "o.csv"]
