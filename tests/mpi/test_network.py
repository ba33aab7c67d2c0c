"""A rank of a real job lands on the same bits as its row in a simulation, and counts what it sends."""

from __future__ import annotations

import pytest
import torch

from mpidec import Network, Rows, Topology, World, compressor
from support.problems import asymmetric

pytestmark = pytest.mark.mpi

MINE = 2  # a flag: any bit
SIZES = [40, 7, 1, 16]
COMPRESSORS = [
    ("identity", {}),
    ("fp16", {}),
    ("bf16", {}),
    ("sign", {}),
    ("top-k", {"ratio": 0.2}),
    ("qsgd", {"bits": 3}),
]


@pytest.mark.parametrize(("name", "options"), COMPRESSORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("graph", ["ring", "expander", "asymmetric"])
def test_mix_equals_rows(world: World, name: str, options: dict[str, float], dtype: torch.dtype, graph: str) -> None:
    topology = asymmetric(world.size) if graph == "asymmetric" else Topology.named(graph, world.size)
    comm, rows = Network(world.transport, topology, seed=3), Rows(topology, seed=3)
    one, all_ = compressor(name, **options), compressor(name, **options)
    one.bind(SIZES, comm.noise)
    all_.bind(SIZES, rows.noise)
    X = torch.randn(world.size, sum(SIZES), dtype=dtype, generator=torch.Generator().manual_seed(1))
    out, OUT = torch.ones(sum(SIZES), dtype=dtype), torch.ones_like(X)
    for step in (1, 2, 3):
        comm.step = rows.step = step
        message = one.encode(X[world.rank].clone())
        before = comm.bytes_sent
        comm.mix(message, out, alpha=0.3)
        assert comm.bytes_sent - before == message.nbytes * len(topology.listeners(world.rank))
        rows.mix(all_.encode(X), OUT, alpha=0.3)
        assert torch.equal(out, OUT[world.rank])
    total = sum(world.transport.all_gather_objects(comm.bytes_sent))
    assert total == rows.bytes_sent


@pytest.mark.parametrize(("name", "options"), COMPRESSORS)
@pytest.mark.parametrize("collectives", ["mpi", "horovod"])
def test_sum_equals_rows(world: World, name: str, options: dict[str, float], collectives: str) -> None:
    if collectives == "horovod":
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    topology = Topology.named("complete", world.size)
    comm, rows = Network(world.transport, topology, world.collectives(collectives)), Rows(topology)
    one, all_ = compressor(name, **options), compressor(name, **options)
    one.bind(SIZES, comm.noise)
    all_.bind(SIZES, rows.noise)
    X = torch.randn(world.size, sum(SIZES), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    out, OUT = torch.zeros(sum(SIZES), dtype=torch.float64), torch.zeros_like(X)
    message = one.encode(X[world.rank].clone())
    content = message.buffer[16:].clone()
    comm.sum(message, out, 1 / world.size)
    assert torch.equal(message.buffer[16:], content), "a rule may still need its own message"
    rows.sum(all_.encode(X), OUT, 1 / world.size)
    if one.summable:
        torch.testing.assert_close(out, OUT[world.rank], rtol=0, atol=1e-12)
    else:
        assert torch.equal(out, OUT[world.rank])
    everyone = world.transport.all_gather_objects(out)
    assert all(torch.equal(out, other) for other in everyone), "replicas are bit-equal within a run"
    sent = 0 if world.size == 1 else sum(SIZES) * 8 if one.summable else message.nbytes
    assert comm.bytes_sent == sent
    assert rows.bytes_sent == sent * world.size


@pytest.mark.parametrize("wire", ["identity", "fp16", "bf16"])
def test_16_bit_values_are_summed_in_float32(world: World, wire: str) -> None:
    """2,048 + 1 is lost in float16, and 256 + 1 in bfloat16."""
    comm = Network(world.transport, Topology.named("complete", world.size))
    x = torch.full((5,), 256.0 if world.rank == 0 else 1.0).to(torch.float32 if wire != "identity" else torch.bfloat16)
    out = torch.zeros(5)
    comm.sum(compressor(wire).encode(x), out)
    assert torch.equal(out, torch.full((5,), 256.0 + world.size - 1))


@pytest.mark.mpi(min_size=2)
def test_flags_reach_the_neighbours(world: World) -> None:
    comm = Network(world.transport, Topology.named("ring", world.size))
    comm.flags = MINE if world.rank == 0 else 0
    comm.mix(compressor("sign").encode(torch.ones(3)), torch.zeros(3))
    assert comm.flags_seen == (MINE if 0 in comm.topology.neighbors(world.rank) else 0)


@pytest.mark.mpi(min_size=2)
def test_what_was_posted_is_what_arrives(world: World) -> None:
    """Changing the parameters after the post does not change what is sent; the pending mix keeps its buffers."""
    comm, C = Network(world.transport, Topology.named("ring", world.size)), compressor("identity")
    x = torch.full((200_000,), float(world.rank))
    pending = comm.mix_start(C.encode(x))
    x.fill_(-1)
    other = comm.mix_start(C.encode(x))
    out, later = torch.zeros(200_000), torch.zeros(200_000)
    pending.add_to(out)
    other.add_to(later)
    expected = sum(weight * rank for rank, weight in comm.topology.weights(world.rank).items())
    torch.testing.assert_close(out, torch.full_like(out, expected))
    torch.testing.assert_close(later, torch.full_like(out, -1.0))
