"""One rank's share of a graph, and what ``shards.json`` says of all of them."""

import hashlib
import json
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

from torch import Tensor

from graphglow.errors import InputError
from graphglow.graphs import Graph
from graphglow.graphs.files import SHARDS, holds, own_path
from graphglow.storage import existing_file

FORMAT_VERSION = 2
"""Version 1 had no checksums."""
LARGEST_COUNT = 2**48
"""Sums of such counts are still exact."""
AGAIN = "make them again with graphglow shard"


@dataclass(frozen=True, eq=False)
class Shard:
    """The nodes of one rank, as a :class:`Graph` whose adjacency is a ``HaloMatrix``.

    Its ``train``, ``val`` and ``test`` are rows of the shard. What it must know of the whole
    are a few counts.

    Shapes:
        nodes [N_r] the numbers of its nodes in the whole graph, ascending
    """

    graph: Graph
    nodes: Tensor
    num_nodes: int
    """N, of the whole graph."""
    train_count: int
    """Training nodes of the whole graph."""
    val_count: int
    test_count: int


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """What ``shards.json`` says of one part; the rank that reads it compares."""

    nodes: int
    entries: int
    """Of its rows of the adjacency."""
    halo: int
    """Nodes of other parts that these rows name."""
    train: int
    val: int
    test: int
    classes: int
    """The highest class of its nodes, and 1."""
    sha256: str
    """Of the checksums in its ``part.json``."""


@dataclass(frozen=True, kw_only=True)
class ShardsInfo:
    """What ``shards.json`` says of the whole graph."""

    identity: str
    """SHA-256 of all the rest: two folders that have it in common hold the same parts."""
    name: str
    num_features: int
    sparse_features: bool
    parts: tuple[PartInfo, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Part p has the nodes ``starts[p] .. starts[p + 1] - 1`` in the order of the parts."""
        return tuple(accumulate((part.nodes for part in self.parts), initial=0))

    @property
    def num_nodes(self) -> int:
        return self.starts[-1]

    @property
    def num_classes(self) -> int:
        return max(part.classes for part in self.parts)

    @property
    def train_count(self) -> int:
        return sum(part.train for part in self.parts)

    @property
    def val_count(self) -> int:
        return sum(part.val for part in self.parts)

    @property
    def test_count(self) -> int:
        return sum(part.test for part in self.parts)


def is_shard_folder(path: str | Path) -> bool:
    """Whether :func:`read_shard` reads this, and not another loader."""
    return holds(path, SHARDS)


def shards_info(folder: str | Path) -> ShardsInfo:
    """Read ``shards.json``; what it says fits together, and is what was written."""
    path = own_path(folder) / SHARDS
    meta = read_facts(path)
    if meta.get("version") != FORMAT_VERSION:
        raise InputError(
            f"shards must have format version {FORMAT_VERSION}; "
            f"got {meta.get('version')!r} in {path} ({AGAIN})"
        )
    identity = meta.pop("identity", None)
    if identity != digest(meta):
        raise InputError(
            f"{path} must be as graphglow shard wrote it; got a file that was damaged or changed "
            f"since ({AGAIN})"
        )
    try:
        info = ShardsInfo(
            identity=str(identity),
            name=str(meta["name"]),
            num_features=meta["num_features"],
            sparse_features=bool(meta["sparse_features"]),
            parts=tuple(PartInfo(**part) for part in meta["parts"]),
        )
    except (LookupError, TypeError) as error:
        raise InputError(f"{path} must describe the parts of a graph; got other facts") from error
    _check(info, path)
    return info


def _check(info: ShardsInfo, path: Path) -> None:
    names = [field.name for field in fields(PartInfo) if field.name != "sha256"]
    counts = [getattr(part, name) for part in info.parts for name in names]
    for count in (info.num_features, *counts):
        if type(count) is not int or not 0 <= count <= LARGEST_COUNT:
            raise InputError(
                f"counts in {path} must be whole numbers from 0 to {LARGEST_COUNT}; got {count!r}"
            )
    least = min((part.nodes for part in info.parts), default=0)
    if min(least, info.num_features) < 1 or min(info.train_count, info.val_count) < 1:
        raise InputError(
            f"{path} must count features, training and validation nodes, and nodes of each part "
            "from 1; got fewer"
        )
    if not 2 <= info.num_classes <= info.num_nodes:
        raise InputError(
            f"{path} must have from 2 classes to as many as nodes ({info.num_nodes}); "
            f"got {info.num_classes}"
        )


def read_facts(path: Path) -> dict[str, Any]:
    """A JSON object that is in a file of a folder of shards."""
    existing_file(path, f"{path.name} of a folder of shards")
    try:
        facts: Any = json.loads(path.read_bytes())
        if not isinstance(facts, dict):
            raise ValueError(f"it is a {type(facts).__name__}")
        digest(facts)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} must be a JSON object; got another file ({error})") from error
    return facts


def digest(facts: Any) -> str:
    """SHA-256 of JSON facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
