"""Nearest rows by inner product: exact by blocks, or in inverted lists where there are many.

A list holds the rows that are nearest to one centroid, and a query looks through the lists of the
centroids that are nearest to it. These are found in the same way, so that time per query does not
grow with the rows. Centroids begin at random rows (pivots) and are moved by k-means of a sample;
the generator is fixed: what is found depends on the rows alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

EXACT = {"cpu": 2**14, "cuda": 2**17}
"""Up to so many rows all of them are compared, by device: that is what takes less time there."""
LIST = 128
"""Rows of a list, on average."""
PROBES = 16
"""Lists that a query looks through."""
CLOSEST = 4
"""Where only the nearest row is wanted, as in k-means."""
CENTROIDS = 1024
"""Up to so many, a query is compared with all of them."""
SAMPLE, MOVES = 32, 5  # rows per list that centroids are moved by, and how often
SIMILARITIES = {"cpu": 2**24, "cuda": 2**28}  # in memory at once


@dataclass(frozen=True, eq=False)
class Search:
    """Rows in which nearest ones are looked for.

    Shapes:
        rows [N, D]; of L lists: centroids [L, D], members [N] list by list, starts [L + 1]
    """

    rows: Tensor
    centroids: "Search | None" = None
    members: Tensor | None = None
    starts: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor, exact: int | None = None) -> "Search":
        """Exact up to ``exact`` rows, by default as many as pays on this device."""
        exact = EXACT[rows.device.type] if exact is None else exact
        if len(rows) <= exact or rows.shape[1] == 0:
            return cls(rows)
        count = -(-len(rows) // LIST)
        drawn = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        sample = rows[drawn[: SAMPLE * count].to(rows.device)]
        centroids = cls.of(sample[:count], CENTROIDS)
        for _ in range(MOVES):
            nearest = centroids.closest(sample, 1)[1][:, 0]
            moved = torch.zeros_like(centroids.rows).index_add_(0, nearest, sample)
            empty = moved.norm(dim=1, keepdim=True) < 1e-6
            moved = torch.where(empty, centroids.rows, F.normalize(moved, dim=1))
            centroids = cls.of(moved, CENTROIDS)
        own = torch.cat([centroids.closest(part, 1)[1][:, 0] for part in torch.split(rows, 2**16)])
        starts = F.pad(torch.bincount(own, minlength=count).cumsum(0), (1, 0))
        return cls(rows, centroids, own.argsort(stable=True), starts)

    def __str__(self) -> str:
        if self.centroids is None:
            return "exact"
        return f"{PROBES} of {len(self.centroids.rows):,} lists"

    def nearest(self, nodes: range, k: int) -> Tensor:
        """Each of some rows and its ``k`` nearest others, as far as the product is positive.

        Shapes:
            n rows -> [2, <= n k]
        """
        k = min(k, len(self.rows) - 1)
        here = torch.arange(nodes.start, nodes.stop, device=self.rows.device)
        if k < 1 or self.rows.shape[1] == 0:
            return torch.stack([here[:0], here[:0]])
        value, there = self.closest(self.rows[nodes.start : nodes.stop], k, here)
        pairs = torch.stack([here[:, None].expand_as(there), there])
        return pairs[:, value > 1e-4]

    def closest(self, queries: Tensor, k: int, but: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The largest products and whose they are; -1 where too few are found.

        Args:
            queries: What is looked for.
            k: How many of each.
            but: The row that each query must not find, if any.

        Shapes:
            queries [n, D], but [n] -> [n, k], [n, k]
        """
        if self.centroids is not None:
            return self._in_lists(queries, k, but)
        found = []
        every = torch.arange(len(queries), device=queries.device)
        for some in torch.split(every, max(1, SIMILARITIES[queries.device.type] // len(self.rows))):
            similar = queries[some] @ self.rows.T
            if but is not None:
                similar[some - some[0], but[some]] = -1
            found.append(similar.topk(k, 1))
        return torch.cat([f[0] for f in found]), torch.cat([f[1] for f in found])

    def _in_lists(self, queries: Tensor, k: int, but: Tensor | None) -> tuple[Tensor, Tensor]:
        """List by list, with all queries that look through it."""
        assert self.centroids is not None
        assert self.members is not None
        assert self.starts is not None
        probes = min(PROBES if k > 1 else CLOSEST, len(self.centroids.rows))
        asked = self.centroids.closest(queries, probes)[1].flatten()  # [n * probes]
        order = asked.argsort(stable=True)
        query = order // probes
        asking = torch.bincount(asked, minlength=len(self.centroids.rows)).tolist()
        wanted = k if but is None else k + 1
        values = queries.new_full((len(order), wanted), -1.0)
        places = torch.zeros(len(order), wanted, dtype=torch.int64, device=queries.device)
        start, starts = 0, self.starts.tolist()
        for number, count in enumerate(asking):
            members = self.members[starts[number] : starts[number + 1]]
            if count and len(members):
                some = slice(start, start + count)
                width = min(wanted, len(members))
                best = (queries[query[some]] @ self.rows[members].T).topk(width, 1)
                values[some, :width], places[some, :width] = best[0], members[best[1]]
            start += count
        back = order.argsort()
        values, places = (t[back].view(len(queries), -1) for t in (values, places))
        if but is not None:
            values[places == but[:, None]] = -1
        best = values.topk(k, 1)
        return best[0], places.gather(1, best[1])
