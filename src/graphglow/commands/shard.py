"""``graphglow shard``."""

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from graphglow.commands.flags import Json, UnusedDevice, UnusedSeed
from graphglow.commands.graph_flags import GraphFlags
from graphglow.commands.terminal import print_json, say, show_facts, waiting
from graphglow.errors import InputError
from graphglow.training.distributed import GraphArrays, write_shards
from graphglow.training.distributed.graph_arrays import is_array_folder
from graphglow.training.distributed.partition import Partition


def shard(  # noqa: D417 (the flags say the rest)
    graph: Annotated[str, arg(metavar="NAME|FILE|FOLDER")],
    out: Annotated[Path, arg(metavar="FOLDER")],
    parts: Annotated[int, arg(metavar="INT")],
    reading: Annotated[GraphFlags, arg(name="")],
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
    facts: dict[str, Any] = {
        "command": "shard",
        "graph": written.name,
        "out": out,
        "parts": parts,
        "nodes": [part.nodes for part in written.parts],
        "entries": [part.entries for part in written.parts],
        "halo": [part.halo for part in written.parts],
        "seconds": time.perf_counter() - began,
    }
    if json:
        print_json(facts)
        return
    show_facts(
        "Shards",
        {
            "graph": facts["graph"],
            "nodes of each part": ", ".join(f"{n:,}" for n in facts["nodes"]),
            "entries of its adjacency": ", ".join(f"{n:,}" for n in facts["entries"]),
            "nodes of others it needs": ", ".join(f"{n:,}" for n in facts["halo"]),
            "written to": out,
        },
    )
    say(
        f"next: torchrun --nproc-per-node {parts} -m graphglow transfer "
        f"--target {_for_shell(out)} ..."
    )


def _for_shell(path: Path) -> str:
    """A path as it can be pasted into a shell, on one line."""
    text = str(path)
    if text.isprintable():
        return shlex.quote(text)
    letters = (c if c.isprintable() and c not in "'\\" else _escaped(c) for c in text)
    return f"$'{''.join(letters)}'"


def _escaped(letter: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))
