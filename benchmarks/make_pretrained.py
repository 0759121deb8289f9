"""Make the paper's structure learner that comes with the package, and the rows that justify it.

    python benchmarks/make_pretrained.py                         the file of the package
    python benchmarks/make_pretrained.py --hold-out              rows: one source left out in turn
    python benchmarks/make_pretrained.py --hold-out --targets wine digits
                                                                 rows: graphs that are no sources
    python benchmarks/make_pretrained.py --tables [--check]      the tables of docs/pretrained.md

A held-out graph plays no part in pre-training: the learner is made anew from the other sources with
the same settings. It is then transferred, frozen, beside a learner of the same shape that was never
trained and a GCN of the same width; settings on the target are the same for all. These are cells as
those of the paper's tables are, made as ``graphglow reproduce`` makes them: stop it whenever you
like. To try it out, name another ``--folder`` and ``--out``, and few ``--epochs``.
"""

import argparse
import json
import os
import statistics
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphglow.graph import DATASETS
from graphglow.lab.paper import CITATION, NAMES, SOCIAL
from graphglow.lab.paper.cells import Cell
from graphglow.lab.runs.config import ReproduceConfig, as_compared, merged
from graphglow.lab.runs.learners import (
    Lesson,
    find_learner,
    holds,
    keep_learner,
    learner_from,
    load_with_split,
    make_learner,
)
from graphglow.lab.runs.reproduce import learner_folder, reproduce
from graphglow.lab.runs.rows import read_rows, without_repeats
from graphglow.lab.settings import Settings, config_of
from graphglow.paper import StructureLearner
from graphglow.pretrained import FOLDER, PAPER
from graphglow.settings import PretrainConfig
from marked_page import ROOT, markdown, rewrite

# minutes on a CPU; P = 400, T = 4 and 80 epochs did no better (docs/pretrained.md)
SETTINGS: dict[str, Any] = {"num_pivots": 200, "refinements": 2, "epochs": 40}
"""Of pre-training: fields of PretrainConfig that differ from the defaults."""
SOURCES = (*CITATION, *SOCIAL)
FORMER = {"universal": PAPER}
"""What a learner was called in rows that were made before."""
TRANSFER: dict[str, Any] = {}
"""On every target: fields of PaperConfig."""

METHODS = ("graphglow", "random-theta", "gcn")


def lesson_of(args: argparse.Namespace) -> Lesson:
    """The learner as it is asked for."""
    fixed = {"device": args.device} | ({"epochs": args.epochs} if args.epochs else {})
    chosen = merged(SETTINGS, json.loads(args.set))
    return Lesson(SOURCES, config_of(PretrainConfig, chosen | fixed))


def make(args: argparse.Namespace) -> None:
    """The file of the package; nothing if it is there, made in this way."""
    lesson, path = lesson_of(args), args.folder / f"{PAPER}.safetensors"
    if not holds(path, lesson):
        print(f"pre-training on {', '.join(lesson.sources)}", flush=True)
        graphs = [load_with_split(source, args.data_root) for source in lesson.sources]
        learner = learner_from(make_learner(lesson, graphs))
        learner.provenance |= {"name": PAPER, "seed": lesson.config.seed}
        learner.save(path)
    score = StructureLearner.load(path).provenance["validation_accuracy"]
    print(f"mean validation accuracy {100 * score:.1f} %", flush=True)


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """The learner and its controls on graphs that are none of its sources."""
    before = merged(SETTINGS, json.loads(args.set))
    learner = before.get("learner", {})
    config = config_of(PretrainConfig, before)
    settings = {
        "graphglow": TRANSFER,
        "random-theta": {**TRANSFER, **learner},
        "gcn": {"hidden": config.learner.embedding_size},
    }
    series = PAPER + otherwise(before)
    for target in args.targets or SOURCES:
        sources = tuple(source for source in SOURCES if source != target)
        for method in METHODS:
            ours = method == "graphglow"
            yield Cell(
                experiment="pretrained",
                key=f"{series}/{method}/{target}",
                label=NAMES[method],
                method=method,
                target=target,
                sources=sources if ours else (),
                series=series,
                settings=settings[method],
                pretraining=before if ours else {},
            )


def otherwise(before: dict[str, Any]) -> str:
    """What of a learner's pre-training differs from that of the file in the package."""
    shipped, found = (as_compared(PretrainConfig, one) for one in (SETTINGS, before))
    changed = []
    for part, value in found.items():
        inner = value if isinstance(value, dict) else {part: value}
        usual = shipped[part] if isinstance(value, dict) else shipped
        changed += [f"{n} {v}" for n, v in inner.items() if v != usual[n]]
    return "".join(f", {one}" for one in sorted(changed))


def hold_out(args: argparse.Namespace) -> None:
    """The rows of learners on graphs held out, as far as they miss."""
    lesson, path = lesson_of(args), args.folder / f"{PAPER}.safetensors"
    folder = learner_folder(args.out)
    if holds(path, lesson) and find_learner(folder, lesson) is None:
        keep_learner(folder, lesson, path.read_bytes())  # a graph that is no source gets it
    config = ReproduceConfig(
        seeds=args.seeds,
        epochs=args.epochs,
        pretrain_epochs=args.epochs,
        device=args.device,
        processes=1,
        batch_seeds=True,
    )
    done = reproduce(cells(args), args.out, config, Settings(), data_root=args.data_root)
    print(done, flush=True)


def made_table(folder: Path) -> str:
    """The file of the package, and how it came about."""
    made = StructureLearner.load(folder / f"{PAPER}.safetensors").provenance
    score, origin = f"{100 * made['validation_accuracy']:.1f}", made["provenance"]
    sources, where = ", ".join(made["sources"]), origin["machine"]["gpu"] or "CPU"
    line = [f"`{PAPER}`", sources, score, f"{made['seconds']:.0f}", where, origin["commit"]]
    return markdown(["name", "sources", "validation, mean", "seconds", "on", "commit"], [line])


def hold_out_table(path: Path) -> str:
    """Test accuracy in %; a learner that was made in another way has lines of its own."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in without_repeats(read_rows(path).rows if path.exists() else [])[0]:
        if row.test_accuracy is not None:
            methods = found.setdefault((row.series, row.target), {})
            methods.setdefault(row.method, []).append(100 * row.test_accuracy)
    lines = []
    for (series, target), methods in sorted(found.items()):
        name, comma, rest = series.partition(",")
        figures = [shown(methods.get(method, [])) for method in METHODS]
        lines.append([f"`{FORMER.get(name, name)}`{comma}{rest}", target, *figures])
    return markdown(["name", "held out", *METHODS], lines)


def shown(scores: list[float]) -> str:
    if not scores:
        return ""
    spread = f" +- {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread} ({len(scores)})"


def main(argv: Sequence[str] | None = None) -> int:
    whole = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=whole)
    parser.add_argument("--hold-out", action="store_true", help="make rows, no files")
    graphs = sorted(DATASETS)
    parser.add_argument("--targets", nargs="+", choices=graphs, help="(default: its own sources)")
    parser.add_argument("--seeds", type=int, default=3, help="runs on each target")
    parser.add_argument("--set", default="{}", help="JSON: fields of PretrainConfig, over SETTINGS")
    parser.add_argument("--epochs", type=int, help="everywhere: to try it out")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    root = os.environ.get("GRAPHGLOW_DATA", "data")
    parser.add_argument("--data-root", type=Path, default=Path(root))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "pretrained.jsonl")
    parser.add_argument("--tables", action="store_true", help="write the page's tables, run none")
    parser.add_argument("--check", action="store_true", help="with --tables: 1 if they are stale")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "pretrained.md")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of torch and PyG, at import and in use
    if args.tables:
        made = {"made": made_table(args.folder), "held_out": hold_out_table(args.out)}
        return rewrite(args.page, made, check=args.check)
    (hold_out if args.hold_out else make)(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
