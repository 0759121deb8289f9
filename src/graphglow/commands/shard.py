"""``graphglow shard``."""

import shlex
import time
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphglow.commands.flags import Json, Reading, UnusedDevice, UnusedSeed
from graphglow.commands.terminal import printable, say, tell, waiting
from graphglow.errors import InputError
from graphglow.training.distributed import GraphArrays, write_shards
from graphglow.training.distributed.graph_arrays import is_array_folder
from graphglow.training.distributed.partition import Partition


def shard(  # noqa: D417 (the flags say the rest)
    graph: Annotated[str, arg(metavar="NAME|FILE|FOLDER")],
    out: Annotated[Path, arg(metavar="FOLDER")],
    parts: Annotated[int, arg(metavar="INT")],
    reading: Reading,
    partition: Partition = "auto",
    json: Json = False,
    seed: UnusedSeed = 0,
    device: UnusedDevice = "auto",
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
        if is_array_folder(graph):
            if reading.split_file is not None or reading.columns:
                raise InputError(
                    "a folder of arrays must hold its split as masks, and has no columns; "
                    "got --split-file or --columns too"
                )
            arrays = GraphArrays.of_folder(graph, split_seed=reading.drawn_with())
        else:
            arrays = GraphArrays.of_data(reading.read(graph)[0])
        written = write_shards(arrays, out, parts, method=partition)
    counts = {n: [getattr(part, n) for part in written.parts] for n in ("nodes", "entries", "halo")}
    facts = {"command": "shard", "graph": written.name, "out": out, "parts": parts, **counts}
    tell("Shards", {**facts, "seconds": time.perf_counter() - began}, json=json)
    if not json:
        target = printable(shlex.quote(str(out)))
        say(f"next: torchrun --nproc-per-node {parts} -m graphglow transfer --target {target} ...")
