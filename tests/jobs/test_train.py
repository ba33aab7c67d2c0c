"""The main job, started as users start it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.jobs import alone, mpirun

TRAIN = ("-m", "mpidec.train")
SHORT = ("--epochs", "2", "--batch-size", "32")
D = 64 * 128 + 128 + 128 * 10 + 10  # parameters of the default network, in four segments
SIGN_BYTES = 16 + -(-D // 64) * 8 + 4 * 4
SUMMARY = {
    "test_loss",
    "status",
    "algorithm",
    "compressor",
    "topology",
    "ranks",
    "gamma",
    "steps",
    "epochs",
    "test_accuracy",
    "test_accuracy_local",
    "train_loss",
    "consensus_distance",
    "bytes_sent_per_rank",
    "bytes_per_step",
    "seconds",
    "steps_per_second",
    "phases",
    "parameters_digest",
    "collectives",
    "mpi",
    "horovod",
    "versions",
}
METRICS = {
    "epoch",
    "step",
    "lr",
    "train_loss",
    "train_loss_local",
    "test_loss",
    "test_loss_local",
    "test_accuracy",
    "test_accuracy_local",
    "consensus_distance",
    "bytes_sent",
    "seconds",
    "phases",
    "phases_max",
}


def train(ranks: int, out: Path, *options: str, **environ: str) -> dict[str, Any]:
    """The summary of a completed run."""
    arguments = (*TRAIN, *options, "--out", str(out))
    done = mpirun(ranks, *arguments, cwd=out.parent, **environ) if ranks else alone(*arguments, cwd=out.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((out / "summary.json").read_text())


def test_four_ranks_leave_a_complete_and_repeatable_record(tmp_path: Path) -> None:
    out = tmp_path / "run"
    summary = train(4, out, *SHORT)
    assert set(summary) == SUMMARY
    assert sorted(path.name for path in out.iterdir()) == [
        "config.yaml",
        "labels.json",
        "metrics.jsonl",
        "summary.json",
    ]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [set(line) for line in lines] == [METRICS, METRICS]
    assert [line["epoch"] for line in lines] == [1, 2]

    steps = 2 * 12  # 1,438 training samples in shards of 360
    assert (summary["status"], summary["steps"], summary["epochs"], summary["ranks"]) == ("completed", steps, 2, 4)
    assert (summary["algorithm"], summary["compressor"], summary["topology"]) == ("choco", "sign", "ring")
    assert summary["bytes_per_step"] == 2 * SIGN_BYTES
    assert summary["bytes_sent_per_rank"] == lines[-1]["bytes_sent"] == steps * 2 * SIGN_BYTES
    local = summary["test_accuracy_local"]
    assert 0.3 < local["min"] <= local["mean"] <= local["max"] <= 1
    assert summary["consensus_distance"] > 0
    phases = {"data", "forward_backward", "local_step", "algorithm", "exchange", "evaluate"}
    assert set(summary["phases"]) == phases
    assert 0.5 * summary["seconds"] <= sum(summary["phases"].values()) <= 1.1 * summary["seconds"]
    assert summary["collectives"] == "none"
    assert "MPI" in summary["mpi"]

    config = yaml.safe_load((out / "config.yaml").read_text())
    assert (config["gamma"], config["epochs"], config["momentum"]) == (summary_gamma(), 2, 0.9)
    again = train(4, tmp_path / "again", "--config", str(out / "config.yaml"))
    assert again["parameters_digest"] == summary["parameters_digest"]
    other = train(4, tmp_path / "other", "--config", str(out / "config.yaml"), "--seed", "1")
    assert other["parameters_digest"] != summary["parameters_digest"]


def summary_gamma() -> float:
    from mpidec.optim import ALGORITHMS

    return ALGORITHMS["choco"].options["gamma"]


@pytest.mark.parametrize("collectives", ["horovod", "mpi"])
def test_allreduce(collectives: str, tmp_path: Path) -> None:
    if collectives == "horovod":
        pytest.importorskip("horovod", reason="Horovod is not installed")
    options = (*SHORT, "--algorithm", "allreduce", "--collectives", collectives)
    summary = train(4, tmp_path / "run", *options)
    assert (summary["collectives"], summary["topology"]) == (collectives, "complete")
    assert summary["consensus_distance"] < 1e-5
    assert summary["bytes_per_step"] == 4 * D + 5, "the gradient, and which of four tensors have one, and any overflow"
    assert summary["test_accuracy"] > 0.6
    again = train(4, tmp_path / "again", *options)
    assert again["parameters_digest"] == summary["parameters_digest"]


@pytest.mark.parametrize(
    ("options", "bytes_per_step"),
    [
        (("--algorithm", "dpsgd"), 2 * (16 + 4 * D)),
        (("--algorithm", "dpsgd", "--order", "combine-then-adapt", "--compressor", "bf16"), 2 * (16 + 2 * D + 4)),
        (("--compressor", "top-k", "--ratio", "0.05", "--topology", "torus"), None),
        (("--compressor", "qsgd", "--bits", "4", "--topology", "expander"), None),
    ],
    ids=["dpsgd", "dpsgd-bf16", "top-k", "qsgd"],
)
def test_other_settings_on_three_ranks(options: tuple[str, ...], bytes_per_step: int | None, tmp_path: Path) -> None:
    summary = train(3, tmp_path / "run", *SHORT, *options)
    assert summary["test_accuracy"] > 0.5
    if bytes_per_step:
        assert summary["bytes_per_step"] == bytes_per_step


def test_one_rank_with_and_without_a_launcher(tmp_path: Path) -> None:
    without, with_ = train(0, tmp_path / "without", *SHORT), train(1, tmp_path / "with", *SHORT)
    assert (without["ranks"], without["mpi"]) == (1, "none")
    assert without["bytes_sent_per_rank"] == with_["bytes_sent_per_rank"] == 0
    assert without["parameters_digest"] == with_["parameters_digest"]


def test_the_literal_default_on_sixteen_ranks(tmp_path: Path) -> None:
    summary = train(16, tmp_path / "run")
    assert summary["test_accuracy"] >= 0.95
    assert summary["bytes_per_step"] == 2 * SIGN_BYTES


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_default_over_five_seeds(tmp_path: Path) -> None:
    accuracies = [train(16, tmp_path / f"{seed}", "--seed", f"{seed}")["test_accuracy"] for seed in range(5)]
    assert min(accuracies) >= 0.95, accuracies
    assert sum(accuracies) / 5 >= 0.96, accuracies


def test_results_have_a_place_of_their_own_by_default(tmp_path: Path) -> None:
    done = alone(*TRAIN, *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-choco-sign-ring-n1")
    assert done.stdout.count("\nepoch ") == 2
    assert "accuracy, averaged model" in done.stdout
    assert "\r" not in done.stdout + done.stderr, "a bar on what is no terminal"
