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
TOGETHER = {"cpu": 0, "cuda": 2**25}  # numbers that a product of many lists reads; 0: one by one
PART, TIE = 2**13, 1e-6  # rows that go through lists one by one, and what is as near
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
        one_by_one = self.starts is not None and not TOGETHER[device]
        width = len(self.rows) if self.starts is None else PROBES * LONGEST
        parts = torch.split(every, PART if one_by_one else max(1, SIMILARITIES[device] // width))
        find = partial(self._one_by_one if one_by_one else self._pairs, k=k)
        if threads == 1 or not one_by_one:
            found = [find(part) for part in parts]
        else:  # products of a list are too small to be shared out, so parts are
            try:
                with ThreadPoolExecutor(threads, "", torch.set_num_threads, (1,)) as pool:
                    found = list(pool.map(find, parts))
            finally:
                torch.set_num_threads(threads)  # a thread sets what new ones begin with
        return self.members[torch.cat(found, 1)]

    @torch.no_grad()
    def _pairs(self, here: Tensor, k: int) -> Tensor:
        """Places and the ``k`` nearest of each: [n] -> [2, <= n k]."""
        value, there = self._looked_up(here, k + 1)
        value[there == here[:, None]] = -1
        value, best = value.topk(min(k, value.shape[1]), 1)
        pairs = torch.stack([here[:, None].expand_as(best), there.gather(1, best)])
        return pairs[:, value > LEAST]

    def _looked_up(self, here: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The largest products of rows at some places, and where: [n] -> [n, k], [n, k]."""
        queries = self.rows[here[0] : here[-1] + 1]
        if self.starts is None or self.around is None or self.centroids is None:
            return largest(queries @ self.rows.T, k)
        own = torch.searchsorted(self.starts, here, right=True) - 1
        near = queries.new_empty(len(here), self.around.shape[1])
        for lists, asking in _grouped(own, queries.shape[1]):
            _fill(near, asking, queries[asking] @ self.centroids[self.around[lists]].mT)
        probes = min(PROBES, near.shape[1])
        asked = self.around[own].gather(1, near.topk(probes, 1)[1])  # [n, P]
        similar = queries.new_zeros(asked.numel(), LONGEST)
        for lists, asking in _grouped(asked.flatten(), queries.shape[1]):
            places, are = _laid_out(self.starts[lists], self.starts[lists + 1])
            members = self.rows[places].masked_fill_(~are[:, :, None], 0)
            _fill(similar, asking, queries[asking // probes] @ members.mT)
        value, column = largest(similar.view(len(here), -1), k)
        return value, self.starts[asked.gather(1, column // LONGEST)] + column % LONGEST

    @torch.no_grad()
    def _one_by_one(self, here: Tensor, k: int) -> Tensor:
        """As :meth:`_pairs`, one list at a time: what is above the floor of a row is kept."""
        assert self.starts is not None
        queries, starts = self.rows[here[0] : here[-1] + 1], self.starts.tolist()
        own = torch.searchsorted(self.starts, here, right=True) - 1
        lists, floor = self._probes(queries, own, k)
        asked, order = lists.flatten().sort(stable=True)
        asker, floor = order // lists.shape[1], floor.view(-1, 1).index_select(0, order)
        found = []
        for number, asking in _runs(asked):
            first, stop = starts[number : number + 2]
            similar = (queries.index_select(0, asker[asking]) @ self.rows[first:stop].T).numpy()
            hit = np.flatnonzero(similar > floor[asking].numpy())
            row, column = np.divmod(hit, stop - first)
            found.append((row + asking.start, column + first, similar.reshape(-1)[hit]))
        parts = (np.concatenate(part) for part in zip(*found, strict=True))
        asks, there, value = (torch.from_numpy(part) for part in parts)
        who = asker.index_select(0, asks)
        value[there == here.index_select(0, who)] = 0  # itself
        by_value = ((who << 31) - value.float().view(torch.int32)).argsort(stable=True)
        count = torch.bincount(who, minlength=len(here))[:, None]
        place = count.cumsum(0) - count + torch.arange(k)
        best = by_value[place[torch.arange(k) < count]]
        best = best[value[best] > LEAST]
        return torch.stack([here[who[best]], there[best]])

    def _probes(self, queries: Tensor, own: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The lists that rows look through, their own first, and a floor for each.

        It lets through the ``k`` best of the own list, and of others what is above these.

        Shapes:
            [n, D], sorted [n] -> [n, P], [n, P]
        """
        assert self.starts is not None
        assert self.around is not None
        assert self.centroids is not None
        near = queries.new_empty(len(own), self.around.shape[1])
        floor = queries.new_full((len(own), 1), LEAST)
        for number, asking in _runs(own):
            centroids = self.centroids.index_select(0, self.around[number])
            torch.mm(queries[asking], centroids.T, out=near[asking])
            similar = queries[asking] @ self.rows[self.starts[number] : self.starts[number + 1]].T
            if similar.shape[1] > k:  # the row itself is among them
                kth = np.partition(similar.numpy(), -k - 1, axis=1)[:, -k - 1, None]
                floor[asking] = torch.from_numpy(kth).clamp_min_(LEAST)
        around = self.around.index_select(0, own)
        near[around == own[:, None]] = -2
        rest = max(near.shape[1] - PROBES, 0) + 1
        chosen = torch.from_numpy(np.argpartition(near.numpy(), rest - 1, axis=1)[:, rest:])
        lists = torch.cat([own[:, None], around.gather(1, chosen)], 1)
        return lists, torch.cat([floor - TIE, (floor + TIE).expand_as(chosen)], 1)


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


def _grouped(asked: Tensor, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Lists that are asked for, several at a time, and who asks: [n] -> [G], [G, q].

    The last one who asks for a list stands there as often as makes rows equally long.
    """
    order = asked.argsort(stable=True)
    lists, counts = torch.unique_consecutive(asked[order], return_counts=True)
    ends = counts.cumsum(0)
    by_count = counts.argsort(stable=True)
    longest, at, most = counts[by_count].tolist(), 0, TOGETHER[asked.device.type] // width
    while at < len(longest):
        stop = at + 1
        while stop < len(longest) and longest[stop] * (stop + 1 - at) <= most:
            stop += 1
        some = by_count[at:stop]
        yield lists[some], order[_laid_out(ends[some] - counts[some], ends[some])[0]]
        at = stop


def _laid_out(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """Ranges, with the last number repeated up to one length; and what is none of these.

    Shapes:
        [G], [G] -> [G, longest], [G, longest]
    """
    slot = torch.arange(int((stop - start).max()), device=start.device)
    number = start[:, None] + slot
    return torch.minimum(number, stop[:, None] - 1), number < stop[:, None]


def _fill(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Write to the first columns of some rows: [n, w], [G, q], [G, q, m <= w]."""
    table[:, : values.shape[2]].index_copy_(0, rows.flatten(), values.flatten(0, 1))


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
