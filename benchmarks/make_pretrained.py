"""Make the paper's structure learner that comes with the package, and the rows that justify it.

    python benchmarks/make_pretrained.py                         the file of the package
    python benchmarks/make_pretrained.py --hold-out              rows: one source left out in turn
    python benchmarks/make_pretrained.py --hold-out wine digits  rows: graphs that are no sources

A held-out graph plays no part in pre-training: the learner is made anew from the other sources with
the same settings. It is then transferred, frozen, beside a learner of the same shape that was never
trained and a GCN of the same width; settings on the target are the same for all.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphglow.lab.config import RunsConfig, config_of
from graphglow.lab.paper_tables import CITATION, METHOD_NAMES, SOCIAL, Cell
from graphglow.lab.runs import Pretraining, pretrained_learner, run_cells
from graphglow.pretrained import FOLDER, PAPER
from graphglow.settings import PretrainConfig
from measuring import RESULTS

# minutes on a CPU; P = 400, T = 4 and 80 epochs did no better (docs/benchmarks.md)
SETTINGS: dict[str, Any] = {"num_pivots": 200, "refinements": 2, "epochs": 40}
"""Of pre-training: fields of PretrainConfig that differ from the defaults."""
SOURCES = (*CITATION, *SOCIAL)


def make(data_root: Path | None, device: str) -> None:
    """Write the file of the package."""
    config = config_of(PretrainConfig, SETTINGS, device=device)
    _, learner = pretrained_learner(data_root, Pretraining(SOURCES, config))
    learner.provenance |= {"name": PAPER, "seed": config.seed}
    learner.save(FOLDER / f"{PAPER}.safetensors")
    score = learner.provenance["validation_accuracy"]
    print(f"mean validation accuracy {100 * score:.1f} %", flush=True)


def cells(targets: Sequence[str]) -> Iterator[Cell]:
    """Yield the learner and its controls on graphs that are none of its sources."""
    width = {"hidden": PretrainConfig().learner.embedding_size}
    for target in targets:
        for method in ("graphglow", "random-theta", "gcn"):
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hold-out", nargs="*", metavar="TARGET", help="make rows, no file")
    parser.add_argument("--seeds", type=int, default=3, help="runs on each target")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of torch and PyG
    if args.hold_out is None:
        make(args.data_root, args.device)
    else:
        config = RunsConfig(seeds=args.seeds, device=args.device, workers=1)
        rows = RESULTS / "pretrained.jsonl"
        wanted = list(cells(args.hold_out or SOURCES))
        print(run_cells(wanted, rows, config, {}, data_root=args.data_root), flush=True)
