"""Sums and swaps with their gradients, what they count, and what happens when a rank is lost."""

import os
import time

import pytest
import torch
from two_ranks import in_processes

from graphglow.errors import InputError
from graphglow.training.distributed import RankLostError, Ranks, join, world_size

pytestmark = pytest.mark.slow
SIZE = 3
SENDS = torch.tensor([[0, 2, 1], [0, 1, 0], [3, 0, 2]])
"""Rows that rank i sends to rank j."""


def own(rank, *shape):
    """Numbers that only this rank has."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def collectives(ranks):
    rank = ranks.rank
    x = own(rank, 4, 2).requires_grad_()
    summed = ranks.total(x)
    after_sum = ranks.traffic.sent
    (summed * own(10 + rank, 4, 2)).sum().backward()
    both_ways = ranks.traffic.sent
    rows = own(20 + rank, int(SENDS[rank].sum()), 2).requires_grad_()
    got = ranks.swap(rows, SENDS[rank].tolist(), SENDS[:, rank].tolist())
    swapped = ranks.traffic.sent - both_ways
    (got * own(30 + rank, *got.shape)).sum().backward()
    gathered = ranks.gather(torch.tensor([rank, 7]))
    words = ranks.texts("x" * rank), ranks.texts("")
    sent = [ranks.sent_by(source, bytes([rank, 1]) * 2 * rank) for source in range(SIZE)]
    return {
        "words": words,
        "sent": sent,
        "sum": summed.detach(),
        "sum_grad": x.grad,
        "bytes": (after_sum, both_ways, swapped),
        "swap": got.detach(),
        "swap_grad": rows.grad,
        "gathered": gathered,
    }


def lost_twice(rank, size, folder):
    """First rank 1 is late, then it dies; the others say what they saw, and after how long."""
    with join("cpu", timeout_seconds=60, init_method=(folder / "a").as_uri(), rank=rank, size=size):
        pass  # all are there, so that the clocks below start together
    seen = []
    for name, timeout in (("late", 2.0), ("dead", 60.0)):
        began = time.monotonic()
        try:
            with join(
                "cpu",
                timeout_seconds=timeout,
                init_method=(folder / name).as_uri(),
                rank=rank,
                size=size,
            ) as ranks:
                began = time.monotonic()
                if rank == 1 and name == "dead":
                    os._exit(3)
                if rank == 1:
                    time.sleep(5)
                ranks.total(torch.ones(3))
        except RankLostError as error:
            seen.append((name, str(error), time.monotonic() - began))
        if torch.distributed.is_initialized() and name == "late":
            torch.distributed.destroy_process_group()
    return seen


def together(rank, size, folder):
    meeting = (folder / "meeting").as_uri()
    with join("cpu", timeout_seconds=60, init_method=meeting, rank=rank, size=size) as ranks:
        found = collectives(ranks)
    return found, lost_twice(rank, size, folder)


@pytest.fixture(scope="module")
def answers():
    return in_processes(together, SIZE)


@pytest.fixture(scope="module")
def survivors(answers):
    assert isinstance(answers[0], tuple), answers[0]
    assert isinstance(answers[2], tuple), answers[2]
    return {rank: answers[rank][0] for rank in (0, 2)}


def test_a_sum_is_the_same_on_all_ranks_and_so_is_its_gradient(survivors):
    expected = sum(own(rank, 4, 2) for rank in range(SIZE))
    gradient = sum(own(10 + rank, 4, 2) for rank in range(SIZE))
    for found, _ in survivors.values():
        torch.testing.assert_close(found["sum"], expected)
        torch.testing.assert_close(found["sum_grad"], gradient)
    assert torch.equal(survivors[0][0]["sum"], survivors[2][0]["sum"])


def test_rows_go_to_whom_they_are_sent_and_gradients_come_back(survivors):
    sent = [own(20 + rank, int(SENDS[rank].sum()), 2) for rank in range(SIZE)]
    split = [torch.split(rows, SENDS[rank].tolist()) for rank, rows in enumerate(sent)]
    weight = [own(30 + rank, int(SENDS[:, rank].sum()), 2) for rank in range(SIZE)]
    back = [torch.split(rows, SENDS[:, rank].tolist()) for rank, rows in enumerate(weight)]
    for rank, (found, _) in survivors.items():
        assert torch.equal(found["swap"], torch.cat([split[s][rank] for s in range(SIZE)]))
        assert torch.equal(found["swap_grad"], torch.cat([back[s][rank] for s in range(SIZE)]))
        assert found["gathered"].tolist() == [[0, 7], [1, 7], [2, 7]]


def test_words_and_bytes_are_the_same_on_all_ranks(survivors):
    for found, _ in survivors.values():
        assert found["words"] == (["", "x", "xx"], ["", "", ""])
        assert found["sent"] == [b"", bytes([1, 1]) * 2, bytes([2, 1]) * 4]


def test_bytes_are_counted_as_they_are_sent(survivors):
    ring = 2 * (SIZE - 1) / SIZE
    joined = ring * 4  # one float32, when the ranks met
    for rank, (found, _) in survivors.items():
        after_sum, both_ways, swapped = found["bytes"]
        assert after_sum == pytest.approx(joined + ring * 4 * 2 * 8)
        assert both_ways == pytest.approx(joined + 2 * ring * 4 * 2 * 8)
        assert swapped == (int(SENDS[rank].sum()) - int(SENDS[rank, rank])) * 2 * 8


def test_a_rank_that_is_late_or_dead_ends_the_others_with_a_sentence(answers, survivors):
    assert answers[1] == "ended without an answer"
    for rank, (_, seen) in survivors.items():
        assert [name for name, _, _ in seen] == ["late", "dead"]
        for _, sentence, _ in seen:
            assert f"rank {rank} of 3 lost another one" in sentence
            assert "/" not in sentence  # no paths of those who built the network library
        late, dead = (after for _, _, after in seen)
        assert "must answer within 2 s" in seen[0][1] or late < 2  # the other one was first
        assert "must answer within" not in seen[1][1]  # it was known at once
        assert 1 < late < 8
        assert dead < 15


def test_alone_nothing_is_sent_and_no_group_is_needed():
    ranks, x = Ranks(), torch.ones(2, 2)
    assert ranks.total(x) is x
    assert ranks.swap(x, [2], [2]) is x
    assert ranks.gather(x).shape == (1, 2, 2)
    ranks.wait()
    assert ranks.traffic.sent == 0


def test_without_torchrun_a_process_is_alone(monkeypatch):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert world_size() == 1
    with join("cpu") as ranks:
        assert (ranks.rank, ranks.size, ranks.timeout_seconds) == (0, 1, 600)
    monkeypatch.setenv("GRAPHGLOW_RANK_TIMEOUT", "12.5")
    with join("cpu") as ranks:
        assert ranks.timeout_seconds == 12.5


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "1e30"])
def test_a_bad_timeout_is_refused(monkeypatch, text):
    monkeypatch.setenv("GRAPHGLOW_RANK_TIMEOUT", text)
    with pytest.raises(InputError, match="GRAPHGLOW_RANK_TIMEOUT must be a number of seconds"):
        join("cpu").__enter__()


def test_a_bad_world_size_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(InputError, match=r"WORLD_SIZE must be a whole number.*got 'two'"):
        world_size()
