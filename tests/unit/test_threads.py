"""Each operation of ranks that are threads, against its definition."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mpidec import Network, Rows, Topology, compressor
from mpidec.compress import COMPRESSORS
from mpidec.transport.threads import ThreadTransport, run
from support.problems import asymmetric

pytestmark = pytest.mark.timeout(60)

RANKS = pytest.mark.parametrize("n", [1, 2, 3, 5])
SIZES = [40, 7, 1, 16]
OPTIONS = {"top-k": {"ratio": 0.2}, "random-k": {"ratio": 0.2}, "qsgd": {"bits": 3}}
LARGE = 10_000_000  # bytes


def content(rank: int, nbytes: int) -> torch.Tensor:
    """Bytes by which their sender and length can be told."""
    return (torch.arange(251) * 7 + rank * 31 + nbytes).to(torch.uint8).repeat(nbytes // 251 + 1)[:nbytes]


def graph_of(name: str, n: int) -> Topology:
    return asymmetric(n) if name == "asymmetric" else Topology.named(name, n)


@RANKS
@pytest.mark.parametrize("graph", ["ring", "complete", "asymmetric"])
@pytest.mark.parametrize("nbytes", [0, 1, 1000, LARGE])
def test_exchange_arrives_whole(n: int, graph: str, nbytes: int) -> None:
    topology = graph_of(graph, n)

    def work(ranks: ThreadTransport) -> None:
        peers = topology.neighbors(ranks.rank)
        exchange = ranks.exchange(content(ranks.rank, nbytes), topology.listeners(ranks.rank), peers)
        received = exchange.wait()
        assert list(received) == peers
        assert all(torch.equal(buffer, content(peer, nbytes)) for peer, buffer in received.items())
        exchange.release()

    run(work, n)


@RANKS
def test_what_was_posted_is_what_arrives_and_in_order_of_the_posts(n: int) -> None:
    """The sender overwrites its tensor after each post, and the receiver waits for the last one first."""

    def work(ranks: ThreadTransport) -> None:
        others = [rank for rank in range(n) if rank != ranks.rank]
        send, pending = torch.empty(3, dtype=torch.uint8), []
        for number in range(20):
            send.fill_(10 * number + ranks.rank)
            pending.append(ranks.exchange(send, others, others))
        send.fill_(255)
        for number, exchange in reversed(list(enumerate(pending))):
            received = exchange.wait()
            assert exchange.wait() is received
            assert {peer: buffer.tolist() for peer, buffer in received.items()} == {
                peer: [10 * number + peer] * 3 for peer in others
            }

    run(work, n)


def test_a_received_buffer_is_the_receivers_own() -> None:
    def work(ranks: ThreadTransport) -> tuple[int, list[int]]:
        others = [rank for rank in range(3) if rank != ranks.rank]
        received = ranks.exchange(torch.tensor([ranks.rank], dtype=torch.uint8), others, others).wait()
        gathered = ranks.all_gather(torch.tensor([ranks.rank], dtype=torch.uint8))
        for buffer in (*received.values(), *gathered):
            buffer += 10 * (ranks.rank + 1)
        ranks.barrier()
        return sum(buffer.item() for buffer in received.values()), [buffer.item() for buffer in gathered]

    for rank, (exchanged, gathered) in enumerate(run(work, 3)):
        added = 10 * (rank + 1)
        assert exchanged == 3 - rank + 2 * added
        assert gathered == [added, 1 + added, 2 + added]


@RANKS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (LARGE // 8,)])
def test_sums_run_in_rank_order(n: int, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Summands of mixed magnitude: another order rounds to other bits."""
    draws = torch.Generator().manual_seed(1)
    everyone = [
        (torch.randn(shape, generator=draws) * 10.0 ** random.Random(r).randint(0, 6)).to(dtype) for r in range(n)
    ]
    expected = everyone[0].clone()
    for other in everyone[1:]:
        expected += other

    def work(ranks: ThreadTransport) -> torch.Tensor:
        values = everyone[ranks.rank].clone()
        ranks.all_reduce(values)
        total = values.clone()
        values.zero_()  # what a rank does with its own is seen by nobody
        return total

    assert all(torch.equal(values, expected) for values in run(work, n))


@RANKS
def test_strided_values_are_summed_in_place_and_so_are_those_that_need_a_gradient(n: int) -> None:
    def work(ranks: ThreadTransport) -> None:
        matrix, parameter = torch.ones(4, 6), torch.nn.Parameter(torch.ones(2))
        ranks.all_reduce(matrix.T)
        ranks.all_reduce(parameter)
        assert torch.equal(matrix, torch.full((4, 6), float(n)))
        assert parameter.tolist() == [n, n]

    run(work, n)


@RANKS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (LARGE // 8,)])
def test_broadcast_from_every_root(n: int, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def work(ranks: ThreadTransport) -> None:
        for root in range(n):
            values = torch.full(shape, (ranks.rank + root) % 2).to(dtype)
            ranks.broadcast(values, root)
            sent = torch.full(shape, 2 * root % 2).to(dtype)
            values.logical_not_()  # what the root does with its own is seen by nobody
            assert torch.equal(values, sent.logical_not_())

    run(work, n)


@RANKS
def test_gathered_buffers_flags_and_the_barrier(n: int) -> None:
    arrived: list[int] = []

    def work(ranks: ThreadTransport) -> None:
        for nbytes in (0, 77, LARGE):
            gathered = ranks.all_gather(mine := content(ranks.rank, nbytes))
            mine.zero_()
            assert all(torch.equal(buffer, content(rank, nbytes)) for rank, buffer in enumerate(gathered))
            assert len(gathered) == n
        flags = torch.tensor([ranks.rank == 0, ranks.rank == n - 1, False])
        ranks.all_reduce_flags(flags)
        assert flags.tolist() == [True, True, False]
        ranks.all_reduce_flags(none := torch.zeros(0, dtype=torch.bool))
        assert none.numel() == 0
        time.sleep(0.02 * ranks.rank)
        arrived.append(ranks.rank)
        ranks.barrier()
        assert len(arrived) == n

    run(work, n)


@RANKS
def test_objects_are_copies(n: int) -> None:
    def work(ranks: ThreadTransport) -> None:
        mine = {"rank": ranks.rank, "tensor": torch.full((2,), float(ranks.rank))}
        everyone = ranks.all_gather_objects(mine)
        assert [one["rank"] for one in everyone] == list(range(n))
        mine["tensor"].fill_(-1)
        ranks.barrier()
        assert [one["tensor"].tolist() for one in everyone] == [[rank, rank] for rank in range(n)]
        sent = ranks.broadcast_object([ranks.rank], root=n - 1)
        sent.append(ranks.rank)
        ranks.barrier()
        assert sent == [n - 1, ranks.rank]

    run(work, n)


@RANKS
def test_late_ranks_land_on_the_same_bits(n: int) -> None:
    """A hundred rounds of everything, on time and with random sleeps."""

    def rounds(sleeps: bool) -> Callable[[ThreadTransport], torch.Tensor]:
        def work(ranks: ThreadTransport) -> torch.Tensor:
            comm, C, late = Network(ranks, Topology.named("ring", n)), compressor("sign"), random.Random(ranks.rank)
            x = torch.randn(64, generator=torch.Generator().manual_seed(ranks.rank))
            for step in range(1, 101):
                comm.step = step
                if sleeps and late.random() < 0.1:
                    time.sleep(late.random() / 200)
                first, second = comm.mix_start(C.encode(x)), comm.mix_start(C.encode(2 * x))
                second.add_to(x, 0.1)
                first.add_to(x, 0.1)
                total = x.clone()
                ranks.all_reduce(total)
                x += total / 1000
            return x

        return work

    for on_time, late in zip(run(rounds(False), n), run(rounds(True), n), strict=True):
        assert torch.equal(on_time, late)


@RANKS
@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("graph", ["ring", "asymmetric"])
def test_mix_and_gathered_sums_equal_rows(n: int, name: str, graph: str) -> None:
    topology, options = graph_of(graph, n), OPTIONS.get(name, {})
    X = torch.randn(n, sum(SIZES), generator=torch.Generator().manual_seed(1))

    def bound(comm: Any):
        made = compressor(name, **options)
        made.bind(SIZES, comm.noise)
        return made

    def work(ranks: ThreadTransport) -> tuple[torch.Tensor, torch.Tensor, int]:
        comm = Network(ranks, topology, seed=3)
        C, out, total = bound(comm), torch.ones(sum(SIZES)), torch.zeros(sum(SIZES))
        for comm.step in (1, 2, 3):
            comm.mix(C.encode(X[ranks.rank].clone()), out, alpha=0.3)
            comm.sum(C.encode(X[ranks.rank].clone()), total, alpha=1 / n)
        return out, total, comm.bytes_sent

    rows = Rows(topology, seed=3)
    C, out, total = bound(rows), torch.ones_like(X), torch.zeros_like(X)
    for rows.step in (1, 2, 3):
        rows.mix(C.encode(X), out, alpha=0.3)
        rows.sum(C.encode(X), total, alpha=1 / n)
    mixed, summed, sent = zip(*run(work, n), strict=True)
    assert torch.equal(torch.stack(mixed), out)
    assert all(torch.equal(one, summed[0]) for one in summed)
    torch.testing.assert_close(torch.stack(summed), total, rtol=0, atol=1e-5 if C.summable else 0)
    assert sum(sent) == rows.bytes_sent
