"""Device buffers: staged through pinned host memory, or handed to an MPI that takes them."""

from __future__ import annotations

import os

import pytest
import torch

from mpidec import CHOCO, DistributedOptimizer, Network, Topology, World, compressor
from mpidec.transport.mpi import MpiTransport
from support.problems import net

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

DIRECT = pytest.param(
    True,
    id="direct",
    marks=pytest.mark.skipif(
        os.environ.get("MPIDEC_GPU_AWARE") != "1", reason="MPIDEC_GPU_AWARE=1 says that this MPI takes device buffers"
    ),
)


@pytest.fixture
def device(world: World) -> torch.device:
    chosen = torch.device("cuda", world.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(chosen)
    return chosen


@pytest.mark.parametrize("direct", [pytest.param(False, id="staged"), DIRECT])
@pytest.mark.parametrize("name", ["identity", "sign", "top-k", "qsgd"])
def test_a_device_mixes_as_the_host_does(world: World, device: torch.device, direct: bool, name: str) -> None:
    graph = Topology.named("ring", world.size)
    on_device, on_host = Network(MpiTransport(gpu_aware=direct), graph), Network(MpiTransport(), graph)
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(world.rank), dtype=torch.float64)
    out, expected = torch.zeros(10_000, dtype=torch.float64, device=device), torch.zeros(10_000, dtype=torch.float64)
    for step in (1, 2, 3):
        on_device.step = on_host.step = step
        C, reference = compressor(name), compressor(name)
        C.bind([10_000], on_device.noise)
        reference.bind([10_000], on_host.noise)
        on_device.mix(C.encode(x.to(device)), out)
        on_host.mix(reference.encode(x), expected)
        torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("direct", [pytest.param(False, id="staged"), DIRECT])
def test_the_producing_stream_is_waited_for(world: World, device: torch.device, direct: bool) -> None:
    """A long chain of kernels writes what is sent: without synchronisation the old content would travel."""
    comm = Network(MpiTransport(gpu_aware=direct), Topology.named("ring", world.size))
    big, x = torch.randn(2000, 2000, device=device), torch.zeros(1_000_000, device=device)
    for step in range(1, 6):
        comm.step = step
        for _ in range(30):
            big = big @ big / 2000
        x.fill_(step).add_(big.sum() * 0)
        out = torch.zeros_like(x)
        comm.mix(compressor("identity").encode(x), out)
        assert float((out - step).abs().max()) < 1e-4


def test_training_on_a_shared_gpu(device: torch.device) -> None:
    model = net().to(device)
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, CHOCO())
    for _ in range(10):
        optimizer.zero_grad()
        inputs = torch.randn(4, 6, device=device)
        model(inputs).square().mean().backward()
        optimizer.step()
    assert optimizer.flat.data.device == device
    assert torch.isfinite(optimizer.flat.data).all()
