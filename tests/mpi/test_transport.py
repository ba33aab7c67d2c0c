"""Bytes between real ranks."""

from __future__ import annotations

import random
import time

import pytest
import torch

from mpidec import Network, Sign, Topology, World
from mpidec.transport.mpi import MpiTransport

pytestmark = pytest.mark.mpi


def content(rank: int, nbytes: int) -> torch.Tensor:
    """Bytes by which their sender and length can be told."""
    return (torch.arange(nbytes) * 7 + rank * 31 + nbytes).to(torch.uint8)


@pytest.mark.parametrize("family", ["ring", "torus", "expander", "complete"])
@pytest.mark.parametrize("nbytes", [1, 1000, 70_000, 8_000_000])
def test_exchange_arrives_whole(world: World, family: str, nbytes: int) -> None:
    graph = Topology.named(family, world.size)
    exchange = world.transport.exchange(
        content(world.rank, nbytes), graph.listeners(world.rank), graph.neighbors(world.rank)
    )
    received = exchange.wait()
    assert sorted(received) == graph.neighbors(world.rank)
    for peer, buffer in received.items():
        assert torch.equal(buffer, content(peer, nbytes))
    exchange.release()


@pytest.mark.long
def test_64_megabytes_a_neighbour(world: World) -> None:
    graph = Topology.named("ring", world.size)
    exchange = world.transport.exchange(
        content(world.rank, 2**26), graph.listeners(world.rank), graph.neighbors(world.rank)
    )
    for peer, buffer in exchange.wait().items():
        assert torch.equal(buffer, content(peer, 2**26))


@pytest.mark.mpi(min_size=2)
def test_large_messages_are_split() -> None:
    transport = MpiTransport(largest=1000)
    peer = transport.rank ^ 1
    peers = [peer] if peer < transport.size else []
    received = transport.exchange(content(transport.rank, 4567), peers, peers).wait()
    assert all(torch.equal(buffer, content(source, 4567)) for source, buffer in received.items())
    values = torch.full((1234,), float(transport.rank))
    transport.broadcast(values, root=1)
    assert torch.equal(values, torch.ones(1234))


@pytest.mark.mpi(min_size=2)
def test_released_buffers_are_used_again_and_held_ones_are_not(world: World) -> None:
    peer = world.rank ^ 1
    peers = [peer] if peer < world.size else []
    first = world.transport.exchange(content(world.rank, 333), peers, peers)
    kept = first.wait()
    second = world.transport.exchange(content(world.rank + 5, 333), peers, peers)
    second.wait()
    assert all(torch.equal(buffer, content(source, 333)) for source, buffer in kept.items())
    places = {buffer.data_ptr() for buffer in kept.values()}
    first.release()
    third = world.transport.exchange(content(world.rank, 333), peers, peers)
    assert {buffer.data_ptr() for buffer in third.wait().values()} == places


@pytest.mark.mpi(min_size=2)
def test_own_messages_of_the_user_are_not_touched(world: World) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    mine, peer = torch.full((1000,), float(world.rank)), (world.rank + 1) % world.size
    posted = comm.Isend(mine.numpy(), dest=peer)
    graph = Topology.named("ring", world.size)
    exchange = world.transport.exchange(
        content(world.rank, 4000), graph.listeners(world.rank), graph.neighbors(world.rank)
    )
    assert all(torch.equal(buffer, content(source, 4000)) for source, buffer in exchange.wait().items())
    theirs = torch.empty(1000)
    comm.Recv(theirs.numpy(), source=(world.rank - 1) % world.size)
    posted.Wait()
    assert theirs[0] == (world.rank - 1) % world.size


@pytest.mark.parametrize("choice", ["mpi", "horovod"])
def test_collectives(world: World, choice: str) -> None:
    if choice == "horovod":
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    collectives = world.collectives(choice)
    assert collectives.name == (choice if world.transport.name == "mpi" else "none")
    for dtype in (torch.float32, torch.float64, torch.int64):
        values = torch.arange(100).to(dtype) + world.rank
        collectives.all_reduce(values)
        assert torch.equal(values, world.size * torch.arange(100).to(dtype) + sum(range(world.size)))
    gathered = collectives.all_gather(content(world.rank, 77))
    assert all(torch.equal(buffer, content(rank, 77)) for rank, buffer in enumerate(gathered))
    assert len(gathered) == world.size
    for shape in ((), (0,), (3, 4)):
        for dtype in (torch.bfloat16, torch.int64, torch.float64, torch.bool):
            values = torch.full(shape, world.rank + 1).to(dtype)
            collectives.broadcast(values)
            assert torch.equal(values, torch.ones(shape).to(dtype))


def test_reduction_of_strided_values_stays_in_place(world: World) -> None:
    matrix = torch.ones(4, 6)
    world.transport.all_reduce(matrix.T)
    assert torch.equal(matrix, torch.full((4, 6), float(world.size)))
    flags = torch.tensor([world.rank == 0, world.rank == world.size - 1, False])
    world.transport.all_reduce_flags(flags)
    assert flags.tolist() == [True, True, False]


@pytest.mark.mpi(min_size=2)
def test_ranks_out_of_step_are_matched_by_step_all_the_same(world: World) -> None:
    """Random sleeps change nothing: no message of another step is ever taken."""
    comm, C = Network(world.transport, Topology.named("ring", world.size)), Sign()
    late = random.Random(world.rank)
    for step in range(1, 201):
        comm.step = step
        out = torch.zeros(64)
        if late.random() < 0.05:
            time.sleep(late.random() / 100)
        comm.mix(C.encode(torch.full((64,), float(step))), out)
        torch.testing.assert_close(out, torch.full((64,), float(step)))


@pytest.mark.mpi(min_size=2)
def test_another_step_is_an_error(world: World) -> None:
    comm = Network(world.transport, Topology.named("ring", world.size))
    comm.step = 5 if world.rank == 0 else 6
    pending = comm.mix_start(Sign().encode(torch.ones(8)))
    neighbors = comm.topology.neighbors(world.rank)
    if world.rank == 0 or 0 in neighbors:
        with pytest.raises(RuntimeError, match="of another step"):
            pending.add_to(torch.zeros(8))
    else:
        pending.add_to(torch.zeros(8))


@pytest.mark.mpi(min_size=2)
def test_another_layout_is_an_error(world: World) -> None:
    comm, C = Network(world.transport, Topology.named("complete", world.size)), Sign()
    C.bind([3, 5] if world.rank == 0 else [4, 4])
    pending = comm.mix_start(C.encode(torch.ones(8)))
    with pytest.raises(RuntimeError, match="of another layout"):
        pending.add_to(torch.zeros(8))
