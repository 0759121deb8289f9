"""Make the structure learners that come with the package, and the rows that justify them.

    python benchmarks/make_pretrained.py                         the files of the package
    python benchmarks/make_pretrained.py --hold-out              rows: one source left out in turn
    python benchmarks/make_pretrained.py --hold-out --targets wine digits
                                                                 rows: graphs that are no sources
    python benchmarks/make_pretrained.py --tables [--check]      the tables of docs/pretrained.md

A held-out graph plays no part in pre-training: the learner is made anew from the other sources with
the same settings. It is then transferred, frozen, beside a learner of the same shape that was never
trained and a GCN of the same width; settings on the target are the same for all, or those of
``--settings``, where the GCN has its own. Stop it whenever you like: learners are kept in
``--learners``, rows that are there are not made again. To try it out, name another ``--folder`` and
``--out``, and few ``--epochs``.
"""

import argparse
import json
import os
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from graphglow.baselines import fit_many
from graphglow.baselines.gnns import GNNConfig
from graphglow.experiments.cell import split_of
from graphglow.experiments.cell_config import as_compared, in_parts, merged
from graphglow.experiments.cell_rows import as_line
from graphglow.experiments.learner_files import find_learner, load_with_split, make_learner
from graphglow.experiments.provenance import provenance
from graphglow.experiments.search.settings import Settings, config_of, read_settings
from graphglow.graphs import DATASETS
from graphglow.pretrained import FOLDER, PRETRAINED
from graphglow.storage import append_line
from graphglow.structure import StructureLearner
from graphglow.training import PretrainConfig, TransferConfig, transfer_many
from graphglow.training.config import RunConfig
from marked_page import rewrite

# minutes on a CPU; P = 400, T = 4 and 80 epochs did no better (docs/pretrained.md)
OF_SEVEN: dict[str, Any] = {"num_pivots": 200, "refinements": 2, "epochs": 40}
SETTINGS: dict[str, dict[str, Any]] = {
    "citation": {},
    "social": {},
    "universal": OF_SEVEN,
    "sharp": {**OF_SEVEN, "learner": {"delta": "exp"}},
}
"""Of pre-training, by learner: fields of PretrainConfig that differ from the defaults."""
TRANSFER: dict[str, Any] = {}
"""On every target for which --settings has nothing: fields of TransferConfig."""

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("graphglow", "random-theta", "gcn")
Row = dict[str, Any]
Config = TypeVar("Config", bound=RunConfig)


def pretrain_config(name: str, args: argparse.Namespace) -> PretrainConfig:
    chosen = merged(SETTINGS[name], json.loads(args.set))
    config = config_of(PretrainConfig, chosen, seed=args.learner_seed, device=args.device)
    return shortened(config, args.epochs)


def shortened(config: Config, epochs: int | None) -> Config:
    """The same with at most ``epochs`` epochs, for a smoke test."""
    if epochs is None or config.epochs <= epochs:
        return config
    return replace(config, epochs=epochs)


def make(name: str, args: argparse.Namespace, rows: list[Row]) -> None:
    """One file of the package, and its row; nothing if they are there."""
    config = pretrain_config(name, args)
    learner = file_of(name, config, args)
    if learner is None or same(made_row(learner)) not in {same(row) for row in rows}:
        learner = learner_of(name, PRETRAINED[name], config, args)
        learner.provenance |= {"name": name, "seed": config.seed}
        learner.save(args.folder / f"{name}.safetensors")
        write(made_row(learner), args, rows)
    score = learner.provenance["validation_accuracy"]
    print(f"{name}: mean validation accuracy {100 * score:.1f} %", flush=True)


def made_row(learner: StructureLearner) -> Row:
    return {"kind": "pretrain", **learner.provenance}


def file_of(name: str, config: PretrainConfig, args: argparse.Namespace) -> StructureLearner | None:
    """The file of the package, if it was made with these settings and this seed."""
    path = args.folder / f"{name}.safetensors"
    if not path.exists():
        return None
    learner = StructureLearner.load(path)
    made = learner.provenance
    stored, wanted = (as_compared(PretrainConfig, c) for c in (made["config"], asdict(config)))
    return learner if stored == wanted and made["seed"] == config.seed else None


def learner_of(
    name: str, sources: tuple[str, ...], config: PretrainConfig, args: argparse.Namespace
) -> StructureLearner:
    """The learner of these sources with these settings, made if it is nowhere yet.

    With all sources it is the file of the package; graphs are read only to train.
    """
    found = file_of(name, config, args) if sources == PRETRAINED[name] else None
    found = found or find_learner(args.learners, sources, config)
    if found is not None:
        return found
    print(f"pre-training on {', '.join(sources)}", flush=True)
    graphs = [load_with_split(source, args.data_root) for source in sources]
    return make_learner(args.learners, sources, graphs, config)


def hold_out(name: str, target: str, args: argparse.Namespace, rows: list[Row]) -> None:
    """The rows of one learner on one graph that is none of its sources, as far as they miss."""
    sources = tuple(source for source in PRETRAINED[name] if source != target)
    before = pretrain_config(name, args)
    settings = read_settings(args.settings) if args.settings else Settings()
    configs = transfer_configs(target, sources, settings, args)
    plain = gcn_configs(target, configs, before.learner.embedding_size, settings, args)
    about: Row = {"kind": "hold-out", "name": name, "held_out": target, "sources": list(sources)}
    about |= {"split": split_of(target), "learner_seed": before.seed, "pretraining": asdict(before)}
    for method in METHODS:
        wanted = plain if method == "gcn" else configs
        there = {same(row) for row in rows}
        missing: list[Any] = [
            c for c in wanted if same({**about, **run_facts(method, c)}) not in there
        ]
        if not missing:
            continue
        data = load_with_split(target, args.data_root)
        if method == "gcn":
            results: Sequence[Any] = fit_many("gcn", data, missing)
        elif method == "random-theta":
            random = [StructureLearner(before.learner, seed=config.seed) for config in missing]
            results = transfer_many(random, data, missing)
        else:
            results = transfer_many(learner_of(name, sources, before, args), data, missing)
        for config, result in zip(missing, results, strict=True):
            row = {**about, **result.summary(), **run_facts(method, config)}
            write({**row, "runs_at_once": len(missing)}, args, rows)
            print(f"{name}, {target}, {method}: test {row['test_accuracy']:.3f}", flush=True)


def transfer_configs(
    target: str, sources: tuple[str, ...], settings: Settings, args: argparse.Namespace
) -> list[TransferConfig]:
    tuned = in_parts(settings.of("graphglow", target, sources))[1] or TRANSFER
    base = shortened(config_of(TransferConfig, tuned, device=args.device), args.epochs)
    return [replace(base, seed=seed) for seed in range(args.seeds)]


def gcn_configs(
    target: str,
    configs: Sequence[TransferConfig],
    hidden: int,
    settings: Settings,
    args: argparse.Namespace,
) -> list[GNNConfig]:
    """GCN's own tuned settings where there are any, else those of the transfer."""
    tuned = settings.of("gcn", target)
    if tuned:
        base = shortened(config_of(GNNConfig, tuned, device=args.device), args.epochs)
        return [replace(base, seed=config.seed) for config in configs]
    shared = {field.name for field in fields(GNNConfig)} - {"hidden"}
    return [GNNConfig(hidden=hidden, **{n: getattr(c, n) for n in shared}) for c in configs]


def run_facts(method: str, config: TransferConfig | GNNConfig) -> Row:
    return {"method": method, "seed": config.seed, "config": asdict(config)}


def same(row: Row) -> str:
    """A text that is the same for the same run; the device and the commit do not count."""
    names = ("kind", "name", "held_out", "method", "seed", "learner_seed", "sources", "split")
    facts = {name: row.get(name) for name in names}
    return json.dumps({**facts, "settings": settings_of(row)}, sort_keys=True)


def settings_of(row: Row) -> Row:
    """All settings of a row but its seeds."""
    if row["kind"] == "pretrain":
        return as_compared(PretrainConfig, row["config"])
    kind = GNNConfig if row["method"] == "gcn" else TransferConfig
    before = as_compared(PretrainConfig, row["pretraining"])
    return {"config": as_compared(kind, row["config"]), "pretraining": before}


def write(row: Row, args: argparse.Namespace, rows: list[Row]) -> None:
    row = {"benchmark": "pretrained", "provenance": provenance(), **row}
    append_line(args.out, as_line(row))
    rows.append(row)


def read(path: Path) -> list[Row]:
    """All whole rows; a line that was cut short is none."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def made_table(rows: list[Row]) -> str:
    """The files of the package: the newest row of each."""
    lines = ["| name | sources | validation, mean | seconds | on | commit |", "|---" * 6 + "|"]
    newest = {row["name"]: row for row in rows if row["kind"] == "pretrain"}
    for name, row in sorted(newest.items()):
        origin = row["provenance"]
        figures = f"{100 * row['validation_accuracy']:.1f} | {row['seconds']:.0f}"
        where = f"{origin['machine']['gpu'] or 'CPU'} | {origin['commit']}"
        lines.append(f"| `{name}` | {', '.join(row['sources'])} | {figures} | {where} |")
    return "\n".join(lines) + "\n"


def hold_out_table(rows: list[Row]) -> str:
    """Test accuracy in %: of each method the runs that have the settings of its newest row.

    A learner that was made with other settings than the shipped one has lines of its own.
    """
    cells: dict[tuple[str, str, str], dict[str, list[Row]]] = {}
    for row in rows:
        if row["kind"] == "hold-out" and row["test_accuracy"] is not None:
            methods = cells.setdefault((row["name"], otherwise(row), row["held_out"]), {})
            methods.setdefault(row["method"], []).append(row)
    lines = [f"| name | held out | {' | '.join(METHODS)} |", "|---" * 5 + "|"]
    for (name, made, target), methods in sorted(cells.items()):
        figures = []
        for method in METHODS:
            runs = methods.get(method, [])
            alike = [row for row in runs if settings_of(row) == settings_of(runs[-1])]
            figures.append(shown([100 * row["test_accuracy"] for row in alike]))
        lines.append(f"| `{name}`{made} | {target} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def otherwise(row: Row) -> str:
    """What of a learner's pre-training differs from that of the file in the package."""
    shipped = as_compared(PretrainConfig, SETTINGS[row["name"]])
    found = as_compared(PretrainConfig, row["pretraining"])
    changed = []
    for name, value in found.items():
        inner = value if isinstance(value, dict) else {name: value}
        before = shipped[name] if isinstance(value, dict) else shipped
        changed += [f"{n} {v}" for n, v in inner.items() if v != before[n]]
    return f", {', '.join(changed)}" if changed else ""


def shown(scores: list[float]) -> str:
    if not scores:
        return ""
    spread = f" +- {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread} ({len(scores)})"


def tables(args: argparse.Namespace) -> int:
    rows = read(args.out)
    made = {"made": made_table(rows), "held_out": hold_out_table(rows)}
    return rewrite(args.page, made, check=args.check)


def main(argv: Sequence[str] | None = None) -> int:
    whole = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=whole)
    names = list(PRETRAINED)
    parser.add_argument("--names", nargs="+", choices=names, default=names)
    parser.add_argument("--hold-out", action="store_true", help="make rows, no files")
    graphs = sorted(DATASETS)
    parser.add_argument("--targets", nargs="+", choices=graphs, help="(default: its own sources)")
    parser.add_argument("--seeds", type=int, default=3, help="runs on each target")
    parser.add_argument("--learner-seed", type=int, default=0, help="of pre-training")
    parser.add_argument("--set", default="{}", help="JSON: fields of PretrainConfig, over SETTINGS")
    parser.add_argument("--settings", type=Path, help="a file of graphglow search, for targets")
    parser.add_argument("--epochs", type=int, help="at most, everywhere: to try it out")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    root = os.environ.get("GRAPHGLOW_DATA", "data")
    parser.add_argument("--data-root", type=Path, default=Path(root))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    parser.add_argument("--learners", type=Path, default=ROOT / "results" / "pretrained_learners")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "pretrained.jsonl")
    parser.add_argument("--tables", action="store_true", help="write the page's tables, run none")
    parser.add_argument("--check", action="store_true", help="with --tables: 1 if they are stale")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "pretrained.md")
    args = parser.parse_args(argv)
    if args.tables:
        return tables(args)
    warnings.simplefilter("ignore")  # of torch and PyG, at import and in use
    rows = read(args.out)
    for name in args.names:
        if not args.hold_out:
            make(name, args, rows)
            continue
        for target in args.targets or PRETRAINED[name]:
            hold_out(name, target, args, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
