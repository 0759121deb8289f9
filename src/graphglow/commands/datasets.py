"""``graphglow datasets``."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from graphglow.commands.flags import DataRoot, Json, UnusedDevice, UnusedSeed
from graphglow.commands.terminal import print_json, say, show
from graphglow.graphs import DATASETS
from graphglow.graphs.load import data_folder
from graphglow.pretrained import PRETRAINED


def datasets(
    data_root: DataRoot = None,
    json: Json = False,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
) -> None:
    """List the graphs that are known by name.

    Any other graph is given by a path: two tables as people.csv+relations.csv (or .parquet), a
    folder with nodes.csv and edges.csv, or a .pt, .npz or .graphml file. The pre-trained structure
    learners that come with the package are listed too.
    """
    root = data_folder(data_root)
    present = _folders_with_raw_files(root)
    rows = [
        {
            "name": info.name,
            "kind": info.kind,
            "nodes": info.nodes,
            "edges": info.edges,
            "classes": info.classes,
            "features": info.features,
            "needs_data": info.needs_data,
            "found": not info.needs_data or info.name in present,
            "description": info.description,
        }
        for info in DATASETS.values()
    ]
    if json:
        learners = [{"name": name, "sources": list(of)} for name, of in PRETRAINED.items()]
        print_json({"data_root": root.absolute(), "datasets": rows, "learners": learners})
        return
    table = Table(box=SIMPLE_HEAD)  # fits in 80 columns
    for column in ("name", "kind", "nodes", "edges", "classes", "data files"):
        numeric = column in ("nodes", "edges", "classes")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        files = "not needed" if not row["needs_data"] else "found" if row["found"] else "missing"
        counts = [f"{row[key]:,}" for key in ("nodes", "edges", "classes")]
        table.add_row(str(row["name"]), str(row["kind"]), *counts, files)
    show(table)
    say(f"data root: {root.absolute()} (set it by --data-root or GRAPHGLOW_DATA)")
    say("pre-trained structure learners, for --learner:")
    for name, sources in PRETRAINED.items():
        say(f"  {name:<9}  {', '.join(sources)}")


def _folders_with_raw_files(root: Path) -> set[str]:
    """Lower-case names of the folders in ``root`` that have a non-empty ``raw`` folder."""
    try:
        return {
            folder.name.lower()
            for folder in root.iterdir()
            if (folder / "raw").is_dir() and any((folder / "raw").iterdir())
        }
    except OSError:  # no such root, or it cannot be read
        return set()
