"""The projection to thousands of ranks: the model by hand, its bytes as they are sent, and what the command writes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mpidec import Rows, Topology, UserError, compressor
from mpidec.simulate import ping
from mpidec.simulate.costs import GRAPHS, Cost, Model, Traffic, all_reduce, broadcasts, degree, gossip, shorter
from mpidec.simulate.options import Scale
from mpidec.simulate.scale import simulate
from mpidec.world import run_on_threads

SMALL = Scale(ranks=(4, 2, 5), parameters=1000, compute=0.01, latency=1e-3, bandwidth=1e6, local_bandwidth=1e7)


def model(**changed: object) -> Model:
    """1000 entries, 1 ms of latency; the messages of sign have 16 + 128 + 8 bytes."""
    return replace(Model.of(SMALL, compressor("sign")), **changed)


def test_traffic_by_hand() -> None:
    assert gossip(3, 100) == Traffic(1, 300)
    assert gossip(0, 100) == Traffic(0, 0)
    assert all_reduce(1, 800) == Traffic(0, 0)
    assert all_reduce(8, 800) == Traffic(6, 1400)  # the ring would take 14 rounds
    assert all_reduce(5, 1000) == Traffic(6, 1600)
    assert broadcasts(8, 800) == (Traffic(3, 2400), Traffic(6, 1400))
    assert Traffic(3, 2400).seconds(latency=0.5, bandwidth=1000) == pytest.approx(1.5 + 2.4)


def test_steps_by_hand() -> None:
    dense, packed = 16 + 4000, 16 + 128 + 8
    summed = model().all_reduce(4)
    assert summed.step(1e6) == pytest.approx(0.01 + 4 * 1e-3 + 1.5 * 4000 / 1e6)
    assert summed.communication(1e6) == pytest.approx(4 * 1e-3 + 1.5 * 4000 / 1e6)
    mixed = model().gossip(2, compressed=False)
    assert mixed.step(1e6) == pytest.approx(0.01 + 1e-3 + 2 * dense / 1e6)
    mixed = model(encode=0.25).gossip(2, compressed=True)
    assert mixed.step(1e6) == pytest.approx(0.01 + 0.25 + 1e-3 + 2 * packed / 1e6)
    assert model(encode=0.25).gossip(2, compressed=False).fixed == 1e-3
    assert model(encode=0.25).gossip(0, compressed=True).step(1e6) == 0.01, "alone there is nothing to encode"


def test_hierarchical_by_hand() -> None:
    packed = 16 + 128 + 8
    # 3 hosts of 4, 4 and 2 ranks: the fullest sums in 4 rounds; each host has 2 neighbours; a tree of 2 rounds.
    cost = model(ranks_per_host=4).hierarchical(10)
    inside, tree = 4 * 1e-3 + 1.5 * 4000 / 1e7, 2 * (1e-3 + 4000 / 1e7)
    assert cost.degree == 2
    assert cost.step(1e6) == pytest.approx(0.01 + inside + 1e-3 + 2 * packed / 1e6 + tree)
    assert (cost.nbytes, cost.local_bytes) == (2 * packed, 1.5 * 4000 + 2 * 4000)
    long = model(ranks_per_host=4, local_bandwidth=1e5).hierarchical(10)
    assert long.local_bytes == 2 * 1.5 * 4000, "long messages are scattered and gathered"
    one_host = model(ranks_per_host=4).hierarchical(4)
    assert one_host.step(1e6) == pytest.approx(0.01 + inside)
    alone = model(ranks_per_host=1).hierarchical(8)
    assert alone == model().gossip(2, compressed=True), "hosts of one rank are a ring"


def test_times_grow_with_ranks_parameters_and_latency_and_shrink_with_bandwidth() -> None:
    def steps(model: Model, bandwidth: float = 1e6) -> list[float]:
        over_hosts = range(9, 40)  # a single host does not use the network
        costs = [over(n) for over in (model.all_reduce, model.hierarchical) for n in over_hosts]
        costs += [model.gossip(k, compressed) for compressed in (True, False) for k in range(1, 5)]
        return [cost.step(bandwidth) for cost in costs]

    base = steps(model())
    for dearer in (steps(model(parameters=2000)), steps(model(latency=2e-3)), steps(model(), 5e5)):
        assert all(more > less for more, less in zip(dearer, base, strict=True))
    for line in (base[:31], base[31:62], base[62:66], base[66:]):
        assert line == sorted(line)


@pytest.mark.parametrize("name", ["identity", "sign", "top-k", "qsgd"])
@pytest.mark.parametrize("family", GRAPHS)
def test_bytes_are_those_that_mixing_sends(family: str, name: str) -> None:
    graph, codec = Topology.named(GRAPHS[family], 9), compressor(name)
    comm = Rows(graph)
    comm.step = 1
    x = torch.randn(9, 1000)
    comm.mix(codec.encode(x), x.clone())
    cost = Model.of(SMALL, codec).gossip(degree(graph), compressed=True)
    assert 9 * cost.nbytes == comm.bytes_sent


def test_the_busiest_rank_decides() -> None:
    assert degree(Topology.named("star", 6)) == 5
    shouts = Topology.from_matrix([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]], check=False)
    assert degree(shouts) == 2, "rank 0 listens to nobody and sends to both"


@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("encode", [0.0, 0.02])
def test_the_lines_cross_at_the_bandwidth_that_is_named(margin: float, encode: float) -> None:
    made = model(parameters=10**6, encode=encode, latency=1e-6, compute=0.1)
    one, other = made.gossip(2, compressed=True), made.all_reduce(64)
    between = shorter(one, other, margin)
    assert between is not None
    lowest, highest = between
    assert lowest == 0
    if not margin and not encode:
        assert highest == math.inf, "fewer rounds and fewer bytes"
        return
    assert other.step(highest) == pytest.approx((1 + margin) * one.step(highest), rel=1e-12)
    assert other.step(0.99 * highest) > (1 + margin) * one.step(0.99 * highest)
    assert other.step(1.01 * highest) < (1 + margin) * one.step(1.01 * highest)


def test_which_bandwidths_make_a_step_shorter() -> None:
    quick, small = Cost(1, 0.0, 1.0, 100.0), Cost(1, 0.0, 2.0, 50.0)
    assert shorter(quick, small) == (50.0, math.inf)
    assert shorter(small, quick) == (0.0, 50.0)
    assert shorter(quick, quick) is None
    assert shorter(quick, Cost(1, 0.0, 1.0, 200.0)) == (0.0, math.inf)
    assert shorter(small, Cost(1, 0.0, 1.0, 40.0)) is None


def test_the_command_writes_records_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    simulate(replace(SMALL, compute=0.011, compressor="TopK", ratio=0.1, ranks_per_host=2, out=tmp_path / "out"))
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.jsonl", "scale.png"]
    assert (tmp_path / "out" / "scale.png").read_bytes().startswith(b"\x89PNG")
    assert len(records) == 10 * 3
    by_name = {(record["method"], record["ranks"]): record for record in records}
    ring = by_name["ring, top-k", 4]
    nbytes = 2 * (16 + 100 * 4 + 128)  # a bitmap is shorter than 100 places
    assert (ring["degree"], ring["bytes_per_rank"], ring["compressor"]) == (2, nbytes, "top-k")
    assert ring["seconds_communication"] == pytest.approx(1e-3 + nbytes / 1e6)
    assert ring["seconds_step"] == pytest.approx(0.012 + nbytes / 1e6)
    assert ring["steps_per_second"] == pytest.approx(1 / ring["seconds_step"])
    assert by_name["one-peer", 4]["degree"] == 1
    hosts = by_name["hierarchical, top-k", 4]  # two ranks sum 4000 bytes, then one sends as many to the other
    assert (hosts["bytes_inside_host"], hosts["bytes_per_rank"]) == (8000, 8000 + nbytes / 2)
    assert by_name["all-reduce", 4]["degree"] is None
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if line.split()[:1] in (["2"], ["4"], ["5"])]
    assert [row[0] for row in rows] == ["2", "4", "5"]
    assert rows[1][1] == f"{by_name['all-reduce', 4]['seconds_step'] * 1e3:.4g}"
    assert rows[1][-2:] == ["one-peer,", "top-k"]
    assert "  expander in place of all-reduce: n = 4, 5\n" in shown
    # Over 4 ranks all-reduce takes 11 + 4 + 6 ms, the ring 11 + 1 + 8.032 ms, which is 4.8 % less.
    assert "  ring in place of all-reduce: n = 4\n" in shown
    assert "At n = 5 a step of all-reduce takes longer than one of the ring with top-k at every bandwidth" in shown


def test_ranks_alone_and_no_time_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    simulate(replace(SMALL, ranks=(1,), compute=0, out=tmp_path))
    assert "at no bandwidth" in capsys.readouterr().out
    assert '"steps_per_second": null' in (tmp_path / "results.jsonl").read_text()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"ranks": ()}, "--ranks needs one value at least"),
        ({"ranks": (4, 0)}, "--ranks must be 1 to 4096: got 0"),
        ({"ranks": (4097,)}, "--ranks must be 1 to 4096: got 4097"),
        ({"parameters": 0}, r"--parameters must be 1 to 1e\+15: got 0"),
        ({"compute": -1.0}, "--compute must be 0 to .* seconds: got -1.0"),
        ({"encode": math.inf}, "--encode must be 0 to .* seconds: got inf"),
        ({"latency": math.nan}, "--latency must be 0 to .* seconds: got nan"),
        ({"bandwidth": 0.0}, "--bandwidth must be 1 to .* bytes a second: got 0.0"),
        ({"local_bandwidth": math.inf}, "--local-bandwidth must be 1 to .* bytes a second: got inf"),
        ({"ranks_per_host": 0}, "--ranks-per-host must be 1 to 4096: got 0"),
        ({"compressor": "sine"}, "unknown compressor 'sine'"),
        ({"bits": 3}, "--bits belongs to the compressor qsgd, but this run uses sign: leave it out, or"),
        ({"ratio": 0.1}, "--ratio belongs to the compressors top-k, random-k, but this run uses sign"),
        ({"compressor": "qsgd", "bits": 9}, "--bits must be 1 to 8: got 9"),
        ({"compressor": "top-k", "ratio": 2.0}, "--ratio must be above 0 and at most 1: got 2.0"),
        ({"measure": True, "latency": 1.0}, "--measure finds the latency itself: leave out --measure or --latency"),
        ({"measure": True, "latency": Scale.latency, "bandwidth": 1.0}, "--measure finds the bandwidth itself"),
    ],
    ids=str,
)
def test_wrong_options(changed: dict[str, object], sentence: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match=sentence):
        simulate(replace(SMALL, **{"out": tmp_path / "out", **changed}))
    assert list(tmp_path.iterdir()) == []


def test_a_ping_is_half_of_a_round_trip_on_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ping, "REPEATS", {ping.SHORT: 5, ping.LONG: 3})
    found, *others = run_on_threads(lambda world: ping.measure(world.transport), 3)
    assert others == [None, None]
    assert found is not None
    assert 0 < found.latency < 1
    assert 0 < found.bandwidth < 1e13
    assert "of one host" in str(found)
    by_hand = ping.from_seconds(1e-3, 2e-3, ("a", "b"))
    assert by_hand.bandwidth == pytest.approx((2**23 - 8) / 1e-3)
    assert "latency 1000.0 us, bandwidth 8.39 GB/s, of the hosts a and b" in str(by_hand)
    with pytest.raises(UserError, match="too busy for a measurement"):
        ping.from_seconds(1e-3, 1e-3, ("a", "b"))
