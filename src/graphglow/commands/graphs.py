"""``graphglow datasets`` and ``shard``: graphs as they are, without a model."""

import shlex
import time
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphglow.commands.flags import DataRoot, Json, Reading
from graphglow.commands.terminal import print_json, printable, say, show_rows, tell, waiting
from graphglow.errors import InputError
from graphglow.graphs import DATASETS
from graphglow.graphs.load import data_folder
from graphglow.pretrained import PRETRAINED
from graphglow.training.distributed import GraphArrays, write_shards
from graphglow.training.distributed.graph_arrays import is_array_folder
from graphglow.training.distributed.partition import Partition


def datasets(data_root: DataRoot = None, json: Json = False) -> None:
    """List the graphs that are known by name.

    Any other graph is given by a path: two tables as people.csv+relations.csv (or .parquet), a
    folder with nodes.csv and edges.csv, or a .pt, .npz or .graphml file. The pre-trained structure
    learners that come with the package are listed too.
    """
    root = data_folder(data_root)
    present = {path.parent.parent.name.lower() for path in root.glob("*/raw/*")}
    names = ("name", "kind", "nodes", "edges", "classes", "features", "needs_data", "description")
    rows = [
        {name: getattr(info, name) for name in names}
        | {"found": not info.needs_data or info.name in present}
        for info in DATASETS.values()
    ]
    if json:
        learners = [{"name": name, "what": what} for name, what in PRETRAINED.items()]
        print_json({"data_root": root.absolute(), "datasets": rows, "learners": learners})
        return
    lines = []
    for row in rows:
        files = "not needed" if not row["needs_data"] else "found" if row["found"] else "missing"
        lines.append((row["name"], row["kind"], *(f"{row[n]:,}" for n in names[2:5]), files))
    show_rows((*names[:5], "data files"), lines)
    say(f"data root: {root.absolute()} (set it by --data-root or GRAPHGLOW_DATA)")
    say("pre-trained learners, for --learner:")
    for name, what in PRETRAINED.items():
        say(f"  {name:<9}  {what}")


def shard(  # noqa: D417 (the flags say the rest)
    graph: Annotated[str, arg(metavar="NAME|FILE|FOLDER")],
    out: Annotated[Path, arg(metavar="FOLDER")],
    parts: Annotated[int, arg(metavar="INT")],
    reading: Reading,
    partition: Partition = "auto",
    json: Json = False,
) -> None:
    """Cut a graph into parts on disk, for a transfer on several processes.

    Example: graphglow shard --graph my_graph.npz --out shards --parts 4

    Args:
        graph: A name (see graphglow datasets), a file, or, for a graph that does not fit in
            memory, a folder with x.npy, edge_index.npy and y.npy (and edge_weight.npy,
            train_mask.npy, val_mask.npy, test_mask.npy).
        out: A new folder for the parts.
        parts: How many processes will train.
        partition: metis needs pymetis; near keeps neighbours together; given cuts the order that
            the nodes have, and holds no edges in memory; auto takes the first that can be.
    """
    began = time.perf_counter()
    with waiting(f"cutting {graph}"):
        if not is_array_folder(graph):
            arrays = GraphArrays.of_data(reading.read(graph)[0])
        elif reading.split_file is None and not reading.columns:
            arrays = GraphArrays.of_folder(graph, split_seed=reading.split_seed or 0)
        else:
            raise InputError(
                "a folder of arrays must hold its split as masks, and has no columns; "
                "got --split-file or --columns too"
            )
        written = write_shards(arrays, out, parts, method=partition)
    counts = {n: [getattr(part, n) for part in written.parts] for n in ("nodes", "entries", "halo")}
    facts = {"command": "shard", "graph": written.name, "out": out, "parts": parts, **counts}
    tell("Shards", {**facts, "seconds": time.perf_counter() - began}, json=json)
    if not json:
        target = printable(shlex.quote(str(out)))
        run = f"torchrun --nproc-per-node {parts} -m graphglow transfer"
        say(f"next: {run} --learner paper --target {target} ...")
