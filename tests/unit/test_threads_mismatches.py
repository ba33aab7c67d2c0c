"""Ranks that are threads and do not run the same program are told so: none of them waits without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from mpidec.transport.threads import ThreadTransport, run

pytestmark = pytest.mark.timeout(60)

BYTES = torch.zeros(8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        (
            lambda ranks: ranks.barrier() if ranks.rank else ranks.all_reduce(torch.ones(3)),
            r"rank \d is in (barrier|all_reduce), but rank \d in (barrier|all_reduce): all ranks must run the same",
        ),
        (
            lambda ranks: ranks.broadcast(torch.ones(3), root=ranks.rank),
            r"is in broadcast from \d, but rank \d in broadcast from \d",
        ),
        (
            lambda ranks: ranks.all_reduce(torch.ones(4 if ranks.rank == 2 else 3)),
            r"rank 0 brings \(3,\) of torch.float32, but rank 2 brings \(4,\) of torch.float32: all ranks",
        ),
        (
            lambda ranks: ranks.broadcast(torch.ones(3, dtype=torch.float64 if ranks.rank == 1 else torch.float32)),
            r"rank 0 brings \(3,\) of torch.float32, but rank 1 brings \(3,\) of torch.float64",
        ),
        (
            lambda ranks: ranks.exchange(
                BYTES[: 8 - ranks.rank], [(ranks.rank + 1) % 3], [(ranks.rank - 1) % 3]
            ).wait(),
            r"rank \d expects \d bytes from rank \d, which sent \d: all ranks must run the same program",
        ),
        (
            lambda ranks: ranks.barrier() if ranks.rank == 1 else ranks.exchange(BYTES, [], [1]).wait(),
            r"the ranks wait for each other \(rank 0 in exchange for \[1\], rank 1 in barrier for \[0, 2\], rank 2 in",
        ),
        (
            lambda ranks: ranks.exchange(BYTES, [], [(ranks.rank + 1) % 3]).wait(),
            r"\(rank 0 in exchange for \[1\], rank 1 in exchange for \[2\], rank 2 in exchange for \[0\]\): all ranks",
        ),
    ],
)
def test_ranks_that_do_different_things_are_told(work: Callable[[ThreadTransport], None], complaint: str) -> None:
    with pytest.raises(RuntimeError, match=complaint):
        run(work, 3)
