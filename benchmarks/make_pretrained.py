"""Make the paper's structure learner that comes with the package, and the rows that justify it.

    python benchmarks/make_pretrained.py                         the file of the package
    python benchmarks/make_pretrained.py --hold-out              rows: one source left out in turn
    python benchmarks/make_pretrained.py --hold-out --targets wine digits
                                                                 rows: graphs that are no sources

A held-out graph plays no part in pre-training: the learner is made anew from the other sources with
the same settings. It is then transferred, frozen, beside a learner of the same shape that was never
trained and a GCN of the same width; settings on the target are the same for all.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphglow.lab.config import RunsConfig, config_of
from graphglow.lab.paper_tables import CITATION, METHOD_NAMES, SOCIAL, Cell
from graphglow.lab.runs import Pretraining, pretrained, run_cells
from graphglow.pretrained import FOLDER, PAPER
from graphglow.settings import PretrainConfig
from measuring import RESULTS

# minutes on a CPU; P = 400, T = 4 and 80 epochs did no better (docs/benchmarks.md)
SETTINGS: dict[str, Any] = {"num_pivots": 200, "refinements": 2, "epochs": 40}
"""Of pre-training: fields of PretrainConfig that differ from the defaults."""
SOURCES = (*CITATION, *SOCIAL)
METHODS = ("graphglow", "random-theta", "gcn")


def make(args: argparse.Namespace) -> None:
    """Write the file of the package."""
    config = config_of(PretrainConfig, SETTINGS, device=args.device)
    _, learner = pretrained(args.data_root, Pretraining(SOURCES, config))
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
                label=METHOD_NAMES[method],
                method=method,
                target=target,
                sources=tuple(s for s in SOURCES if s != target) if ours else (),
                series=PAPER,
                settings=width if method == "gcn" else {},
                pretraining=SETTINGS if ours else {},
            )


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
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")  # of torch and PyG
    if args.hold_out:
        config = RunsConfig(seeds=args.seeds, device=args.device, workers=1)
        made = run_cells([*cells(args.targets)], args.out, config, {}, data_root=args.data_root)
        print(made, flush=True)
    else:
        make(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
