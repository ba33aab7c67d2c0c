"""BatchNorm in the averaged model: whose statistics it takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mpidec import DPSGD, DistributedOptimizer, FlatBuffer, World, averaged, run_on_threads
from mpidec.optim.averaging import average, swapped

BATCHES = 5


def normed(rank: int) -> nn.Sequential:
    """A model whose parameters and statistics differ from rank to rank."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for number, p in enumerate(model.parameters()):
            p.copy_(torch.arange(p.numel()).view(p.shape).cos() + number + rank)
    model[1].running_mean.fill_(rank)
    model[1].running_var.fill_(1 + rank)
    model[1].num_batches_tracked.fill_(10 + rank)
    return model


def inputs(rank: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(8, 3, generator=generator) + rank for _ in range(BATCHES)]


@pytest.mark.parametrize("statistics", ["average", "local", "recompute"])
def test_statistics_of_the_averaged_model(statistics: str) -> None:
    ranks = 3

    def work(world: World) -> None:
        rank = world.rank
        model = normed(rank)
        flat, norm = FlatBuffer(model), model[1]
        before = [tensor.clone() for tensor in (flat.data, *model.buffers())]
        mean = average(world.transport, flat.data)
        with swapped(world.transport, model, flat.data, mean, statistics, iter(inputs(rank))):
            torch.testing.assert_close(flat.data, mean)
            if statistics == "average":
                assert norm.running_mean.tolist() == [1.0] * 3
                assert norm.num_batches_tracked == 10 + rank
            elif statistics == "local":
                assert norm.running_mean.tolist() == [float(rank)] * 3
                assert norm.running_var.tolist() == [1.0 + rank] * 3
            else:
                outputs = [model[0](batch) for other in range(ranks) for batch in inputs(other)]
                expected = torch.stack([one.mean(0) for one in outputs]).mean(0)
                torch.testing.assert_close(norm.running_mean, expected)
                variance = torch.stack([one.var(0) for one in outputs]).mean(0)
                torch.testing.assert_close(norm.running_var, variance)
        for tensor, kept in zip((flat.data, *model.buffers()), before, strict=True):
            assert torch.equal(tensor, kept), "everything is as it was"
        assert norm.momentum == 0.1

    with torch.no_grad():
        run_on_threads(work, ranks)


def test_the_averaged_model_stands_in_for_a_while() -> None:
    def work(world: World) -> None:
        model = normed(world.rank)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = DistributedOptimizer(sgd, model, DPSGD(), broadcast=False)
        before = model.state_dict()["0.weight"].clone()
        with averaged(model, optimizer):
            expected = torch.stack([normed(rank)[0].weight.detach() for rank in range(3)]).mean(0)
            torch.testing.assert_close(model[0].weight.detach(), expected)
            assert model[1].running_mean.tolist() == [1.0] * 3
        assert torch.equal(model[0].weight, before)

    run_on_threads(work, 3)
