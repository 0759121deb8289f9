"""Nearest rows: exact by blocks, or by inverted lists where there are many.

A list holds rows that lie together, by k-means: of cells where there are many rows, and of lists
within a cell. A row is compared with the lists of the centroids nearest to it, so time per row does
not grow with their number. Lists lie one after another in memory and rows are taken in that order,
so that those that look through one list do so together. Draws are fixed: the result depends on the
rows alone.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

NEIGHBOURS = 10
"""Nodes that each node of a graph without edges is joined to."""
EXACT = {"cpu": 2**14, "cuda": 2**17}
"""Up to so many rows all of them are compared, by device: that is what takes less time there."""
LIST, LONGEST = 128, 256
"""Rows of a list, on average and at most."""
CELL = 512
"""Lists of a cell, on average."""
PROBES = 16
"""Lists that a row looks through."""
AROUND = 128
"""Lists that a row chooses from: those nearest to its own, by centroid."""
SAMPLE, MOVES = 32, 5  # rows per centroid that centroids are moved by, and how often
LEAST = 1e-4  # products of near rows are above it
SIMILARITIES = {"cpu": 2**21, "cuda": 2**28}  # in memory at once, of a CPU in its cache
PART = {"cpu": 2**13, "cuda": 2**18}  # rows that go through lists together
TIE = 1e-6  # what is as near
CHUNK = 16  # columns whose largest is looked at first


@dataclass(frozen=True, eq=False)
class Search:
    """Rows in which nearest ones are looked for.

    Shapes:
        rows [n, D] that are not zero, whose numbers were members [n]; with L lists, rows lie list
        by list: starts [L + 1], centroids [L, D], around [L, <= AROUND]
    """

    rows: Tensor
    members: Tensor
    many: int
    """Number of rows, with those of zeros, which are near to none."""
    starts: Tensor | None = None
    centroids: Tensor | None = None
    around: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor, exact: int | None = None) -> "Search":
        """Exact up to ``exact`` rows, by default as many as pays on this device."""
        exact = EXACT[rows.device.type] if exact is None else exact
        many = len(rows)
        members = (torch.linalg.vector_norm(rows, dim=1) > 0).nonzero()[:, 0]
        if len(members) < many:
            rows = rows[members]
        if len(rows) <= exact:
            return cls(rows, members, many)
        own, centroids = _lists(rows, torch.Generator().manual_seed(0))
        order = own.argsort(stable=True)
        starts, piece_of = _pieces(own[order])
        centroids = centroids[piece_of]
        near = min(AROUND, len(centroids))
        around = [(some @ centroids.T).topk(near, 1)[1] for some in torch.split(centroids, 2**12)]
        return cls(rows[order], members[order], many, starts, centroids, torch.cat(around))

    def __str__(self) -> str:
        if self.centroids is None:
            return "exact"
        return f"{PROBES} of {len(self.centroids):,} lists"

    def nearest(self, places: range, k: int) -> Tensor:
        """The rows at some places and the ``k`` nearest others of each, if the product is positive.

        A place is a position in :attr:`rows`. With lists, a row looks at some 2,000 others.

        Shapes:
            n places -> [2, <= n k]: numbers of rows
        """
        k = min(k, len(self.rows) - 1)
        every = torch.arange(len(self.rows), device=self.rows.device)[places.start : places.stop]
        if k < 1 or len(every) == 0:
            return every.new_empty(2, 0)
        device, threads = self.rows.device.type, torch.get_num_threads()
        step = PART[device] if self.starts is not None else SIMILARITIES[device] // len(self.rows)
        parts = torch.split(every, max(1, step))
        find = partial(self._compared if self.starts is None else self._looked_up, k=k)
        if self.starts is None or device != "cpu" or threads == 1:
            found = [find(part) for part in parts]
        else:  # products of a list are too small to be shared out, so parts are
            try:
                with ThreadPoolExecutor(threads, "", torch.set_num_threads, (1,)) as pool:
                    found = list(pool.map(find, parts))
            finally:
                torch.set_num_threads(threads)  # a thread sets what new ones begin with
        return self.members[torch.cat(found, 1)]

    @torch.no_grad()
    def _compared(self, here: Tensor, k: int) -> Tensor:
        """Places and the ``k`` nearest of all rows to each: [n] -> [2, <= n k]."""
        value, there = largest(self.rows[here[0] : here[-1] + 1] @ self.rows.T, k + 1)
        value[there == here[:, None]] = -1
        value, best = value.topk(k, 1)
        pairs = torch.stack([here[:, None].expand_as(best), there.gather(1, best)])
        return pairs[:, value > LEAST]

    @torch.no_grad()
    def _looked_up(self, here: Tensor, k: int) -> Tensor:
        """Places and the ``k`` nearest of the rows in some lists: [n] -> [2, <= n k].

        Of each list those are kept whose product is above a row's floor: the ``k`` best of its own
        list, and of other lists what is above these.
        """
        assert self.starts is not None
        assert self.around is not None
        assert self.centroids is not None
        queries, starts = self.rows[here[0] : here[-1] + 1], self.starts.tolist()
        own = torch.searchsorted(self.starts, here, right=True) - 1
        near = queries.new_empty(len(own), self.around.shape[1])
        floor = queries.new_full((len(own), 1), LEAST)
        for number, asking in _runs(own):
            torch.mm(queries[asking], self.centroids[self.around[number]].T, out=near[asking])
            similar = queries[asking] @ self.rows[starts[number] : starts[number + 1]].T
            if similar.shape[1] > k:  # the row itself is among them
                floor[asking] = _kth(similar, k + 1).clamp_min_(LEAST)
        around = self.around[own]
        near[around == own[:, None]] = 2  # its own list goes first
        chosen = around.gather(1, near.topk(min(PROBES, near.shape[1]), 1)[1])
        asked, order = chosen.flatten().sort(stable=True)
        asker = order // chosen.shape[1]
        floor = floor[asker, 0] + torch.where(asked == own[asker], -TIE, TIE)
        found = []
        for number, asking in _runs(asked):
            first, stop = starts[number : number + 2]
            similar = queries[asker[asking]] @ self.rows[first:stop].T
            hit = _places(similar > floor[asking, None])
            row = hit // (stop - first)
            found.append((asking.start + row, first + hit % (stop - first), similar.flatten()[hit]))
        asks, there, value = (torch.cat(part) for part in zip(*found, strict=True))
        who = asker[asks]
        value[there == here[who]] = 0  # itself
        by_value = ((who << 31) - value.float().view(torch.int32)).argsort(stable=True)
        count = torch.bincount(who, minlength=len(here))[:, None]
        each = torch.arange(k, device=here.device)
        best = by_value[(count.cumsum(0) - count + each)[each < count]]
        best = best[value[best] > LEAST]
        return torch.stack([here[who[best]], there[best]])


def _lists(rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The list of each row and the lists' centroids, in cells where there are many lists.

    Shapes:
        [n, D] -> [n], [L, D]
    """
    count = -(-len(rows) // LIST)
    few = _means(rows, count if count <= 2 * CELL else -(-count // CELL), generator)
    own = _closest(rows, few)
    sizes = torch.bincount(own, minlength=len(few)).tolist()
    if count <= 2 * CELL:
        return own, few
    means, first = [], 0
    for part in torch.split(own.argsort(stable=True), sizes):
        if len(part):
            if len(part) > 0.9 * len(rows):  # nearly all alike: cells would be cut without end
                some = _means(rows[part], CELL, generator)
                inside = _closest(rows[part], some)
            else:
                inside, some = _lists(rows[part], generator)
            own[part] = first + inside
            means.append(some)
            first += len(some)
    return own, torch.cat(means)


def _means(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Centroids of unit rows, by k-means of a sample: [N, D] -> [count, D]."""
    drawn = torch.randperm(len(rows), generator=generator)[: SAMPLE * count]
    sample = rows[drawn.to(rows.device)]
    means, number = sample[:count], torch.arange(count, device=rows.device)
    for _ in range(MOVES if count > 1 else 1):
        own = _closest(sample, means)
        if rows.is_cuda:  # where a sum by index has no fixed order
            moved = (number[:, None] == own).to(rows) @ sample
        else:
            moved = torch.zeros_like(means).index_add_(0, own, sample)
        empty = moved.norm(dim=1, keepdim=True) < 1e-6
        means = torch.where(empty, means, F.normalize(moved, dim=1))
    return means


def _closest(rows: Tensor, means: Tensor) -> Tensor:
    """The mean that each row is nearest to: [N, D], [M, D] -> [N]."""
    step = max(1, SIMILARITIES[rows.device.type] // len(means))
    products = (part @ means.T for part in torch.split(rows, step))
    if rows.is_cuda:
        return torch.cat([product.argmax(1) for product in products])
    return torch.from_numpy(np.concatenate([p.numpy().argmax(1) for p in products]))  # is quick


def _pieces(own: Tensor) -> tuple[Tensor, Tensor]:
    """Where lists begin, long ones cut, and whose piece each is: sorted [N] -> [L + 1], [L]."""
    lists, sizes = torch.unique_consecutive(own, return_counts=True)
    pieces = -(-sizes // LONGEST)
    number = torch.arange(int(pieces.sum()), device=own.device)
    number -= (pieces.cumsum(0) - pieces).repeat_interleave(pieces)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(pieces) + LONGEST * number
    return F.pad(starts, (0, 1), value=len(own)), lists.repeat_interleave(pieces)


def _runs(numbers: Tensor) -> Iterator[tuple[int, slice]]:
    """Each number and where it stands: sorted [n]."""
    values, counts = torch.unique_consecutive(numbers, return_counts=True)
    stops = counts.cumsum(0)
    runs = torch.stack([values, stops - counts, stops], 1).tolist()
    return ((value, slice(start, stop)) for value, start, stop in runs)


def _kth(values: Tensor, k: int) -> Tensor:
    """The ``k``-th largest number of each row: [n, m] -> [n, 1]."""
    if values.is_cuda:
        return values.topk(k, 1)[0][:, -1:]
    return torch.from_numpy(
        np.partition(values.numpy(), -k, axis=1)[:, -k, None]
    )  # ten times as fast


def _places(mask: Tensor) -> Tensor:
    """Where a table, read row by row, is true: [n, m] -> [h]."""
    return (
        mask.flatten().nonzero()[:, 0]
        if mask.is_cuda
        else torch.from_numpy(np.flatnonzero(mask.numpy()))
    )


def largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``topk(k, 1)`` in a fraction of its time: only chunks with a large entry are sorted.

    Shapes:
        [n, m] -> [n, k], [n, k]
    """
    k = min(k, rows.shape[1])
    chunks = rows.shape[1] // CHUNK
    if chunks < 2 * k:
        return rows.topk(k, 1)
    whole = rows[:, : chunks * CHUNK].reshape(-1, chunks, CHUNK)
    best = whole.amax(2).topk(k, 1)[1]
    column = (CHUNK * best[:, :, None] + torch.arange(CHUNK, device=rows.device)).flatten(1)
    rest = torch.arange(chunks * CHUNK, rows.shape[1], device=rows.device)
    column = torch.cat([column, rest.expand(len(rows), -1)], 1)
    value, place = rows.gather(1, column).topk(k, 1)
    return value, column.gather(1, place)


def nearest_to(among: Tensor, k: int, x: Tensor) -> Tensor:
    """The ``k`` rows of ``among`` nearest to each of x by cosine distance: [M, D] -> [M, k]."""
    from sklearn.neighbors import NearestNeighbors  # a second to import, and rarely needed

    # Between unit vectors the Euclidean order is the cosine order, and tree search applies.
    index = NearestNeighbors(n_neighbors=k).fit(F.normalize(among, dim=1).numpy())
    asked = F.normalize(x, dim=1).numpy()
    return torch.from_numpy(index.kneighbors(asked, return_distance=False))


def knn_edges(x: Tensor, k: int = NEIGHBOURS) -> Tensor:
    """Both directions of each node's ``k`` nearest others by cosine distance: [2, E], coalesced."""
    from sklearn.neighbors import kneighbors_graph

    if len(x) < 2 or k < 1:
        return torch.empty(2, 0, dtype=torch.int64)
    near = kneighbors_graph(F.normalize(x, dim=1).numpy(), min(k, len(x) - 1))
    either = near + near.T
    either.sort_indices()
    return torch.from_numpy(np.stack(either.nonzero()).astype(np.int64))
