"""What inverted lists, the search of large graphs, miss, on graphs that an exact search can do.

    python benchmarks/size_checks.py [--targets dblp facebook-pages noise clusters]

View by view: the share of the 8 nearest rows that lists find, and of the sum of their cosines; and
accuracy from 20 labels per class with either search. Graphs are open ones (``open/*.npz`` of the
data root); noise and clusters are random rows. Rows are added to ``results/size_checks.jsonl``.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from graphglow.device import resolve_device
from graphglow.evidence.views import NEAREST
from graphglow.graph.load import data_folder
from graphglow.lab.open_methods import accuracy_on
from graphglow.lab.open_suite import few_labels, find_targets
from graphglow.linalg import sparse as ops
from graphglow.linalg.neighbours import Search
from graphglow.pretrained import evidence_learner
from measuring import RESULTS, Row, write_rows

VIEWS = ("x", "ax", "aax", "link", "answers", "sx", "ssx", "answers again")
"""Rows in which a refinement looks for the nearest, in their order."""
QUERIES = 4096
"""Rows, drawn at random, whose nearest are compared with the exact ones."""
RANDOM: dict[str, Callable[[torch.Generator], Tensor]] = {
    "noise": lambda g: torch.randn(50_000, 100, generator=g),
    "clusters": lambda g: (
        torch.randn(3000, 100, generator=g)[torch.randint(3000, (150_000,), generator=g)]
        + 0.3 * torch.randn(150_000, 100, generator=g)
    ),
}


def check(name: str, seed: int, device: torch.device, root: Path) -> Iterator[Row]:
    facts = {"part": "lists", "target": name, "seed": seed}
    if name in RANDOM:
        rows = F.normalize(RANDOM[name](torch.Generator().manual_seed(seed)), dim=1)
        yield from (facts | row for row in recalls([("rows", rows.to(device))]))
        return
    (target,) = (one for one in find_targets(root) if one.name == name)
    data = few_labels(target.load(root, seed), 20, seed)
    assert data is not None
    for limit in (len(data.y), 0):
        with searching(limit) as views:
            began = time.process_time()
            made = evidence_learner().refine(data, seed=seed, device=device)
        spent = {"cpu_seconds": time.process_time() - began, "search": made.known.search}
        assert made.probabilities is not None
        yield (
            facts
            | {"accuracy": accuracy_on(made.probabilities.cpu(), data, data.test_mask)}
            | spent
        )
    yield from (facts | row for row in recalls(zip(VIEWS, views, strict=True)))


@contextmanager
def searching(limit: int) -> Iterator[list[Tensor]]:
    """Make searches exact up to so many rows, and gather these."""
    real, seen = Search.of, []

    def of(rows: Tensor, exact: int | None = None) -> Search:
        if exact is None:
            seen.append(rows)
        return real(rows, limit if exact is None else exact)

    with mock.patch.object(Search, "of", of):
        yield seen


def recalls(views: Iterable[tuple[str, Tensor]]) -> Iterator[Row]:
    for view, rows in views:
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
    here, there = search.nearest(range(len(rows)), NEAREST)
    order = here.argsort(stable=True)
    here, there = here[order], there[order]
    counts = torch.bincount(here, minlength=len(rows))
    rank = torch.arange(len(here), device=rows.device) - (counts.cumsum(0) - counts)[here]
    found = rows.new_full((len(rows), NEAREST), -1.0)
    found[here, rank] = ops.dots(rows, torch.stack([here, there]))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=["dblp", "facebook-pages", *RANDOM])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    place = resolve_device(args.device)
    for seed in range(args.seeds):
        for name in args.targets:
            rows = check(name, seed, place, data_folder(args.data_root))
            write_rows(RESULTS / "size_checks.jsonl", "size_checks", place, rows)
