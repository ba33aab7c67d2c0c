"""Each compressor against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mpidec import QSGD, Sign, TopK, UserError
from mpidec.compress.bits import _pack_on_device, _unpack_on_device, pack, packed_bytes, unpack
from mpidec.compress.int8 import Int8
from mpidec.compress.places import Plan
from support.codecs import bound, decode
from support.golden import FOLDER, read

UNIT = read(next(FOLDER.glob("compressors.json*"))) if list(FOLDER.glob("compressors.json*")) else None


class TestSign:
    def test_scale_and_signs_by_segment(self) -> None:
        C = bound(Sign, [2, 3])
        x = torch.tensor([1.0, -3.0, 0.0, -0.0, 6.0])
        assert decode(C, C.encode(x), x).tolist() == [2.0, -2.0, 2.0, 2.0, 2.0]

    def test_golden_signs(self) -> None:
        if UNIT is None:
            pytest.skip("no unit vectors in this folder")
        x = torch.tensor(UNIT["x"], dtype=torch.float64)
        for length, recorded in UNIT["sign"].items():
            packed = Sign().encode(x[: int(length)]).part("signs")
            assert (unpack(packed, int(length)).int() * 2 - 1).tolist() == recorded["unpacked"]

    @given(st.lists(st.booleans(), min_size=1, max_size=200))
    def test_bit_order(self, flags: list[bool]) -> None:
        """Entry i is bit i % 8, from the lowest, of byte i // 8, on every path."""
        packed = torch.full((packed_bytes(len(flags)),), 255, dtype=torch.uint8)
        pack(torch.tensor(flags), packed)
        assert int.from_bytes(packed.numpy().tobytes(), "little") == sum(2**i for i, flag in enumerate(flags) if flag)
        assert unpack(packed, len(flags)).tolist() == flags
        on_device = _pack_on_device(torch.tensor(flags))
        assert torch.equal(on_device, packed[: len(on_device)])
        assert torch.equal(_unpack_on_device(packed, len(flags)), unpack(packed, len(flags)))


class TestTopK:
    @given(
        st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0]), min_size=1, max_size=60),
        st.floats(0.01, 1.0),
    )
    def test_largest_magnitudes_and_the_lowest_index_among_equals(self, values: list[float], ratio: float) -> None:
        x, C = torch.tensor(values), TopK(ratio)
        k = max(1, int(len(values) * ratio))
        expected = sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k])
        message = C.encode(x)
        assert message.support.tolist() == expected
        assert decode(C, message, x).tolist() == [v if i in expected else 0.0 for i, v in enumerate(values)]

    def test_golden_indices_and_counts(self) -> None:
        if UNIT is None:
            pytest.skip("no unit vectors in this folder")
        x = torch.tensor(UNIT["x"], dtype=torch.float64)
        for dropped, recorded in UNIT["top_k"].items():
            assert TopK(1 - float(dropped)).encode(x).support.tolist() == sorted(recorded["indices"])
        for size, dropped, kept in UNIT["top_k_count"]:
            assert TopK(1 - dropped).plan([size]).kept == (kept,)

    def test_support_over_segments_and_with_values(self) -> None:
        C = bound(lambda: TopK(0.5), [4, 2])
        message = C.encode(torch.tensor([0.0, 5.0, -6.0, 1.0, 0.0, 7.0]))
        assert message.support.tolist() == [1, 2, 5]
        other = message.with_values(torch.tensor([1.0, 2.0, 3.0]))
        assert decode(C, other, torch.zeros(6)).tolist() == [0, 1, 2, 0, 0, 3]
        assert decode(C, message, torch.zeros(6)).tolist() == [0, 5, -6, 0, 0, 7]

    def test_nan_is_not_hidden(self) -> None:
        x = torch.tensor([1.0, float("nan"), 9.0, float("inf")])
        assert decode(TopK(0.5), TopK(0.5).encode(x), x).isnan().tolist() == [False, True, False, False]

    def test_places_are_exact_above_2_24_and_2_31(self) -> None:
        """By offsets alone: nothing of that size is allocated."""
        plan = Plan((2**24 + 3, 2**31, 2**31 + 1, 10), (5, 5, 5, 1))
        assert plan.forms == ("int32", "int32", "int64", "int32")
        starts = [start for _, _, start in plan.places]
        assert starts == [0, 2**24 + 3, 2**24 + 3 + 2**31, 2**24 + 2**32 + 4]
        assert [place for _, place, _ in plan.places] == [slice(0, 5), slice(5, 10), slice(0, 5), slice(10, 11)]
        C = TopK(5 / 2**24)
        C.bind([2**24 + 3, 1])
        x = torch.zeros(2**24 + 4)
        x[[2**24 + 1, 2**24 + 2, 2**24 + 3]] = 1.0
        assert C.encode(x).support[-3:].tolist() == [2**24 + 1, 2**24 + 2, 2**24 + 3]

    def test_a_bitmap_only_where_it_is_smaller(self) -> None:
        assert Plan((640,), (20,)).forms == ("int32",)
        assert Plan((640,), (21,)).forms == ("bitmap",)

    @pytest.mark.parametrize("ratio", [0, -0.1, 1.1, float("nan")])
    def test_bad_ratio(self, ratio: float) -> None:
        with pytest.raises(UserError, match="ratio is the fraction of entries kept"):
            TopK(ratio)


class TestQSGD:
    def test_golden_values(self) -> None:
        if UNIT is None:
            pytest.skip("no unit vectors in this folder")
        x = torch.tensor(UNIT["x"], dtype=torch.float64)
        draws = torch.tensor(UNIT["u"], dtype=torch.float64)
        seen = 0
        for name, values in UNIT["qsgd"].items():
            level, kind = name.removeprefix("level").split("_", 1)
            if kind not in ("unbiased", "biased"):
                continue
            C = QSGD(int(level), contraction=kind == "biased")
            C.bind([len(x)], lambda like: draws)
            torch.testing.assert_close(
                decode(C, C.encode(x), x), torch.tensor(values, dtype=x.dtype), rtol=0, atol=1e-12
            )
            seen += 1
        assert seen

    @pytest.mark.parametrize("bits", range(1, 9))
    def test_unbiased(self, bits: int) -> None:
        C, x = (
            QSGD(bits, contraction=False),
            torch.randn(16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        )
        torch.manual_seed(0)
        X = x.expand(20_000, 16).contiguous()
        mean = decode(C, C.encode(X), X).mean(0)
        # The deviation of one draw is below norm / (2 L); five deviations of the mean are ample.
        bound_ = 5 * float(x.norm()) / (2 * (2**bits - 1)) / math.sqrt(20_000)
        assert float((mean - x).abs().max()) < bound_

    @pytest.mark.parametrize("bits", [1, 2, 4])
    def test_contraction_in_the_mean_of_many_draws(self, bits: int) -> None:
        x = torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        torch.manual_seed(0)
        X, C, L = x.expand(5_000, 400).contiguous(), QSGD(bits, contraction=True), 2**bits - 1
        error = float((decode(C, C.encode(X), X) - X).square().sum(-1).mean() / x.square().sum())
        assert error < 1 - 0.9 / (1 + min(400 / L**2, 20 / L))

    def test_top_level_is_never_exceeded(self) -> None:
        C = QSGD(8, contraction=False)
        C.bind([1], lambda like: torch.zeros_like(like))
        for value in np.random.default_rng(0).normal(size=200):
            x = torch.tensor([value], dtype=torch.float32)
            assert decode(C, C.encode(x), x).item() == pytest.approx(float(value), rel=1e-6)

    def test_an_entry_on_a_level_stays_there(self) -> None:
        """Up only where the draw is below the remainder, which is 0 here."""
        C = QSGD(2, contraction=False)
        C.bind([4], torch.zeros_like)
        x = torch.tensor([2.0, 2.0, 2.0, 2.0]) / 4 * torch.tensor([4.0, 0, 0, 0])
        assert decode(C, C.encode(x), x).tolist() == [2.0, 0.0, 0.0, 0.0]

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_norms_beyond_the_range_of_squares(self, scale: float) -> None:
        C = QSGD(8, contraction=False)
        C.bind([2], lambda like: torch.full_like(like, 0.5))
        x = torch.tensor([3.0, 4.0]) * scale
        torch.testing.assert_close(decode(C, C.encode(x), x), x, rtol=0.01, atol=0)

    @pytest.mark.parametrize("bits", [0, 9, -1])
    def test_bad_bits(self, bits: int) -> None:
        with pytest.raises(UserError, match="1 to 8 bits"):
            QSGD(bits)


def test_golden_eight_bit_direction() -> None:
    if UNIT is None:
        pytest.skip("no unit vectors in this folder")
    x, C = torch.tensor(UNIT["x"], dtype=torch.float64), Int8()
    assert decode(C, C.encode(x), x).tolist() == UNIT["exchange8"]["values"]
