"""Folders of shards and of arrays for the fuzzer, each as one file: a JSON object of members."""

import json
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random

from fuzz_bytes import sometimes_damaged
from graphglow.errors import InputError


@lru_cache
def _folders() -> dict[str, dict[str, bytes]]:
    """A folder of shards, and one of arrays, as what is in their files."""
    import numpy as np

    from graphglow.graphs import synthetic_graph
    from graphglow.training.distributed import GraphArrays, write_shards

    arrays = GraphArrays.of_data(
        synthetic_graph(num_nodes=60, num_features=4, average_degree=4, seed=0)
    )
    with tempfile.TemporaryDirectory() as folder:
        shards, plain = Path(folder) / "shards", Path(folder) / "arrays"
        write_shards(arrays, shards, 1)
        plain.mkdir()
        for name in ("x", "edge_index", "y"):
            np.save(plain / f"{name}.npy", getattr(arrays, name))
        return {
            root.name: {
                str(path.relative_to(root)): path.read_bytes()
                for path in sorted(root.rglob("*"))
                if path.is_file()
            }
            for root in (shards, plain)
        }


def folder_file(kind: str) -> Callable[[Random], bytes]:
    """A maker of such folders, as one file, some of whose members are damaged."""

    def make(random: Random) -> bytes:
        entries = dict(_folders()[kind])
        for name in random.sample(sorted(entries), random.randint(1, 2)):
            entries[name] = sometimes_damaged(entries[name], random, 0.95)
        return json.dumps({name: data.hex() for name, data in entries.items()}).encode()

    return make


def _unpacked(path: Path, read: Callable[[Path], object]) -> object:
    try:
        members = json.loads(path.read_bytes()).items()
        contents = {name: bytes.fromhex(data) for name, data in members if ".." not in name}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError("the fuzzer's own bundle must be whole; got another file") from error
    with tempfile.TemporaryDirectory() as folder:
        for name, data in contents.items():
            member = Path(folder) / name
            member.parent.mkdir(exist_ok=True)
            member.write_bytes(data)
        return read(Path(folder))


def sign_shards(folder: Path) -> None:
    """Make the checksums of a folder of shards right again, where its JSON can be read."""
    from graphglow.training.distributed.graph_arrays import file_checksum
    from graphglow.training.distributed.shard import digest

    try:
        meta = json.loads((folder / "shards.json").read_bytes())
        sums = []
        for number, part in enumerate(meta["parts"]):
            arrays = sorted((folder / f"part-{number}").glob("*.npy"))
            sums.append({path.name: file_checksum(path) for path in arrays})
            part["sha256"] = digest(sums[-1])
        meta.pop("identity", None)
        identity = digest(meta)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return
    for number, found in enumerate(sums):
        facts = {"graph": identity, "part": number, "sha256": found}
        (folder / f"part-{number}" / "part.json").write_text(json.dumps(facts))
    (folder / "shards.json").write_text(json.dumps({**meta, "identity": identity}))


def read_shards(path: Path) -> object:
    """Read a folder of shards and multiply by what it holds."""
    import torch

    from graphglow.training.distributed import Ranks, read_shard

    def read(folder: Path) -> object:
        if path.stat().st_size % 4:  # or the checksums refuse all that is damaged
            sign_shards(folder)
        graph = read_shard(folder, Ranks()).graph
        return graph.adj @ torch.ones(graph.num_nodes, 1), graph.x @ torch.ones(
            graph.num_features, 1
        )

    return _unpacked(path, read)


def read_arrays(path: Path) -> object:
    """Read a folder of arrays."""
    from graphglow.training.distributed import GraphArrays

    return _unpacked(path, GraphArrays.of_folder)
