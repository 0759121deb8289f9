"""Search the settings of methods by validation accuracy, in processes that share a GPU.

    python benchmarks/search.py --out trials --seconds 450 --processes 15
    python benchmarks/search.py --settle trials.jsonl          writes lab/settings.json

GraphGLOW with a trained theta, with a random one and with k equal dimensions, and a GCN have as
many trials on a target, and the first three the same ones: trial i has the same settings for all
that they share. The best five of each run again with three fresh seeds. Test labels are taken out
of the graphs before anything else. Sources are those of Table 2: the graphs of the other kind.
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch_geometric.data import Data

from graphglow import StructureLearner, pretrain
from graphglow.competitors import METHODS
from graphglow.competitors.variants import equal_dimensions
from graphglow.device import resolve_device
from graphglow.gnn.train import Task
from graphglow.graph import Graph, check_graph, training_graph
from graphglow.lab.config import SETTINGS, config_of, merged, read_settings
from graphglow.lab.paper_tables import GRAPHS, SOCIAL, of_the_other_kind
from graphglow.lab.row_files import provenance
from graphglow.lab.runs import load_with_split, sentence
from graphglow.paper.algorithms import PaperTask
from graphglow.settings import LearnerConfig, PaperConfig, PretrainConfig
from graphglow.storage import append_line, atomic_path
from measuring import RESULTS
from together import Interleaved, as_they_end, train_together

Settings = dict[str, Any]
Space = Mapping[str, tuple[Any, ...]]

ALL: Space = {
    "learning_rate": (0.001, 0.005, 0.01, 0.05),
    "dropout": (0.0, 0.2, 0.3, 0.5, 0.6),
}
WEIGHT_DECAY: Space = {"weight_decay": (0.0, 5e-5, 5e-4, 5e-3, 2e-2)}
"""Appendix C does not say; here it is the same for every method that has a hidden layer."""
GNN: Space = {**ALL, **WEIGHT_DECAY, "hidden": (16, 32, 64, 96)}
ALPHA: Space = {"teleport": (0.1, 0.2, 0.5)}
LINK: Space = {**ALL, "weight_decay": (0.0, 1e-4, 1e-3, 1e-2)}
IDGL: Space = {
    **ALL,
    **WEIGHT_DECAY,
    "hidden": (16, 64, 96, 128),
    "threshold": (0.01,),
    "input_weight": (0.5, 0.6, 0.7, 0.8),
    "structure_momentum": (0.0, 0.1, 0.2),
    "smoothness": (0.0, 0.1, 0.2),
    "connectivity": (0.0, 0.1),
    "sparsity": (0.1, 0.2),
    "num_heads": (6, 9, 12),
}
SPACES: dict[str, Space] = {
    "gcn": GNN,
    "sage": GNN,
    "gat": {**GNN, "attention_heads": (2, 4)},
    "appnp": {**GNN, **ALPHA},
    "gpr": {**GNN, **ALPHA},
    "h2gcn": GNN,
    "gcnii": {**GNN, "num_layers": (4, 8, 16, 32)},
    "cpgnn": {
        **GNN,
        "estimator": ("mlp", "cheb"),
        "propagations": (1, 2),
        "adjacency": ("raw", "symmetric"),
        "co_training": (0.0, 1.0),
    },
    "mlp": GNN,
    "link": LINK,
    "link-features": LINK,
    "linkx": GNN,
    "lds": {
        "learning_rate": (1e-4, 1e-3, 1e-2, 1e-1),
        "dropout": ALL["dropout"],
        "hidden": (8, 16, 32, 64),
        "inner_patience": (10, 20),
        "window": (5, 10, 15),
    },
    "idgl": IDGL,
    "idgl-anchor": {**IDGL, "num_anchors": (700, 1000, 1400)},
    "vgcn": {
        **GNN,
        "edge_probability": (0.25, 0.5, 0.75, 0.99),
        "temperature": (0.1, 0.5),
        "prior_temperature": (0.1, 0.5),
        "kl_weight": (1e-4, 1e-3, 1e-2, 1.0),
    },
}
"""Appendix C, of every method but GraphGLOW."""
GLOW: Space = {
    "learning_rate": (0.005, 0.01, 0.05),
    "structure_momentum": (0.25, 0.5, 1.0),
    "num_pivots": (400, 800),
}
"""Of all lines of GraphGLOW; T is 4. What follows earlier searches narrowed for each kind."""
BY_KIND: dict[bool, Space] = {
    True: {
        "dropout": (0.0,),  # .2 and more cost three points of validation accuracy
        "weight_decay": (0.0, 5e-5),
        "input_weight": (0.3, 0.5, 0.7, 0.8, 0.9),
    },
    False: {
        "dropout": (0.3, 0.5, 0.6),
        "weight_decay": (5e-4, 5e-3, 2e-2),
        "input_weight": (0.3, 0.4, 0.5, 0.7, 0.9),
    },
}
"""Of Facebook graphs, and of citation graphs."""
GCN: Space = {"learning_rate": ALL["learning_rate"], "hidden": (16, 32, 64, 96)}
SHORT: Settings = {"num_pivots": 200, "refinements": 2, "epochs": 40}
"""Of every pre-training: longer ones did no better (docs/benchmarks.md)."""
LEARNERS: tuple[Settings, ...] = (
    {"learner_learning_rate": 0.01},
    {"learner_learning_rate": 0.001},
    {"learner_learning_rate": 0.1},
    {"learner_learning_rate": 0.01, "encoder": "mlp"},
    {
        "learner_learning_rate": 0.01,
        "learner": {"num_heads": 6, "tied": False},
        "objective": {"smoothness": 0.3, "sparsity": 0.3},
    },
    {
        "learner_learning_rate": 0.01,
        "learner": {"embedding_size": 96},
        "objective": {"smoothness": 0.0, "sparsity": 0.0},
    },
)
"""Pre-trainings; a random theta takes their shapes and encoders."""
LINES = ("graphglow", "random-theta", "equal-theta", "gcn")
LARGE = ("pubmed", "cornell5")
"""A trial takes many times as long: every eighth, with 400 pivots, and the best three again."""
KNOWN: dict[bool, dict[int, Settings]] = {
    True: {
        1000: {"dropout": 0.0, "weight_decay": 0.0, "learning_rate": 0.01, "input_weight": 0.9,
               "learner": 2},
        1001: {"dropout": 0.0, "weight_decay": 0.0, "learning_rate": 0.005, "input_weight": 0.9,
               "learner": 0},
    },
    False: {
        1000: {"dropout": 0.6, "weight_decay": 5e-3, "learning_rate": 0.01, "input_weight": 0.5,
               "learner": 2},
        1001: {"dropout": 0.5, "weight_decay": 5e-4, "learning_rate": 0.005, "input_weight": 0.5,
               "learner": 0},
    },
}  # fmt: skip
"""Trials of each kind that an earlier search chose for a trained and for a random theta: they are
among those that run again."""
TRIALS, BEST, FRESH, PATIENCE = 60, 5, (101, 102, 103), 100
FIRST_STAGE = 0.6
"""Share of the time for first trials."""
WINDOW = 10
"""Epochs over which validation accuracy is averaged, so that a lucky one chooses no settings."""


def draw(line: str, target: str, number: int) -> Settings:
    """Return trial ``number``; ``learner`` is a place in LEARNERS."""
    if line in LINES[:3] and number in KNOWN[target in SOCIAL]:
        found = {"num_pivots": 400, "structure_momentum": 1.0, "encoder": "gcn"}
        found |= KNOWN[target in SOCIAL][number]
        whole = learner_config(found["learner"]).embedding_size
        return found | ({"dimensions": whole} if line == "equal-theta" else {})
    social = target in SOCIAL
    stream = random.Random(f"{'social' if social else 'citation'} {number}")
    place = stream.randrange(len(LEARNERS))
    every = {name: stream.choice(values) for name, values in (GLOW | BY_KIND[social]).items()}
    share, hidden = stream.choice((0.125, 0.25, 0.5, 1.0)), stream.choice(GCN["hidden"])
    step = stream.choice(GCN["learning_rate"])
    if line == "gcn":
        kept = {name: every[name] for name in ("dropout", "weight_decay")}
        return kept | {"learning_rate": step, "hidden": hidden}
    if line not in LINES:
        space = SPACES[line]
        return {name: stream.choice(values) for name, values in space.items()}
    if target in LARGE:
        every["num_pivots"] = 400
    found = every | {"encoder": LEARNERS[place].get("encoder", "gcn"), "learner": place}
    if line == "equal-theta":
        found["dimensions"] = int(share * learner_config(place).embedding_size)
    return found


def learner_config(place: int) -> LearnerConfig:
    return config_of(LearnerConfig, LEARNERS[place].get("learner", {}))


@cache
def blinded(name: str, root: Path | None) -> Data:
    """Return a graph without test nodes: only training and validation labels are left."""
    data = check_graph(load_with_split(name, root)).clone()
    known = data.train_mask | data.val_mask
    data.y, data.test_mask = torch.where(known, data.y, -1), torch.zeros_like(known)
    return data


Job = dict[str, Any]
HERE = ("root", "file", "device", "common")
"""What rows leave out of a job."""


@cache
def graph_of(name: str, root: Path | None, device: str) -> Graph:
    return training_graph(blinded(name, root)).to(resolve_device(device))


def run(jobs: list[Job]) -> list[Job]:
    """Make some trials at once, or pre-train a learner; return the rows."""
    began = time.perf_counter()
    torch.set_float32_matmul_precision("high")
    try:
        rows = [_pretrained(jobs[0])] if jobs[0]["line"] == "pretrain" else _trials(jobs)
    except Exception as error:
        rows = [{"error": sentence(error)} for _ in jobs]
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    spent = {"together": len(jobs), "seconds": round(time.perf_counter() - began, 2)}
    return [job | row | spent for job, row in zip(jobs, rows, strict=True)]


def _pretrained(job: Job) -> Job:
    graphs = [blinded(name, job["root"]) for name in job["sources"]]
    given = merged(merged(SHORT, LEARNERS[job["learner"]]), job["common"])
    learner = pretrain(graphs, config_of(PretrainConfig, given, device=job["device"]))
    learner.save(job["file"])
    score = learner.provenance["validation_accuracy"]
    return {"val_accuracy": score, "effective_dimensions": effective_dimensions(learner)}


def effective_dimensions(learner: StructureLearner) -> float:
    """Return the participation ratio of the squared weights, summed over heads: 1 to D."""
    squares = torch.stack([w.detach().square().sum(0) for w in learner.parameters()])  # [1|2, D]
    ratios = squares.sum(1).square() / squares.square().sum(1)
    return round(float(ratios.mean()), 2)


def _trials(jobs: list[Job]) -> list[Job]:
    loops = [Interleaved(task_of(job), job["epochs"], PATIENCE) for job in jobs]
    train_together(loops)
    return [_scores([epoch.val_accuracy for epoch in loop.history]) for loop in loops]


def _scores(history: list[float]) -> Job:
    window = min(WINDOW, len(history))
    sums = [sum(history[end - window : end]) for end in range(window, len(history) + 1)]
    smooth = {"smooth_accuracy": round(max(sums) / window, 5), "epochs_run": len(history)}
    return {"val_accuracy": round(max(history), 5)} | smooth


def task_of(job: Job) -> Task:
    """Return what is trained in a trial."""
    line, seed, given = job["line"], job["seed"], dict(job["settings"])
    graph = graph_of(job["target"], job["root"], job["device"])
    if line not in LINES[:3]:
        method = METHODS[line]
        return method.build(graph, config_of(method.config, given, seed=seed))
    config = learner_config(given.pop("learner"))
    if line == "graphglow":
        learner = StructureLearner.load(job["file"])
    elif line == "random-theta":
        learner = StructureLearner(config, seed=seed)
    else:
        learner = equal_dimensions(config, given.pop("dimensions"))
    frozen = learner.to(graph.device).requires_grad_(False).eval()
    return PaperTask(graph, frozen, config_of(PaperConfig, given, seed=seed))


class Search:
    """Hands out jobs: learners first, then trials in rounds, then the best again."""

    def __init__(self, args: argparse.Namespace, learners: Path) -> None:
        self.args, self.began, self.folder = args, time.monotonic(), learners
        self.rows: list[Job] = []
        self.asked, self.made = set[str](), set[str]()  # learners
        self.settling = args.first is not None
        if args.first is None:
            self.waiting = list(self._first_trials())
        else:
            lines = map(json.loads, args.first.read_text().splitlines())
            self.rows = [row for row in lines if row.get("target") in args.targets]
            self.waiting = self._second_trials()

    def _job(self, line: str, target: str, number: int, seed: int, stage: int) -> Job:
        settings, epochs = draw(line, target, number), self.args.epochs
        if line not in LINES:
            epochs = min(epochs, METHODS[line].config().epochs)
        file, place = None, FRESH.index(seed) if seed in FRESH else 0
        if line == "graphglow":
            kind = "citation" if target in SOCIAL else "social"
            file = str(self.folder / f"{kind}-{settings['learner']}-{place}")
        return {
            "line": line, "target": target, "trial": number, "seed": seed, "stage": stage,
            "settings": settings, "root": self.args.data_root, "device": self.args.device,
            "file": file, "learner_seed": place, "epochs": epochs,
        }  # fmt: skip

    def _pretraining(self, job: Job) -> Job:
        """Return the pre-training of the learner that a trial asks for."""
        wanted = [s for s in of_the_other_kind(job["target"]) if s in self.args.sources]
        epochs = {"epochs": min(self.args.epochs, SHORT["epochs"]), "seed": job["learner_seed"]}
        return {
            "line": "pretrain", "learner": job["settings"]["learner"], "sources": wanted,
            "file": job["file"], "root": self.args.data_root, "device": self.args.device,
            "common": epochs,
        }  # fmt: skip

    def _first_trials(self) -> Iterator[Job]:
        for number in range(self.args.trials):
            for target in self.args.targets:
                if target not in LARGE or number % 8 == 0:
                    for line in self.args.lines:
                        yield self._job(line, target, number, 0, 1)

    def next_jobs(self) -> list[Job] | None:
        late = time.monotonic() - self.began > FIRST_STAGE * self.args.seconds
        if not self.settling and (late or not self.waiting):
            self.settling, self.waiting = True, self._second_trials()
        jobs: list[Job] = []
        for job in self.waiting:
            if job["line"] == "graphglow" and job["file"] not in self.made:
                if job["file"] not in self.asked:
                    self.asked.add(job["file"])
                    return [self._pretraining(job)]
                continue
            if jobs and (self._alone(job) or (job["line"] == "gcn") != (jobs[0]["line"] == "gcn")):
                continue
            jobs.append(job)
            if self._alone(job) or len(jobs) == self.args.together:
                break
        taken = {id(job) for job in jobs}
        self.waiting = [job for job in self.waiting if id(job) not in taken]
        return jobs or None

    @staticmethod
    def _alone(job: Job) -> bool:
        return job["line"] not in LINES or job["target"] in LARGE

    def _second_trials(self) -> list[Job]:
        best = {key: ranked(rows)[:BEST] for key, rows in equal_trials(self.rows).items()}
        for line, target in best:
            if line in LINES[:3]:
                best[line, target] = [*KNOWN[target in SOCIAL], *best[line, target]][:BEST]
        jobs = [
            self._job(line, target, numbers[place], seed, 2)
            for seed in FRESH
            for place in range(BEST)
            for (line, target), numbers in best.items()
            if place < min(len(numbers), 3 if target in LARGE else BEST)
        ]
        small = [job for job in jobs if job["target"] not in LARGE]
        large = [job for job in jobs if job["target"] in LARGE]
        return [*small, *large]

    def done(self, row: Job) -> None:
        self.rows.append(row)
        if row["line"] == "pretrain" and "error" not in row:
            self.made.add(row["file"])


def equal_trials(rows: list[Job]) -> dict[tuple[str, str], list[Job]]:
    """Group first trials by line and target; a target's lines keep the trials that all have."""
    found: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for row in rows:
        if row["line"] != "pretrain" and row["stage"] == 1:
            found[row["line"], row["target"]].append(row)
    for target in {target for _, target in found}:
        mine = [found[line, target] for line in LINES if (line, target) in found]
        trials = [{row["trial"] for row in its} for its in mine]
        shared = set.intersection(*trials) if trials else set()
        for line in LINES:
            if (line, target) in found:
                kept = [row for row in found[line, target] if row["trial"] in shared]
                found[line, target] = kept
    return dict(found)


def ranked(rows: list[Job]) -> list[int]:
    """Return trials, those with the best mean validation accuracy first."""
    scores: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        scores[row["trial"]].append(row.get("smooth_accuracy", 0.0))
    return sorted(scores, key=lambda number: -fmean(scores[number]))


def search(args: argparse.Namespace) -> None:
    """Write rows of trials, each as it ends."""
    args.out.mkdir(parents=True, exist_ok=True)
    file, origin = args.out / "trials.jsonl", provenance()
    append_line(file, json.dumps({"line": "origin", "provenance": origin}))
    with tempfile.TemporaryDirectory() as folder:
        plan = Search(args, Path(folder))
        results = as_they_end(run, plan.next_jobs, processes=args.processes, seconds=args.seconds)
        for rows in results:
            if isinstance(rows, BaseException):
                print(f"lost: {rows!r}", flush=True)
                continue
            for row in rows:
                plan.done(row)
                kept = {name: value for name, value in row.items() if name not in HERE}
                append_line(file, json.dumps(kept))
                if row["line"] == "pretrain" or "error" in row or len(plan.rows) % 50 == 0:
                    spent = time.monotonic() - plan.began
                    print(f"{spent:.0f} s, {len(plan.rows)} rows: {kept}", flush=True)
        results.close()
    failed = sum("error" in row for row in plan.rows)
    print(f"{len(plan.rows)} rows, {failed} failed; {len(plan.waiting)} trials left", flush=True)
    if 2 * failed > len(plan.rows) or len(plan.rows) == 0:
        raise SystemExit(1)


def settle(trials: Path) -> None:
    """Write the best settings of each line, by fresh seeds, to the settings of the package."""
    lines = [json.loads(line) for line in trials.read_text().splitlines()]
    origin, rows = lines[0]["provenance"], [row for row in lines if "target" in row]
    first, path = equal_trials(rows), SETTINGS
    tuned: dict[str, Any] = {name: dict(of) for name, of in read_settings(path).items()}
    scores: dict[tuple[str, str], float] = {}
    for (line, target), tried in first.items():
        again = [r for r in rows if r["stage"] == 2 and (r["line"], r["target"]) == (line, target)]
        counts = defaultdict(int, {n: sum(r["trial"] == n for r in again) for n in ranked(again)})
        full = [r for r in again if counts[r["trial"]] == max(counts.values())] or tried
        number = ranked(full)[0]
        mine = [row for row in full if row["trial"] == number]
        scores[line, target] = score = fmean(row.get("smooth_accuracy", 0.0) for row in mine)
        settings = as_settings(line, dict(mine[0]["settings"]))
        own = {"graphglow": "graphglow-on", "random-theta": "random-on", "equal-theta": "equal-on"}
        tuned.setdefault(own.get(line, line), {})[target] = settings
        row = {
            "experiment": "search", "method": own.get(line, line), "target": target,
            "sources": of_the_other_kind(target) if line == "graphglow" else None,
            "trials": len(tried), "fresh_seeds": len(mine), "smooth_accuracy": round(score, 5),
            "settings": settings, "provenance": origin,
        }  # fmt: skip
        append_line(RESULTS / "search.jsonl", json.dumps(row))
    for line, target in product(LINES[:3], GRAPHS):
        if (line, target) in scores:
            own = {"graphglow": "graphglow-on", "random-theta": "random-on"}.get(line, "equal-on")
            off = scores["gcn", target] > scores[line, target]
            found = switched_off(line, tuned["gcn"][target]) if off else tuned[own][target]
            tuned[line] = tuned.get(line, {}) | {target: found}
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(tuned, indent=2, sort_keys=True) + "\n")


def as_settings(line: str, drawn: Settings) -> Settings:
    """Return a trial's settings as the settings file has them."""
    if line not in LINES[:3]:
        return drawn
    place = drawn.pop("learner")
    if line == "graphglow":
        del drawn["encoder"]  # one for both parts: the pre-training's
        return {"pretrain": merged(SHORT, LEARNERS[place]), "transfer": drawn}
    names = ("embedding_size", "num_heads", "tied")[: 1 if line == "equal-theta" else 3]
    return drawn | {name: getattr(learner_config(place), name) for name in names}


def switched_off(line: str, gcn: Settings) -> Settings:
    """Return the settings under which GraphGLOW is the GCN: lambda is 1."""
    after = {name: value for name, value in gcn.items() if name != "hidden"}
    after |= {"input_weight": 1.0, "refinements": 1}
    if line != "graphglow":
        return after | {"embedding_size": gcn["hidden"]}
    return {"pretrain": {"learner": {"embedding_size": gcn["hidden"]}}, "transfer": after}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("trials"), help="a folder")
    parser.add_argument("--settle", type=Path, help="a file of trials: choose by them, run nothing")
    parser.add_argument("--first", type=Path, help="a file of first trials: run the best again")
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--targets", nargs="+", default=GRAPHS[::-1], choices=GRAPHS)
    parser.add_argument("--sources", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--lines", nargs="+", default=LINES, choices=(*LINES, *SPACES))
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--together", type=int, default=1, help="trials of a process at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    search(args) if args.settle is None else settle(args.settle)


if __name__ == "__main__":
    main()
