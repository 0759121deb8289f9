"""Search the settings of a method by validation accuracy; Optuna draws them.

    python benchmarks/search.py gcn --targets cora reed98 --trials 40
    python benchmarks/search.py graphglow --targets reed98 --sources cora citeseer pubmed

Spaces are those of Appendix C where it says. Test labels are taken out of the graphs before
anything else. The best settings go to results/settings.json, the facts of each search to
results/search.jsonl. With ``--storage sqlite:///trials.db`` several processes share a study, and a
rerun goes on up to ``--trials``.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import torch
from torch_geometric.data import Data

from graphglow import fit, pretrain, transfer
from graphglow.competitors import METHODS
from graphglow.errors import InputError
from graphglow.graph import check_graph
from graphglow.lab.config import config_of, key_of, read_settings
from graphglow.lab.row_files import provenance
from graphglow.lab.runs import load_with_split
from graphglow.settings import ObjectiveConfig, PaperConfig, PretrainConfig
from graphglow.storage import append_line, atomic_path
from measuring import RESULTS

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
VARIANT: Space = {
    **ALL,
    **WEIGHT_DECAY,
    "embedding_size": (64,),
    "input_weight": (0.1, 0.3, 0.5, 0.7, 0.9, 1.0),
    "refinements": (4,),
    "encoder": ("gcn", "mlp"),
    "num_pivots": (400,),
}
"""d, T, H and P are fixed; lambda has fewer values, and 1 besides: no learned graph at all."""
REGULARISERS = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3)
TRAINED: Space = {
    **VARIANT,
    "objective": tuple(
        ObjectiveConfig(smoothness=alpha, sparsity=rho)
        for alpha, rho in product(REGULARISERS, repeat=2)
    ),
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
    "graphglow-dot": VARIANT,
    "graphglow-knn": {**VARIANT, "neighbours": (5, 10, 20, 50)},
    "graphglow-cosine": VARIANT,
    "graphglow-attention": TRAINED,
    "graphglow-star": TRAINED,
    "random-theta": VARIANT,
}
PRETRAIN_SPACE: Space = {
    "learner_learning_rate": (0.01, 0.1),
    "learner.embedding_size": (16, 32, 64, 96),
    "learner.num_heads": (4, 6),
    "objective": TRAINED["objective"],
    "episodes": (1, 2, 3),
    "refinements": VARIANT["refinements"],
}
"""Appendix C: theta's step, its shape (d, H), the weights of its objective (alpha, rho), E and T.
What is a setting of both parts is searched for the transfer only."""
TRANSFER_SPACE: Space = {n: v for n, v in VARIANT.items() if n != "embedding_size"}
"""Appendix C, what the target's GNN is trained with; its width is the learner's d."""
BACKBONES: Space = {"backbone": ("gcn", "appnp", "linkx")}
WIDER = {"graphglow-backbone": "graphglow", "random-backbone": "random-theta"}
"""Lines whose GNN is searched too; the encoder is fixed in exchange."""


def blinded(data: Data) -> Data:
    """Take test nodes, and all labels but those of training and validation, out of a graph."""
    data = check_graph(data).clone()
    known = data.train_mask | data.val_mask
    data.y, data.test_mask = torch.where(known, data.y, -1), torch.zeros_like(known)
    return data


def space_of(method: str) -> dict[str, tuple[Any, ...]]:
    """Return values by name; a dot in a name leads into nested settings."""
    wider: Space = {**BACKBONES, "encoder": ("gcn",)} if method in WIDER else {}
    base = WIDER.get(method, method)
    if base != "graphglow":
        return {**SPACES[base], **wider}
    space = {f"transfer.{name}": v for name, v in {**TRANSFER_SPACE, **wider}.items()}
    return space | {f"pretrain.{name}": values for name, values in PRETRAIN_SPACE.items()}


def draw(trial: optuna.Trial, space: Space) -> dict[str, Any]:
    """Draw settings, ``a.b`` as ``b`` of ``a``; the trial keeps them as they were drawn."""
    out: dict[str, Any] = {}
    for name, values in space.items():
        value = values[trial.suggest_categorical(name, range(len(values)))]
        *path, last = name.split(".")
        inner = out
        for step in path:
            inner = inner.setdefault(step, {})
        inner[last] = asdict(value) if is_dataclass(value) else value
    trial.set_user_attr("settings", out)
    return out


def score(method: str, target: Data, sources: list[Data], given: Any, args: Any) -> float:
    """Return the mean validation accuracy of settings over seeds."""
    epochs = {"epochs": args.epochs} if args.epochs else {}
    fixed = {"patience": args.patience, "device": args.device} | epochs
    base = WIDER.get(method, method)
    if base != "graphglow":
        configs = [config_of(METHODS[base].config, given, seed=s, **fixed) for s in args.seeds]
        return fmean(fit(base, target, config).val_accuracy for config in configs)
    encoder = {n: v for n, v in given["transfer"].items() if n == "encoder"}
    before = config_of(PretrainConfig, encoder | given["pretrain"], device=args.device, **epochs)
    learner = pretrain(sources, before)
    configs = [config_of(PaperConfig, given["transfer"], seed=s, **fixed) for s in args.seeds]
    return fmean(transfer(target, learner, config).val_accuracy for config in configs)


def search(method: str, target: Data, sources: list[Data], args: Any) -> dict[str, Any]:
    """Return the row of a search."""
    space, names = space_of(method), sorted(source.name for source in sources)
    study = optuna.create_study(
        storage=args.storage,
        study_name=f"{method} on {key_of(target.name, names)}",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0, multivariate=True),
        load_if_exists=True,
    )
    study.optimize(
        lambda trial: score(method, target, sources, draw(trial, space), args),
        n_trials=max(0, args.trials - len(study.trials)),
        catch=(InputError, MemoryError),
    )
    return {
        "experiment": "search", "method": method, "target": target.name, "sources": names or None,
        "seeds_per_trial": len(args.seeds), "patience": args.patience, "trials": len(study.trials),
        "val_accuracy": study.best_value, "settings": study.best_trial.user_attrs["settings"],
        "provenance": provenance(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method", choices=["graphglow", *WIDER, *METHODS])
    parser.add_argument("--targets", nargs="+", required=True)
    parser.add_argument("--sources", nargs="+", default=[])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--patience", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--storage", help="an Optuna URL; in memory by default")
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    path = RESULTS / "settings.json"
    for name in args.targets:
        sources = [blinded(load_with_split(s, args.data_root)) for s in args.sources if s != name]
        row = search(args.method, blinded(load_with_split(name, args.data_root)), sources, args)
        tuned: dict[str, Any] = dict(read_settings(path))
        new = dict.fromkeys((name, key_of(name, args.sources)), row["settings"])
        tuned[args.method] = {**tuned.get(args.method, {}), **new}
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(tuned, indent=2, sort_keys=True) + "\n")
        append_line(RESULTS / "search.jsonl", json.dumps(row))
        print(f"{args.method} on {name}: {row['val_accuracy']:.3f} {row['settings']}", flush=True)


if __name__ == "__main__":
    main()
