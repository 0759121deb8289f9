"""What the ways of large graphs cost: each against the exact one, on graphs that both can do.

    python benchmarks/size_checks.py lists link

lists: the 8 nearest by inverted lists against all of them, view by view, and accuracy from 20
labels per class with either. link: the link channel by conjugate gradients against the exact
kernel. Graphs are open ones (``open/*.npz`` of the data root), the paper's, or random. Rows are
added to ``results/size_checks.jsonl``; ``size_tables.py`` makes the tables of docs/scaling.md.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from graphglow.device import resolve_device
from graphglow.evidence import channels
from graphglow.evidence.candidates import NEAREST, node_blocks
from graphglow.graph.graph import known_graph
from graphglow.graph.load import data_folder
from graphglow.lab.open_world.targets import few_labels, find_targets
from graphglow.linalg import pairs as ops
from graphglow.linalg.neighbours import Search
from graphglow.pretrained import evidence_learner
from measuring import Row, write_rows

VIEWS = ("x", "ax", "aax", "link", "answers", "sx", "ssx", "answers again")
"""Rows in which a refinement looks for the nearest, in their order."""
QUERIES = 4096
"""Rows, drawn at random, whose nearest are compared with the exact ones."""
LABELS = 20
RANDOM: dict[str, Callable[[torch.Generator], Tensor]] = {
    "noise": lambda g: torch.randn(50_000, 100, generator=g),
    "clusters": lambda g: (
        torch.randn(3000, 100, generator=g)[torch.randint(3000, (150_000,), generator=g)]
        + 0.3 * torch.randn(150_000, 100, generator=g)
    ),
}


def graph(name: str, seed: int) -> Data:
    """With the paper's split, or one that the seed draws."""
    root = data_folder(None)
    (target,) = (one for one in find_targets(root) if one.name == name)
    return target.load(root, seed)


def accuracy(data: Data, probabilities: Tensor) -> float:
    """Of the test nodes."""
    test = data.test_mask
    return float((probabilities.cpu().argmax(1) == data.y)[test].double().mean())


# lists


def lists(name: str, seed: int, device: torch.device) -> Iterator[Row]:
    if name in RANDOM:
        rows = F.normalize(RANDOM[name](torch.Generator().manual_seed(seed)), dim=1)
        yield from recalls(["rows"], [rows.to(device)])
        return
    data = few_labels(graph(name, seed), LABELS, seed)
    assert data is not None
    for limit in (len(data.y), 0):
        with searching(limit) as views:
            began = time.process_time()
            made = evidence_learner().refine(data, seed=seed, device=device)
        spent = {"cpu_seconds": time.process_time() - began, "search": made.search}
        assert made.probabilities is not None
        yield {"accuracy": accuracy(data, made.probabilities), **spent}
    yield from recalls(VIEWS, views)


@contextmanager
def searching(limit: int) -> Iterator[list[Tensor]]:
    """Searches are exact up to so many rows, and these are gathered."""
    real, seen = Search.of, []

    def of(rows: Tensor, exact: int | None = None) -> Search:
        if exact is None:
            seen.append(rows)
        return real(rows, limit if exact is None else exact)

    with mock.patch.object(Search, "of", of):
        yield seen


def recalls(names: Sequence[str], views: Iterable[Tensor]) -> Iterator[Row]:
    """Of each view: the share of the nearest that is found, and of the sum of their cosines."""
    for view, rows in zip(names, views, strict=True):
        if rows.shape[1] == 0:
            continue
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:QUERIES]
        drawn = drawn.to(rows.device)
        similar = rows[drawn] @ rows.T
        similar[torch.arange(len(drawn)), drawn] = -1
        exact = similar.topk(NEAREST, 1)[0]
        began = time.process_time()
        found = by_lists(rows)[drawn]
        right = (found >= exact[:, -1:] - 1e-5) & (found > 1e-4)
        yield {
            "view": view,
            "way": "lists",
            "nodes": len(rows),
            "recall": float(right.sum() / (exact > 1e-4).sum()),
            "cosine": float(found.clamp_min(0).sum() / exact.clamp_min(0).sum()),
            "cpu_seconds": time.process_time() - began,
        }


def by_lists(rows: Tensor) -> Tensor:
    """Cosines of the nearest others: [N, D] -> [N, 8]."""
    search = Search.of(rows, exact=0)
    here, there = torch.cat([search.nearest(some, NEAREST) for some in node_blocks(rows)], 1)
    order = here.argsort(stable=True)
    here, there = here[order], there[order]
    counts = torch.bincount(here, minlength=len(rows))
    rank = torch.arange(len(here), device=rows.device) - (counts.cumsum(0) - counts)[here]
    found = rows.new_full((len(rows), NEAREST), -1.0)
    found[here, rank] = ops.dots(rows, torch.stack([here, there]))
    return found


# link


def link(name: str, seed: int, device: torch.device) -> Iterator[Row]:
    data = graph(name, seed)
    problem = known_graph(data, device)
    for solver, most in (("exact", len(data.y)), ("conjugate gradients", 0)):
        began = time.process_time()
        with (
            mock.patch.dict(channels.MOST_LABELS, {device.type: most}),
            mock.patch.object(channels, "NARROW", 0),
        ):
            made = channels.ridge_channel(problem, problem.neighbours)
        spent = time.process_time() - began
        right = {"labels": len(problem.labelled), "accuracy": accuracy(data, made.probabilities)}
        yield {"solver": solver, **right, "cpu_seconds": spent}


PARTS = {
    "lists": (lists, ("dblp", "facebook-pages", *RANDOM)),
    "link": (link, ("acm", "uai2010", "flickr", "facebook-rice31-year", "amazon-computers")),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--targets", nargs="+", help="instead of the usual ones")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/size_checks.jsonl"))
    args = parser.parse_args()
    device = resolve_device(args.device)
    for part in args.parts:
        check, usual = PARTS[part]
        for seed in range(args.seeds):
            for name in args.targets or usual:
                found = ({"part": part, "target": name, "seed": seed} | row
                         for row in check(name, seed, device))  # fmt: skip
                write_rows(args.out, "size_checks", device, found)


if __name__ == "__main__":
    main()
