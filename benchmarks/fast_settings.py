"""What each fast setting costs in accuracy: several seeds, trained as one batch.

    python benchmarks/fast_settings.py --data-root data --out results/bench_fast_settings.jsonl

Each row: one graph, one setting, the mean and standard deviation over the seeds of validation and
test accuracy. The learner is a random theta (the same for all runs of a graph), so that settings
differ in nothing else; Facebook graphs have the split of the paper's authors, Cora the public one.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path

import torch

from graphglow import LearnerConfig, PaperConfig, StructureLearner, load_graph, transfer_many
from graphglow.lab.provenance import provenance
from graphglow.storage import append_line

SETTINGS = {  # name -> changes of the configuration, delta of the learner
    "float32, 4 refinements": ({}, "truncate"),
    "tf32": ({"precision": "tf32"}, "truncate"),
    "bfloat16": ({"precision": "bfloat16"}, "truncate"),
    "linear (affine delta)": ({}, "affine"),
    "2 refinements": ({"refinements": 2}, "truncate"),
    "10 refinements": ({"refinements": 10}, "truncate"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--targets", nargs="+", default=["amherst41", "johnshopkins55", "cora"])
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    args = parser.parse_args()
    origin = provenance()
    for target in args.targets:
        split = args.data_root / target / "split.npz"
        data = load_graph(
            target, data_root=args.data_root, split_file=split if split.exists() else None
        )
        # decay as in results/transfer_accuracy.jsonl: the Facebook graphs need less of it
        decay = 1e-4 if split.exists() else 5e-4
        for name in args.settings:
            changes, delta = SETTINGS[name]
            learner = StructureLearner(LearnerConfig(delta=delta))
            base = PaperConfig(epochs=args.epochs, weight_decay=decay, device=args.device)
            configs = [replace(base, seed=seed, **changes) for seed in range(args.seeds)]
            runs = transfer_many(data, learner, configs)
            row = {"benchmark": "fast_settings", "target": target, "setting": name}
            for kind in ("val_accuracy", "test_accuracy"):
                scores = [getattr(run, kind) for run in runs]
                row[kind] = statistics.mean(scores)
                row[f"{kind}_std"] = statistics.stdev(scores)
            row |= {
                "seeds": args.seeds,
                "epochs": args.epochs,
                "split": "authors'" if split.exists() else "public",
                "seconds": runs[0].train_seconds,
                "device": runs[0].summary()["device"],
                "threads": torch.get_num_threads(),
            }
            append_line(args.out, json.dumps(row | {"provenance": origin}))
            print(target, name, {k: round(v, 4) for k, v in row.items() if isinstance(v, float)})


if __name__ == "__main__":
    main()
