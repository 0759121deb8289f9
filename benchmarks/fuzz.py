"""Fuzz every reader: no crash, no hang, no traceback, no memory beyond reason.

    python benchmarks/fuzz.py --inputs 8000 --out results/fuzz.jsonl
    python benchmarks/fuzz.py --engine hypothesis --inputs 1000 --readers csv settings
    python benchmarks/fuzz.py --engine atheris --inputs 20000 --readers npz csv

Inputs are made by ``fuzz_files.py`` from a seed (``mutation``), by the same from choices of
hypothesis, or by atheris (``pip install atheris``), which watches what code an input reaches. Each
reader runs in a process of its own with a limit on memory; a file that it reads for longer than 5
seconds, or dies of, is a finding. Findings are kept in ``--keep``; one row per reader goes to
``--out``. The exit status is 1 if there is any.
"""

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 5
"""Longest time for one input."""
MEMORY = 500 * 2**20
"""Bytes that one input may take beyond what the process had."""
SLOW_SHARE = 20
"""A reader that is slow gets this many times fewer inputs."""


@dataclass
class Tally:
    """What the inputs of one reader did."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    findings: dict[str, str] = field(default_factory=dict)
    """What happened -> the file that did it, the first of its kind."""

    def add(self, name: str, seconds: float) -> None:
        self.counts[name] += 1
        self.slowest = max(self.slowest, seconds)


def examined(name: str, path: Path, tally: Tally, keep: Path) -> None:
    """Read one file under the limits, and count what it did."""
    from fuzz_readers import READERS, Finding, outcome

    start, before = time.perf_counter(), _peak()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        found = outcome(READERS[name], path)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _peak() - before > MEMORY:
            raise Finding("took more memory than it may")
    except (Finding, TimeoutError) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        found = "crashed"
        kept(name, path, error, tally, keep)
    tally.add(found, time.perf_counter() - start)


def kept(name: str, path: Path, error: BaseException, tally: Tally, keep: Path) -> None:
    """Keep the first file of each kind of finding, and how it came about."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    where = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "graphglow" in f.filename]
    key = f"{type(error.__cause__ or error).__name__} at {where[-1] if where else '?'}"
    if key not in tally.findings:
        keep.mkdir(parents=True, exist_ok=True)
        copy = keep / f"{name}-{len(tally.findings)}{path.suffix}"
        copy.write_bytes(path.read_bytes())
        text = "".join(traceback.format_exception(error.__cause__ or error))
        copy.with_suffix(".txt").write_text(f"{error}\n{text}")
        tally.findings[key] = f"{copy.name}: {error!s:.160}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_process(name: str, path: Path) -> None:
    """Bound the memory of this process, and let an alarm end a read.

    Some files are read before, so that what the reader imports is not counted.
    """
    import torch

    from fuzz_readers import READERS, Finding, outcome

    torch.set_num_threads(1)
    for number in range(30):
        path.write_bytes(READERS[name].make(Random(number)))
        with suppress(Finding):
            outcome(READERS[name], path)

    def late(*_: object) -> None:
        raise TimeoutError(f"an input must be read within {SECONDS} seconds")

    signal.signal(signal.SIGALRM, late)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def by_mutation(name: str, span: range, seed: int, folder: Path, keep: Path, line: Any) -> None:
    """Make and read the inputs of a span; send the tally, and beat before each."""
    from fuzz_readers import READERS

    reader, tally = READERS[name], Tally()
    path = folder / f"input{reader.suffix}"
    limit_process(name, path)
    for number in span:
        path.write_bytes(reader.make(Random(f"{name} {seed} {number}")))
        line.send(number)
        examined(name, path, tally, keep)
    line.send(tally)


def by_hypothesis(name: str, span: range, seed: int, folder: Path, keep: Path, line: Any) -> None:
    """The same with choices that hypothesis draws."""
    import hypothesis
    from hypothesis import strategies as st

    from fuzz_readers import READERS

    reader, tally = READERS[name], Tally()
    path = folder / f"input{reader.suffix}"
    limit_process(name, path)
    chosen = st.randoms(use_true_random=False) | st.integers(0, 2**64).map(Random)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=len(span), database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(chosen)
    def one(random: Random) -> None:
        path.write_bytes(reader.make(random))
        line.send(tally.counts.total())
        examined(name, path, tally, keep)

    one()
    line.send(tally)


def by_atheris(name: str, span: range, seed: int, folder: Path, keep: Path, line: Any) -> None:
    """The same with bytes that atheris changes, from a few files to start with."""
    import atheris

    from fuzz_readers import READERS

    reader, tally = READERS[name], Tally()
    path, corpus = folder / f"input{reader.suffix}", folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number in range(50):
        (corpus / str(number)).write_bytes(reader.make(Random(f"{name} {seed} {number}")))
    with atheris.instrument_imports(include=["graphglow"]):
        limit_process(name, path)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libFuzzer's own lines

    def one(data: bytes) -> None:
        path.write_bytes(data)
        line.send(tally.counts.total())
        examined(name, path, tally, keep)
        if tally.counts.total() >= len(span):
            line.send(tally)
            os._exit(0)

    words = [sys.argv[0], f"-seed={seed + 1}", "-max_len=65536", "-rss_limit_mb=0", str(corpus)]
    atheris.Setup(words, one)
    atheris.Fuzz()


ENGINES = {"mutation": by_mutation, "hypothesis": by_hypothesis, "atheris": by_atheris}


def fuzzed(name: str, engine: str, count: int, seed: int, keep: Path) -> Tally:
    """Give a reader so many inputs, in as many processes as it takes."""
    total, done = Tally(), 0
    fork = multiprocessing.get_context("fork" if engine == "mutation" else "spawn")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        while done < count:
            ours, theirs = fork.Pipe(duplex=False)
            span = range(done, count)
            process = fork.Process(
                target=ENGINES[engine], args=(name, span, seed + done, folder, keep, theirs)
                if engine != "mutation" else (name, span, seed, folder, keep, theirs),
            )  # fmt: skip
            process.start()
            theirs.close()
            last: Any = None
            try:
                while not isinstance(last, Tally):
                    if not ours.poll(SECONDS + 10 if last is not None else 120):
                        raise TimeoutError("hangs where no alarm reaches it")
                    last = ours.recv()
            except (EOFError, TimeoutError) as error:
                process.kill()
                process.join()
                path = next(folder.glob("input*"))
                number = last if isinstance(last, int) else done
                why = (
                    TimeoutError(str(error))
                    if str(error)
                    else RuntimeError(f"the process died with status {process.exitcode}")
                )
                kept(name, path, why, total, keep)
                total.add("crashed", 0.0)
                total.counts["lost"] += max(0, number - done) if engine == "mutation" else 0
                done = max(number, done) + 1
                continue
            process.join()
            total.counts += last.counts
            total.slowest = max(total.slowest, last.slowest)
            total.findings |= last.findings
            done = count
    return total


def main() -> int:
    """Fuzz, print a line per reader, and add a row for each."""
    from fuzz_readers import READERS

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=sorted(ENGINES), default="mutation")
    parser.add_argument("--readers", nargs="+", choices=sorted(READERS), default=list(READERS))
    parser.add_argument("--inputs", type=int, default=1000, help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="files of findings")
    parser.add_argument("--out", type=Path, help="where to add a row for each reader")
    words = parser.parse_args()
    failed = False
    for name in words.readers:
        count = words.inputs // SLOW_SHARE if READERS[name].slow else words.inputs
        start = time.perf_counter()
        tally = fuzzed(name, words.engine, count, words.seed, words.keep)
        row = {
            "benchmark": "fuzz", "reader": name, "engine": words.engine, "seed": words.seed,
            "inputs": tally.counts.total() - tally.counts["lost"],
            "refused": tally.counts["refused"], "accepted": tally.counts["accepted"],
            "crashes": tally.counts["crashed"], "seconds": time.perf_counter() - start,
            "slowest": tally.slowest, "findings": tally.findings,
        }  # fmt: skip
        print(json.dumps(row), flush=True)
        failed |= bool(tally.findings)
        if words.out is not None:
            from graphglow.experiments.provenance import provenance
            from graphglow.storage import append_line

            append_line(words.out, json.dumps({**row, "provenance": provenance()}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
