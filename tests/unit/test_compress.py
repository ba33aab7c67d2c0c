"""Compressors: what they keep, what they write, and that both ends read the same."""

from __future__ import annotations

import pytest
import torch

from mpidec import QSGD, Compressor, Identity, RandomK, Sign, TopK, UserError, compressor
from mpidec.compress import COMPRESSORS
from mpidec.compress.bits import packed_bytes
from mpidec.compress.int8 import Int8
from mpidec.compress.message import HEADER_BYTES
from support.codecs import SIZES, bound, decode

ALL = [
    Identity,
    lambda: Identity(torch.float16),
    lambda: Identity(torch.bfloat16),
    lambda: TopK(0.01),
    lambda: TopK(0.3),
    lambda: TopK(1.0),
    lambda: RandomK(0.01),
    lambda: RandomK(0.3, contraction=False),
    Sign,
    lambda: QSGD(1),
    lambda: QSGD(4, contraction=True),
    lambda: QSGD(8),
]


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_ranks_and_alpha_scales(make, dtype: torch.dtype) -> None:
    C, X = bound(make), torch.randn(4, sum(SIZES), dtype=dtype, generator=torch.Generator().manual_seed(0))
    together, alphas = C.encode(X), torch.tensor([0.1, 0.5, -1.0, 2.0], dtype=torch.float64)
    OUT = torch.ones_like(X)
    C.add_to(OUT, together, alphas)
    for row in range(4):
        alone = C.encode(X[row].clone())
        assert torch.equal(alone.buffer, together.buffer[row])
        out = torch.ones_like(X[row])
        C.add_to(out, alone, float(alphas[row]))
        assert torch.equal(out, OUT[row])


@pytest.mark.parametrize("make", ALL)
def test_size_depends_on_the_layout_alone_and_is_what_the_buffer_holds(make) -> None:
    C = bound(make)
    sizes = {C.encode(x).nbytes for x in (torch.zeros(240), torch.ones(240), torch.randn(240))}
    assert len(sizes) == 1
    message = C.encode(torch.randn(240))
    assert message.buffer.nbytes == message.nbytes == C.layout(240, torch.float32).nbytes


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.5, 1e-30])
@pytest.mark.parametrize("numel", [0, 1, 5])
def test_constant_and_empty_vectors_stay_finite(make, value: float, numel: int) -> None:
    C = bound(make, [numel])
    x = torch.full((numel,), value)
    decoded = decode(C, C.encode(x), x)
    assert torch.isfinite(decoded).all()
    if value == 0:
        assert not decoded.any()


@pytest.mark.parametrize("make", ALL)
def test_same_content_same_bytes(make) -> None:
    C, x = bound(make), torch.randn(240)
    assert torch.equal(C.encode(x).buffer, C.encode(x.clone()).buffer)


def test_sizes_on_the_wire() -> None:
    d, s = 1000, 2  # 1,000 entries in two segments
    for make, payload in (
        (Identity, 4 * d),
        (lambda: Identity(torch.float16), 2 * d),
        (lambda: Identity(torch.bfloat16), 2 * d),
        (Sign, packed_bytes(d) + 4 * s),
        (lambda: TopK(0.01), 10 * (4 + 4)),
        (lambda: TopK(0.1), 100 * 4 + packed_bytes(400) + packed_bytes(600)),
        (lambda: QSGD(4), 5 * packed_bytes(d) + 4 * s),
        (lambda: QSGD(1), 2 * packed_bytes(d) + 4 * s),
        (lambda: QSGD(8), 9 * packed_bytes(d) + 4 * s),
        (lambda: RandomK(0.1), 8 + 100 * 4),
        (lambda: Sign(scaled=False), packed_bytes(d)),
        (Int8, d),
        (lambda: Int8(scaled=True), d + 4 * s),
    ):
        assert bound(make, [400, 600]).layout(d, torch.float32).nbytes == HEADER_BYTES + payload
    assert packed_bytes(1000) == 128


def test_header() -> None:
    message = Sign().encode(torch.ones(9))
    assert message.header.step == 0
    message.stamp(123, flags=5)
    assert message.header[:2] == (123, 5)
    assert message.header.layout == message.layout.digest
    same, other = Sign().encode(torch.ones(9)), QSGD(1).encode(torch.ones(9))
    assert same.layout.digest == message.layout.digest != other.layout.digest


@pytest.mark.parametrize("make", [Sign, lambda: QSGD(8)], ids=["sign", "qsgd"])
def test_long_segments_are_the_same_on_any_number_of_threads(make) -> None:
    """A sum that is split among threads rounds by their number, and unlike a row: with some of these seeds."""
    C, threads = bound(make, [300_000]), torch.get_num_threads()
    try:
        for seed in range(10):
            X, buffers = torch.rand(2, 300_000, generator=torch.Generator().manual_seed(seed)), []
            for count in (1, 2):
                torch.set_num_threads(count)
                buffers += [C.encode(X).buffer[1], C.encode(X[1].clone()).buffer]
            assert all(torch.equal(buffer, buffers[0]) for buffer in buffers), f"seed {seed}"
    finally:
        torch.set_num_threads(threads)


def test_16_bit_wires_round() -> None:
    x = torch.tensor([1.0, 1.0 + 2**-9, 1e-3])
    assert torch.equal(decode(compressor("bf16"), compressor("bf16").encode(x), x), x.bfloat16().float())
    assert torch.equal(decode(compressor("fp16"), compressor("fp16").encode(x), x), x.half().float())


def test_names() -> None:
    for name in COMPRESSORS:
        assert isinstance(compressor(name), Compressor)
    assert isinstance(compressor("TOP_K", ratio=0.2), TopK)
    with pytest.raises(UserError, match=r"unknown compressor 'sing': known are identity, .*, perhaps you meant sign"):
        compressor("sing")
