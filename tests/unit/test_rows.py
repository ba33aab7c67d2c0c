"""All ranks as the rows of one matrix: what the two verbs add up, and what they count as sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mpidec import QSGD, Compressor, Identity, Message, RandomK, Rows, Sign, TopK, Topology, UserError
from mpidec.communicator import sum_bytes
from support.problems import asymmetric

SIZES = [33, 1, 200, 6]
GRAPHS = {
    **{
        f"{family} {size}": Topology.named(family, size)
        for family, size in [
            ("ring", 7),
            ("ring", 2),
            ("ring", 1),
            ("torus", 15),
            ("star", 9),
            ("chain", 5),
            ("expander", 11),
            ("complete", 5),
            ("one_peer_exponential", 7),
            ("matching_ring", 7),
        ]
    },
    "asymmetric 5": asymmetric(5),
}
COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "identity": Identity,
    "top-k": lambda: TopK(0.2),
    "random-k": lambda: RandomK(0.2),
    "sign": Sign,
    "qsgd": lambda: QSGD(3),
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def encoded(make: Callable[[], Compressor], comm: Rows, step: int) -> Message:
    comm.step = step
    C = make()
    C.bind(SIZES, comm.noise)
    return C.encode(normal(comm.size, sum(SIZES), seed=step))


def decoded(message: Message) -> Tensor:
    """What each rank's message says, one after the other."""
    each = []
    for buffer in message.buffer:
        out = torch.zeros(sum(SIZES), dtype=torch.float64)
        message.codec.add_to(out, message.with_buffer(buffer))
        each.append(out)
    return torch.stack(each)


def weights(graph: Topology, step: int) -> Tensor:
    return torch.from_numpy(graph.at(step).matrix.copy())


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_mix_adds_the_weighted_messages_of_every_phase(graph: Topology, compressor: str) -> None:
    comm = Rows(graph, seed=3)
    for step in range(1, 2 * graph.period + 2):
        message = encoded(COMPRESSORS[compressor], comm, step)
        out = before = normal(graph.size, sum(SIZES), seed=100)
        out = out.clone()
        comm.mix(message, out, 0.7)
        expected = before + 0.7 * weights(graph, step) @ decoded(message)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compressor", ["top-k", "random-k", "identity"])
@pytest.mark.parametrize("family", ["star", "one_peer_exponential"])
def test_one_message_is_mixed_twice_in_different_phases(family: str, compressor: str) -> None:
    comm = Rows(graph := Topology.named(family, 7))
    message = encoded(COMPRESSORS[compressor], comm, 1)
    says = decoded(message)
    for step in (1, 2, 1, 3):
        comm.step = step
        out = torch.zeros(7, sum(SIZES), dtype=torch.float64)
        comm.mix(message, out)
        torch.testing.assert_close(out, weights(graph, step) @ says, rtol=0, atol=1e-12)


def test_two_mixes_under_way_keep_their_own_phase() -> None:
    comm = Rows(graph := Topology.named("one_peer_exponential", 8))
    pending = [(step, m := encoded(Identity, comm, step), comm.mix_start(m)) for step in (1, 2, 3)]
    for step, message, mix in reversed(pending):
        out = torch.zeros(8, sum(SIZES), dtype=torch.float64)
        mix.add_to(out)
        torch.testing.assert_close(out, weights(graph, step) @ decoded(message), rtol=0, atol=1e-12)


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("alike", [True, False])
def test_a_sum_adds_every_message_to_every_row(size: int, compressor: str, alike: bool) -> None:
    comm = Rows(Topology.named("complete", size))
    message = encoded(COMPRESSORS[compressor], comm, 1)
    out = normal(1, sum(SIZES), seed=7).expand(size, -1).clone() if alike else normal(size, sum(SIZES), seed=7)
    expected = out + 0.25 * decoded(message).sum(0)
    comm.sum(message, out, 0.25)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    if alike:
        assert (out == out[0]).all(), "replicas stay equal to the last bit"
    out[0] += 1
    assert size == 1 or not (out == out[0]).all(), "each row has memory of its own"


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_bytes_are_those_of_a_message_for_each_neighbour_of_the_phase(graph: Topology, compressor: str) -> None:
    comm, expected = Rows(graph), 0
    for step in range(1, graph.period + 2):
        message = encoded(COMPRESSORS[compressor], comm, step)
        comm.mix(message, torch.zeros(graph.size, sum(SIZES), dtype=torch.float64))
        phase = graph.at(step)
        degrees = [len(phase.listeners(rank)) for rank in range(graph.size)]
        assert sum(degrees) == int((weights(graph, step).fill_diagonal_(0) != 0).sum())
        expected += sum(degrees) * message.nbytes
        assert comm.bytes_sent == expected


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("size", [1, 4])
def test_a_sum_costs_every_rank_one_message_and_a_rank_alone_nothing(size: int, compressor: str) -> None:
    comm = Rows(Topology.named("complete", size))
    message = encoded(COMPRESSORS[compressor], comm, 1)
    comm.sum(message, torch.zeros(size, sum(SIZES), dtype=torch.float64))
    one = 8 * sum(SIZES) if compressor == "identity" else message.nbytes
    assert one == sum_bytes(message)
    assert comm.bytes_sent == (4 * one if size == 4 else 0)


def test_draws_are_those_of_each_rank_and_change_with_the_step() -> None:
    comm, like = Rows(Topology.named("ring", 3), seed=5), torch.zeros(3, 50, dtype=torch.float64)
    comm.step = 1
    first, again = comm.noise(like), comm.noise(like)
    comm.step = 2
    assert torch.equal(first, again)
    assert not torch.equal(first, comm.noise(like))
    assert len(first.flatten().unique()) == 150, "no rank draws what another does"


def test_no_matrix_of_all_pairs_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Topology) -> None:
        raise AssertionError(f"n x n weights of {graph.name}")

    graphs = [Topology.named(family, 1001) for family in ("ring", "star", "torus", "one_peer_exponential")]
    monkeypatch.setattr(Topology, "matrix", property(refuse))
    for graph in graphs:
        comm = Rows(graph)
        for step in range(1, graph.period + 1):
            comm.step = step
            C = TopK(0.5)
            message = C.encode(torch.ones(1001, 4))
            out = torch.zeros(1001, 4)
            comm.mix(message, out)
            assert out.sum() == pytest.approx(2 * 1001, rel=1e-4)


def test_messages_of_another_number_of_ranks_are_refused() -> None:
    comm, message = Rows(Topology.named("ring", 4)), Identity().encode(torch.zeros(3, 5))
    with pytest.raises(UserError, match=r"one row for each of 4 ranks: got a message with the leading shape \(3,\)"):
        comm.mix(message, torch.zeros(3, 5))
    with pytest.raises(UserError, match="one row for each of 4 ranks"):
        comm.sum(message, torch.zeros(3, 5))
