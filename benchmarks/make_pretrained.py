"""Make the paper's structure learner that comes with the package, and the rows that justify it.

    python benchmarks/make_pretrained.py                         the file of the package
    python benchmarks/make_pretrained.py --hold-out              rows: one source left out in turn
    python benchmarks/make_pretrained.py --hold-out --targets wine digits
                                                                 rows: graphs that are no sources
    python benchmarks/make_pretrained.py --tables [--check]      the tables of docs/pretrained.md

A held-out graph plays no part in pre-training: the learner is made anew from the other sources with
the same settings. It is then transferred, frozen, beside a learner of the same shape that was never
trained and a GCN of the same width; settings on the target are the same for all.
"""

import argparse
import statistics
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphglow.lab.config import RunsConfig, config_of
from graphglow.lab.paper_tables import CITATION, NAMES, SOCIAL, Cell
from graphglow.lab.rows import newest, read_rows
from graphglow.lab.runs import Pretraining, learner_from, pretrained, reproduce
from graphglow.lab.tables import markdown
from graphglow.paper import StructureLearner
from graphglow.pretrained import FOLDER, PAPER
from graphglow.settings import PretrainConfig
from marked_page import RESULTS, ROOT, rewrite

# minutes on a CPU; P = 400, T = 4 and 80 epochs did no better (docs/pretrained.md)
SETTINGS: dict[str, Any] = {"num_pivots": 200, "refinements": 2, "epochs": 40}
"""Of pre-training: fields of PretrainConfig that differ from the defaults."""
SOURCES = (*CITATION, *SOCIAL)
METHODS = ("graphglow", "random-theta", "gcn")


def make(args: argparse.Namespace) -> None:
    """Write the file of the package."""
    config = config_of(PretrainConfig, SETTINGS, device=args.device)
    _, content = pretrained(args.data_root, Pretraining(SOURCES, config))
    learner = learner_from(content)
    learner.provenance |= {"name": PAPER, "seed": config.seed}
    learner.save(args.folder / f"{PAPER}.safetensors")
    score = learner.provenance["validation_accuracy"]
    print(f"mean validation accuracy {100 * score:.1f} %", flush=True)


def cells(targets: Sequence[str]) -> Iterator[Cell]:
    """The learner and its controls on graphs that are none of its sources."""
    width = {"hidden": PretrainConfig().learner.embedding_size}
    for target in targets or SOURCES:
        for method in METHODS:
            ours = method == "graphglow"
            yield Cell(
                experiment="pretrained",
                key=f"{PAPER}/{method}/{target}",
                label=NAMES[method],
                method=method,
                target=target,
                sources=tuple(s for s in SOURCES if s != target) if ours else (),
                series=PAPER,
                settings=width if method == "gcn" else {},
                pretraining=SETTINGS if ours else {},
            )


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
    for row in newest(read_rows(path)):
        if row.get("test_accuracy") is not None:
            name, comma, rest = row["series"].partition(",")
            name = PAPER if name == "universal" else name  # what it was called in older rows
            line = found.setdefault((f"`{name}`{comma}{rest}", row["target"]), {})
            line.setdefault(row["method"], []).append(100 * row["test_accuracy"])
    lines = [
        [*key, *(shown(methods.get(method, [])) for method in METHODS)]
        for key, methods in sorted(found.items())
    ]
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
    parser.add_argument("--targets", nargs="+", default=(), help="(default: its own sources)")
    parser.add_argument("--seeds", type=int, default=3, help="runs on each target")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    parser.add_argument("--out", type=Path, default=RESULTS / "pretrained.jsonl")
    parser.add_argument("--tables", action="store_true", help="write the page's tables, run none")
    parser.add_argument("--check", action="store_true", help="with --tables: 1 if they are stale")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of torch and PyG
    if args.tables:
        made = {"made": made_table(args.folder), "held_out": hold_out_table(args.out)}
        return rewrite(ROOT / "docs" / "pretrained.md", made, check=args.check)
    if args.hold_out:
        config = RunsConfig(seeds=args.seeds, device=args.device, workers=1)
        made = reproduce([*cells(args.targets)], args.out, config, {}, data_root=args.data_root)
        print(made, flush=True)
    else:
        make(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
