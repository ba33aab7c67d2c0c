"""What single rules promise, beside what all of them do."""

from __future__ import annotations

import math

import pytest
import torch

from mpidec import (
    DGC,
    QSGD,
    Identity,
    Network,
    Rows,
    Sign,
    Step,
    TopK,
    Topology,
    UserError,
    algorithm,
    run_on_threads,
)
from mpidec.compress.bits import packed_bytes
from support.problems import net
from support.table import LOCALS, TABLE
from support.training import train, wrap, wrap_row

D, S = 53, 4  # parameters of the small network, in four tensors
SIGNS = packed_bytes(D)


class TestDGC:
    def moved(self, rule: DGC, g: torch.Tensor, steps: int = 1, epoch: float = 0.0) -> torch.Tensor:
        """By how much rank 0 of ``len(g)`` moves, at the rate 1, where it has the gradient ``g`` in every step."""
        x, comm = torch.zeros_like(g), Rows(Topology.named("complete", len(g)))
        rule.compressor.bind([2, 2], comm.noise)
        rule.start(x, comm)
        for t in range(1, steps + 1):
            mine = g.clone()
            rule.run(x, mine, comm, Step(t, epoch), lambda: x.sub_(mine))  # noqa: B023
        return -x[0]

    @pytest.mark.parametrize("size", [1, 4])
    def test_each_tensor_is_clipped_to_its_share(self, size: int) -> None:
        g = torch.tensor([[3.0, 4.0, 0.1, 0.0]]).expand(size, 4).clone()
        limit = 2.0 / math.sqrt(size)
        found = self.moved(DGC(Identity(), clip=2.0), g)
        torch.testing.assert_close(found, torch.tensor([limit * 0.6, limit * 0.8, 0.1, 0.0]))
        torch.testing.assert_close(self.moved(DGC(Identity()), g), g[0])

    def test_a_gradient_of_zero_is_clipped_to_zero(self) -> None:
        assert not self.moved(DGC(Identity(), clip=1.0), torch.zeros(2, 4)).any()

    def test_what_waits_is_accelerated_and_momentum_is_masked(self) -> None:
        """Entry 0 is sent at once, and its momentum with it; entry 1 waits until it has grown."""
        g = torch.tensor([[1.0, 0.3, 0.0, 0.0]])
        # buf = [1, .3], [1 or 1.9, .57], ...; v of entry 1: .3, .87, ...
        masked = self.moved(DGC(TopK(0.5), momentum=0.9), g, steps=2)
        torch.testing.assert_close(masked, torch.tensor([2.0, 0.0, 0.0, 0.0]))
        unmasked = self.moved(DGC(TopK(0.5), momentum=0.9, mask_momentum=False), g, steps=2)
        torch.testing.assert_close(unmasked, torch.tensor([2.9, 0.0, 0.0, 0.0]))
        later = self.moved(DGC(TopK(0.5), momentum=0.9), g, steps=3)
        torch.testing.assert_close(later[:2], torch.tensor([2.0, 0.3 + 0.57 + 0.813]))

    def test_the_warm_up_is_the_compressors(self) -> None:
        g = torch.tensor([[1.0, 0.5, 0.2, 0.1]])
        rule = DGC(TopK(0.5, warmup_epochs=1, warmup_ratios=[1.0]))
        assert torch.equal(self.moved(rule, g, epoch=0.5), g[0])
        assert self.moved(DGC(TopK(0.5, warmup_epochs=1, warmup_ratios=[1.0])), g, epoch=1.0).tolist()[1::2] == [0, 0]

    def test_signs_are_refused_and_biased_levels_warned_about(self) -> None:
        with pytest.raises(UserError, match="dgc remembers the entries that it did not send"):
            DGC(Sign())
        with pytest.warns(
            UserWarning, match=r"DGC is analysed for unbiased compressors, and QSGD\(4, True\) is biased"
        ):
            wrap(net(), lambda: DGC(QSGD(4)), LOCALS["sgd"])

    @pytest.mark.parametrize("clip", [0, -1.0, float("nan"), float("inf")])
    def test_clip_out_of_range(self, clip: float) -> None:
        with pytest.raises(UserError, match="clip, which limits the norm of each gradient tensor"):
            DGC(clip=clip)


@pytest.mark.parametrize(("vote", "expected"), [("majority", [1.0, 0.0, -1.0, 1.0]), ("mean", [0.5, 0.0, -1.0, 1.0])])
def test_votes(vote: str, expected: list[float]) -> None:
    """Three to one, a tie, all, and zeros, which vote +1."""
    g = torch.tensor([[1.0, 1.0, -1.0, 0.0], [2.0, 1.0, -3.0, 0.0], [3.0, -1e-30, -1.0, -0.0], [-9.0, -1.0, -1.0, 0.0]])
    rule, comm = algorithm("sign", vote=vote), Rows(Topology.named("complete", 4))
    rule.run(torch.zeros(4, 4), g, comm, Step(1), lambda: None)
    assert g.tolist() == [expected] * 4


@pytest.mark.parametrize(("product", "expected"), [("separate", [0.0, 2.0]), ("exact", [1.0, 2.0])])
@pytest.mark.parametrize("name", ["local-sign", "local-ef-sign"])
def test_the_two_products_of_signs_and_magnitudes(name: str, product: str, expected: list[float]) -> None:
    """One rank has moved by (1, -1), the other by (-3, -3): magnitudes 1 and 3, signs that differ and that agree."""
    x, comm = torch.zeros(2, 2), Rows(Topology.named("complete", 2))
    rule = algorithm(name, period=1, product=product)
    rule.start(x, comm)
    rule.run(x, x, comm, Step(1), lambda: x.add_(torch.tensor([[1.0, -1.0], [-3.0, -3.0]])))
    assert (-x).tolist() == [expected] * 2


@pytest.mark.parametrize("product", ["separate", "exact"])
def test_a_zero_travels_as_plus_one_and_is_remembered_so(product: str) -> None:
    """Of the step (4, 0), signs and scale say (2, 2); the sender's memory must charge the same."""
    x, comm = torch.zeros(2, 2), Rows(Topology.named("complete", 2))
    rule = algorithm("local-ef-sign", period=1, product=product)
    rule.start(x, comm)
    rule.run(x, x, comm, Step(1), lambda: x.sub_(torch.tensor([4.0, 0.0])))
    assert (x[0].tolist(), rule.e[0].tolist()) == ([-2.0, -2.0], [2.0, -2.0])


@pytest.mark.parametrize(
    ("period", "start_epoch", "expected"),
    [(1, 0.0, [1, 2, 3, 4, 5, 6, 7, 8]), (3, 0.0, [3, 6]), (3, 1.0, [1, 2, 3, 6]), (5, 1.5, [1, 2, 3, 4, 5])],
)
@pytest.mark.parametrize("name", ["local", "local-sign", "local-ef-sign"])
def test_steps_that_synchronise(name: str, period: int, start_epoch: float, expected: list[int]) -> None:
    """With four steps in an epoch, the fourth already counts as epoch 1. Nothing is sent in between."""

    def work(world) -> list[int]:
        model = net()
        row = TABLE[name]
        optimizer = wrap_row(world, model, row, period=period, start_epoch=start_epoch)
        sent = []
        for step in range(1, 9):
            before = optimizer.comm.bytes_sent
            train(world.rank, model, optimizer, step, step)
            if optimizer.comm.bytes_sent > before:
                sent.append(step)
        return sent

    assert run_on_threads(work, 2) == [expected, expected]


AGREED = S + 1  # bytes: which tensors have a gradient anywhere, and whether any rank must leave its step out
BYTES = {
    "allreduce": 4 * D + AGREED,
    "allreduce-bf16": 16 + 112 + AGREED,  # 2 d, padded to whole words
    "sign": 16 + SIGNS + AGREED,
    "ef-sign": 16 + SIGNS + 4 * S + AGREED,
    "local": 4 * D,
    "local-sign": 16 + SIGNS + 4 * S,
    "local-sign-exact": 16 + SIGNS + 4 * S,
    "local-ef-sign": 16 + SIGNS + 4 * S,
    "local-ef-int8": 16 + 56 + 4 * S,
    "dpsgd": 2 * (16 + 4 * D + 4),
    "choco": 2 * (16 + SIGNS + 4 * S),
    "deepsqueeze": 2 * (16 + SIGNS + 4 * S),
    "dcd": 2 * (16 + 9 * SIGNS + 4 * S),
    "ecd": 2 * (16 + 9 * SIGNS + 4 * S),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_of_an_exchange(name: str) -> None:
    """As the tables of the README say, on a ring of three or among all of them."""

    def work(world) -> int:
        model = net()
        optimizer = wrap_row(world, model, TABLE[name])
        before = optimizer.comm.bytes_sent
        train(world.rank, model, optimizer, 1, 3)
        exchanges = 1 if name.startswith("local") else 3
        return (optimizer.comm.bytes_sent - before) / exchanges

    assert run_on_threads(work, 3) == [BYTES[name]] * 3


@pytest.mark.parametrize("name", ["dpsgd", "combine-then-adapt", "deepsqueeze"])
@pytest.mark.parametrize("family", ["one_peer_exponential", "matching_ring"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_others_follow_them(name: str, family: str, size: int) -> None:
    """On threads, bit for bit as on rows; and they come to agree."""
    start, graph, steps = torch.randn(size, 40), Topology.named(family, size), 40
    x, rows, rule = start.clone(), Rows(graph), TABLE[name].rule()
    rule.start(x, rows)
    for t in range(1, steps + 1):
        rule.run(x, x, rows, Step(t), lambda: None)

    def work(world) -> torch.Tensor:
        mine, own = start[world.rank].clone(), TABLE[name].rule()
        comm = Network(world.transport, graph)
        own.start(mine, comm)
        for t in range(1, steps + 1):
            own.run(mine, mine, comm, Step(t), lambda: None)
        return mine

    assert torch.equal(torch.stack(run_on_threads(work, size)), x)
    assert (x - x.mean(0)).norm() < 0.6 * (start - start.mean(0)).norm()
