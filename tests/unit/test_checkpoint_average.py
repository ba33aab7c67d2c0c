"""The averaged model of a checkpoint, and the overview of what is in it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from mpidec import CHOCO, DistributedOptimizer, UserError, World, run_on_threads
from mpidec.train.checkpoint.average import Mean, average
from mpidec.train.checkpoint.overview import inspect, show
from mpidec.train.checkpoint.store import Checkpoints
from mpidec.train.data.dataset import Split
from mpidec.train.evaluate import evaluate
from mpidec.transport.base import Transport
from support.checkpoints import about, on_ranks, save, state_of, step
from support.problems import net
from support.training import train


def models(run: Path, made: list[dict[str, Any]]) -> None:
    """A checkpoint after step 1 of these models."""

    def work(transport: Transport) -> None:
        Checkpoints(run, transport, 1).save({"model": made[transport.rank]}, about(1))

    on_ranks(len(made), work)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    on_ranks(3, lambda transport: save(transport, tmp_path / "run", 1, 2))
    return tmp_path / "run"


def test_the_mean_of_all_ranks(run: Path) -> None:
    mean = average(run)
    assert type(mean) is dict
    assert torch.equal(mean["weight"], torch.full((2, 3), 21.0))
    assert torch.equal(mean["frozen"], torch.full((3,), 0.1))
    assert torch.equal(mean["running_var"], torch.ones(3))
    assert torch.equal(mean["count"], torch.tensor(5))
    assert torch.equal(average(step(run, 1))["weight"], torch.full((2, 3), 11.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_lose_nothing_and_the_dtype_stays(tmp_path: Path, dtype: torch.dtype) -> None:
    large = 1e300 if dtype == torch.float64 else 0.9 * torch.finfo(dtype).max
    made = [{"x": torch.full((5,), value, dtype=dtype)} for value in (large, large, large / 2, 0.25)]
    models(tmp_path, made)
    mean = average(tmp_path)["x"]
    assert mean.dtype == dtype
    expected = torch.stack([one["x"].double() for one in made]).mean(0).to(dtype)
    assert torch.equal(mean, expected)
    assert mean.isfinite().all()


def test_what_is_the_same_everywhere_stays_to_the_bit(tmp_path: Path) -> None:
    value = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    models(tmp_path, [{"x": value, "flag": torch.tensor(True), "extra": "text"}] * 3)
    mean = average(tmp_path)
    assert torch.equal(mean["x"], value)
    assert mean["flag"].item() is True
    assert mean["extra"] == "text"


def test_a_view_of_a_large_tensor_takes_only_its_part(tmp_path: Path) -> None:
    flat = torch.arange(1000.0)
    models(tmp_path, [{"x": flat[:10]}] * 2)
    assert average(tmp_path)["x"].untyped_storage().nbytes() == 40


def test_every_file_is_needed(run: Path) -> None:
    (step(run, 2) / "rank-0001.pt").unlink()
    with pytest.raises(UserError, match=r"lacks rank-0001.pt: the average needs the files of all 3 ranks, so copy"):
        average(run)
    (step(run, 2) / "rank-0001.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"rank-0001.pt has 0 bytes, and [\d,]+ were written"):
        average(run)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"x": torch.ones(3)}, r"'x' is \[3\] of torch.float32 on rank 1, and \[2\] of torch.float32 on the first"),
        ({"x": torch.ones(2).double()}, r"'x' is \[2\] of torch.float64 on rank 1"),
        ({"y": torch.ones(2)}, "'x' is missing on rank 1"),
        ({"x": torch.ones(2), "y": 1}, "'y' is int on rank 1, and missing on the first"),
    ],
)
def test_different_models_have_no_mean(tmp_path: Path, other: dict[str, Any], sentence: str) -> None:
    models(tmp_path, [{"x": torch.ones(2)}, other])
    with pytest.raises(UserError, match=sentence):
        average(tmp_path)


def test_the_distance_is_that_from_the_mean_also_far_from_zero() -> None:
    mean, generator = Mean(), torch.Generator().manual_seed(0)
    made = [1e6 + torch.randn(50, dtype=torch.float64, generator=generator) for _ in range(5)]
    for rank, x in enumerate(made):
        mean.add({"x": x, "buffer": torch.tensor([1e9 * rank])}, rank)
    X = torch.stack(made)
    expected = float((X - X.mean(0)).square().sum(1).mean().sqrt())
    assert mean.distance(["x"]) == pytest.approx(expected, rel=1e-9)


def test_the_overview_tells_what_the_job_measures(tmp_path: Path) -> None:
    def work(world: World) -> float:
        model = net()
        model.add_module("3", torch.nn.BatchNorm1d(3))
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), model, CHOCO())
        train(world.rank, model, optimizer, 1, 5)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "position": {"epoch": 1}}
        Checkpoints(tmp_path, world.transport, 1).save(state, about(5))
        test = Split(torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64))
        return evaluate(world.transport, model, optimizer.flat, test).consensus_distance

    measured = run_on_threads(work, 4)
    report = inspect(tmp_path)
    assert report["consensus_distance"] == pytest.approx(measured[0], rel=1e-5)
    parameters = sum(p.numel() for p in net().parameters()) + 6
    assert report["parameters"]["count"] == parameters
    assert report["buffers"].keys() == {"x_hat", "mixed"}
    assert report["buffers"]["x_hat"]["entries"] == parameters
    assert report["parts"]["model"] == 4 * parameters + 24 + 8
    assert report["parts"]["optimizer, local"] == 4 * parameters
    assert report["parts"]["optimizer, algorithm"] == 2 * 4 * parameters


def test_the_overview_of_a_whole_checkpoint(run: Path) -> None:
    report = inspect(run)
    assert (report["step"], report["ranks"], report["ranks_read"], report["whole"]) == (2, 3, 3, True)
    assert report["buffers"]["x_hat"]["norm"] == {
        "mean": pytest.approx(math.sqrt(6)),
        "min": 0.0,
        "max": pytest.approx(2 * math.sqrt(6)),
    }
    assert report["consensus_distance"] == pytest.approx(2.0)
    assert report["size"] == sum(path.stat().st_size for path in step(run, 2).glob("*.pt"))
    assert [one["state"] for one in report["others"]] == ["all there"]
    text = show(report)
    for words in (
        "algorithm           choco",
        "6 of float32",
        "all are what was saved",
        "x_hat     6",
        "step-00000001",
    ):
        assert words in text


def test_the_overview_of_a_damaged_one(run: Path) -> None:
    (step(run, 2) / "rank-0000.pt").unlink()
    content = (step(run, 2) / "rank-0002.pt").read_bytes()
    (step(run, 2) / "rank-0002.pt").write_bytes(content[:-1] + b"x")
    (step(run, 1) / "rank-0001.pt").write_bytes(b"")
    (step(run, 7)).mkdir()
    (step(run, 8)).mkdir()
    (step(run, 8) / "manifest.json").write_text("")
    report = inspect(run)
    assert [bool(one["wrong"]) for one in report["files"]] == [True, False, True]
    assert not report["whole"]
    assert report["ranks_read"] == 1
    assert [one["state"] for one in report["others"]] == [
        "1 of 3 are missing or cut off",
        "never finished",
        "manifest broken",
    ]
    text = show(report)
    for words in ("2 of 3 are missing or damaged", "0 over the 1 of 3 ranks", "is missing", "(its sha256 differs)"):
        assert words in text


def test_the_overview_where_no_file_can_be_read(run: Path) -> None:
    for path in step(run, 2).glob("*.pt"):
        path.unlink()
    report = inspect(run)
    assert report["consensus_distance"] is None
    assert "3 of 3 are missing" in show(report)


def test_a_model_that_has_diverged_is_shown(tmp_path: Path) -> None:
    def work(transport: Transport) -> None:
        state = state_of(transport.rank, 1)
        if transport.rank == 1:
            state["model"]["weight"][0, 0] = math.inf
            state["optimizer"]["algorithm"]["x_hat"]["weight"][0, 0] = math.nan
        Checkpoints(tmp_path, transport, 1).save(state, about(1))

    on_ranks(2, work)
    report = inspect(tmp_path)
    assert report["consensus_distance"] is None
    assert "consensus distance  not finite" in show(report)
    assert [line.split()[3] for line in show(report).splitlines() if line.startswith("x_hat")] == ["not"]
    assert report["whole"]
