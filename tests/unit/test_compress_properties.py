"""What the analyses assume of compressors, over vectors that nobody thought of."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mpidec import QSGD, Compressor, Identity, RandomK, Sign, TopK, UserError
from mpidec.compress.int8 import Int8
from mpidec.compress.schedule import Warmup
from mpidec.noise import SMALL, distinct
from support.codecs import decode

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False, width=32)
VECTORS = st.lists(NUMBERS, min_size=1, max_size=80).map(lambda values: torch.tensor(values, dtype=torch.float64))
MAKERS = {
    "identity": Identity,
    "top-k": lambda: TopK(0.3),
    "random-k": lambda: RandomK(0.3),
    "unbiased random-k": lambda: RandomK(0.3, contraction=False),
    "sign": Sign,
    "qsgd": lambda: QSGD(3),
    "unbiased qsgd": lambda: QSGD(3, contraction=False),
}


def half(like: Tensor) -> Tensor:
    return torch.full_like(like, 0.5)


def coded(C: Compressor, x: Tensor, sizes: list[int] | None = None, noise=half) -> Tensor:
    C.bind(sizes or [x.numel()], noise)
    return decode(C, C.encode(x), x)


@pytest.mark.parametrize("name", [name for name in MAKERS if "random" not in name])  # places depend on the segment
@given(VECTORS, VECTORS)
def test_segments_are_compressed_on_their_own(name: str, one: Tensor, other: Tensor) -> None:
    together = coded(MAKERS[name](), torch.cat([one, other]), [len(one), len(other)])
    apart = torch.cat([coded(MAKERS[name](), one), coded(MAKERS[name](), other)])
    torch.testing.assert_close(together, apart, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", MAKERS)
@given(VECTORS, st.integers(-8, 8))
def test_powers_of_two_pass_through(name: str, x: Tensor, power: int) -> None:
    factor = 2.0**power
    assert torch.equal(coded(MAKERS[name](), factor * x), factor * coded(MAKERS[name](), x))


@pytest.mark.parametrize("name", ["identity", "top-k", "random-k", "sign"])
@given(VECTORS)
def test_contractions_contract(name: str, x: Tensor) -> None:
    C = MAKERS[name]()
    assert C.is_contraction
    error, whole = (coded(C, x) - x).square().sum(), x.square().sum()
    assert error <= whole * (1 + 1e-12)
    if name == "top-k":
        assert error <= (1 - max(1, int(len(x) * 0.3)) / len(x)) * whole * (1 + 1e-12)
    if name == "sign":
        torch.testing.assert_close(error, whole - x.abs().sum() ** 2 / len(x), rtol=1e-9, atol=1e-9 * float(whole))


@given(VECTORS, st.floats(0.05, 1))
def test_top_k_twice_is_top_k_once(x: Tensor, ratio: float) -> None:
    once = coded(TopK(ratio), x)
    assert torch.equal(coded(TopK(ratio), once), once)


@pytest.mark.parametrize("bits", range(1, 9))
@given(VECTORS, st.floats(0, 1, exclude_max=True))
def test_qsgd_is_one_level_off_at_most_and_keeps_the_sign(bits: int, x: Tensor, draw: float) -> None:
    found = coded(QSGD(bits, contraction=False), x, noise=lambda like: torch.full_like(like, draw))
    level = x.norm() / (2**bits - 1)
    assert ((found - x).abs() <= level * (1 + 1e-9)).all()
    assert (found * x >= 0).all()


@given(VECTORS)
def test_int8_sends_a_byte_that_is_never_zero(x: Tensor) -> None:
    found = coded(Int8(), x)
    assert ((found.abs() >= 1 / 128) & (found.abs() <= 1)).all()
    assert torch.equal(found < 0, x < 0)
    assert ((found - x).abs() <= 1 / 256 + 1e-12)[(x.abs() >= 1 / 128) & (x.abs() <= 1)].all()
    torch.testing.assert_close(coded(Int8(scaled=True), x), found * x.abs().mean(), rtol=1e-12, atol=0)


@given(VECTORS)
def test_votes_are_counted_as_integers(x: Tensor) -> None:
    C, votes = Sign(scaled=False), torch.zeros(len(x), dtype=torch.int32)
    message = C.encode(x)
    for _ in range(3):
        C.add_to(votes, message)
    assert votes.tolist() == [3 if value >= 0 else -3 for value in x.tolist()]
    assert torch.equal(decode(C, message, x), (votes // 3).double())


class TestRandomK:
    def keyed(self, step: int):
        return lambda like: torch.rand(like.shape, generator=torch.Generator().manual_seed(step), dtype=like.dtype)

    @pytest.mark.parametrize("contraction", [True, False])
    @pytest.mark.parametrize("size", [7, 40, 60_000])
    def test_mean_and_variance_over_draws(self, contraction: bool, size: int) -> None:
        x, C, ratio = torch.randn(size, dtype=torch.float64), RandomK(0.3, contraction), int(size * 0.3) / size
        draws = 2000 if size < SMALL else 40
        X = x.expand(draws, size).contiguous()
        C.bind([size], self.keyed(size))
        found = decode(C, C.encode(X), X)
        expected = x if not contraction else ratio * x
        deviation = (found - expected).square().mean(0).sqrt().max()
        assert float((found.mean(0) - expected).abs().max()) < 5.5 * float(deviation) / draws**0.5
        error = float((found - x).square().sum(-1).mean() / x.square().sum())
        assert error == pytest.approx(1 - ratio if contraction else 1 / ratio - 1, rel=0.05)

    def test_both_ends_draw_the_same_places_and_only_values_travel(self) -> None:
        sender, receiver = RandomK(0.1), RandomK(0.1)
        for C in (sender, receiver):
            C.bind([50, 5000], self.keyed(0))
        x = torch.randn(5050)
        message = sender.encode(x)
        received = receiver.encode(torch.zeros(5050)).with_buffer(message.buffer.clone())
        assert torch.equal(received.support, message.support)
        assert len(set(message.support.tolist())) == 505
        assert torch.equal(decode(receiver, received, x)[message.support], x[message.support])

    def test_with_values_is_the_message_for_other_values(self) -> None:
        for contraction in (True, False):
            C = RandomK(0.5, contraction)
            C.bind([6], self.keyed(1))
            x, other = torch.randn(6), torch.randn(6)
            message = C.encode(x)
            again = message.with_values(other[message.support])
            assert torch.equal(again.buffer, C.encode(other).buffer)


@settings(max_examples=8)
@given(st.integers(1, 40) | st.integers(SMALL - 99, SMALL + 99), st.integers(0, 2**40), st.integers(0, 9))
def test_distinct_indices_are_a_permutation(size: int, key: int, number: int) -> None:
    keys = torch.tensor([[key], [key + 1]])
    found = distinct(keys, number, size, size)
    assert torch.equal(found.sort(-1).values, torch.arange(size).expand(2, size))
    assert torch.equal(distinct(keys[:1], number, size // 2, size), found[:1, : size // 2]), "fewer are a part of more"
    if size > 20:
        assert not torch.equal(distinct(keys, number + 1, size, size), found), "each segment has places of its own"
        assert not torch.equal(found[0], found[1]), "and so has each rank and step"


class TestWarmup:
    def test_the_stages_of_dgc(self) -> None:
        warmup = Warmup(0.001, epochs=5)
        assert [warmup.at(epoch) for epoch in (0, 0.99, 1, 2, 3, 4, 5, 100)] == [
            *(0.25, 0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001, 0.001)
        ]
        assert [Warmup(0.01, epochs=3).at(epoch) for epoch in (0, 1, 2, 3)] == [0.25, 0.0625, 0.015625, 0.01]
        assert Warmup(0.5, epochs=3).at(0) == Warmup(0.01).at(0) * 50 == 0.5

    @pytest.mark.parametrize("make", [TopK, RandomK])
    def test_messages_shrink_with_the_epoch_on_both_ends(self, make) -> None:
        one, other, x = make(0.001, warmup_epochs=5), make(0.001, warmup_epochs=5), torch.randn(4000)
        sizes = []
        for epoch in (0.5, 1.5, 2.5, 3.5, 4.5, 9.0):
            one.at(epoch)
            other.at(epoch)
            message = one.encode(x)
            assert message.layout.digest == other.encode(x).layout.digest
            assert len(message.support) == one.kept([4000])[0]
            sizes.append(message.nbytes)
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 50 * sizes[-1]
        one.at(0)
        assert one.encode(x).layout.digest != other.encode(x).layout.digest, "another epoch is another layout"

    @pytest.mark.parametrize("options", [{"ratio": 0.0}, {"warmup_epochs": -1}, {"warmup_ratios": [2.0]}])
    def test_out_of_range(self, options) -> None:
        with pytest.raises(UserError):
            RandomK(**options)
