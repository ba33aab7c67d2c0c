"""Logistic regression in the simulation: gradients, optimum, data, textbook descents, and the command."""

from __future__ import annotations

import bz2
import dataclasses
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import dump_svmlight_file

from mpidec import Topology, UserError, cli
from mpidec.simulate import __main__ as command
from mpidec.simulate import options, regression
from mpidec.simulate.logistic import Descent, simulate
from mpidec.simulate.regression import PRECISION, Regression, Vector, load, optimum
from mpidec.train.config import Config

PLAIN = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
BUNDLED = load("breast-cancer")


def random_problem(samples: int, features: int, regularization: float = 0.1) -> Regression:
    """Half of the entries are 0, but not the corner that shows how many features there are; a file holds all digits."""
    random = np.random.default_rng(0)
    dense = random.normal(size=(samples, features)).round(3) * (random.random((samples, features)) < 0.5)
    dense[-1, -1] = 1.0
    labels = np.where(dense @ random.normal(size=features) + random.normal(size=samples) > 0, 1.0, -1.0)
    return Regression(csr_matrix(dense), labels, regularization)


def written(place: Path, problem: Regression, labels: Vector | None = None) -> str:
    path = str(place / "data.svm")
    dump_svmlight_file(problem.features, problem.labels if labels is None else labels, path)
    return path


def test_gradients_are_those_of_autograd() -> None:
    problem, ranks, batch = random_problem(40, 7), 5, 3
    random = np.random.default_rng(1)
    x, samples = random.normal(size=(ranks, 7)), random.integers(0, 40, (ranks, batch))
    weights = random.uniform(0.5, 2.0, ranks)
    models = torch.from_numpy(x.copy()).requires_grad_()
    features, labels = torch.from_numpy(problem.features.toarray()), torch.from_numpy(problem.labels)
    for rank in range(ranks):
        margins = labels[samples[rank]] * (features[samples[rank]] @ models[rank])
        loss = weights[rank] * torch.log1p(torch.exp(-margins)).mean() + 0.1 / 2 * models[rank].square().sum()
        loss.backward()
    assert models.grad is not None
    np.testing.assert_allclose(problem.gradients(x, samples, weights), models.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_the_gradient_and_the_hessian_are_those_of_the_objective() -> None:
    problem, random = random_problem(30, 6), np.random.default_rng(2)
    x, direction = random.normal(size=6), random.normal(size=6)
    at = torch.from_numpy(x).requires_grad_()

    def objective(at: torch.Tensor) -> torch.Tensor:
        margins = torch.from_numpy(problem.labels) * (torch.from_numpy(problem.features.toarray()) @ at)
        return torch.log1p(torch.exp(-margins)).mean() + 0.1 / 2 * at @ at

    (gradient,) = torch.autograd.grad(objective(at), at)
    hessian = torch.autograd.functional.hessian(objective, at)
    assert problem.objective(x) == pytest.approx(objective(at).item(), rel=1e-14)
    np.testing.assert_allclose(problem.gradient(x), gradient.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(problem.hessian_product(x, direction), hessian.numpy() @ direction, rtol=1e-12)


@pytest.mark.parametrize("problem", [BUNDLED, random_problem(60, 9, 1e-4)], ids=["bundled", "sparse"])
def test_the_optimum_is_that_of_a_dense_newton_method(problem: Regression) -> None:
    a, b, x = problem.features.toarray(), problem.labels, np.zeros(problem.size[1])
    for _ in range(200):
        probability = 1 / (1 + np.exp(b * (a @ x)))
        gradient = -(a.T @ (b * probability)) / len(b) + problem.regularization * x
        hessian = (a.T * (probability * (1 - probability))) @ a / len(b) + problem.regularization * np.eye(len(x))
        step = np.linalg.solve(hessian, gradient)
        # Damped by the Newton decrement, so that it converges from anywhere.
        x = x - step / (1 + float(step @ hessian @ step) ** 0.5)
    found = optimum(problem)
    assert found.certificate <= PRECISION
    assert abs(found.objective - problem.objective(x)) < 1e-13
    np.testing.assert_allclose(found.x, x, atol=1e-8)


def test_the_certificate_bounds_what_a_solver_left(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = optimum(BUNDLED).objective
    monkeypatch.setattr(regression, "POLISHES", 0)
    rough = optimum(BUNDLED)
    assert 0 < rough.objective - exact <= rough.certificate <= PRECISION
    monkeypatch.setattr(regression, "ROUNDS", 1)
    with pytest.raises(UserError, match=r"0\.00175747 the optimum is known to .* only, where 1e-10 is needed"):
        optimum(BUNDLED)


@pytest.mark.parametrize("classes", [(-1, 1), (0, 1), (2, 4), (1, -3)])
def test_a_file_gives_the_result_of_the_data_it_was_written_from(classes: tuple[int, int], tmp_path: Path) -> None:
    problem = random_problem(40, 7, 1 / 40)
    low, high = sorted(classes)
    read = load(written(tmp_path, problem, np.where(problem.labels > 0, high, low)))
    packed = tmp_path / "data.svm.bz2"
    packed.write_bytes(bz2.compress((tmp_path / "data.svm").read_bytes()))
    for features in (read.features, load(str(packed)).features):
        assert (features != problem.features).nnz == 0
    assert (read.labels == problem.labels).all()
    assert read.regularization == 1 / 40
    assert optimum(read).objective == pytest.approx(optimum(problem).objective, abs=1e-15)


def test_the_bundled_data_are_standardised() -> None:
    features = BUNDLED.features.toarray()
    assert (features.shape, BUNDLED.regularization) == ((569, 30), 1 / 569)
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-13)
    np.testing.assert_allclose(features.std(0), 1, atol=1e-13)


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("partition", ["iid", "sorted"])
def test_allreduce_with_full_batches_is_gradient_descent(ranks: int, partition: str) -> None:
    problem, decay, x = random_problem(40, 7), 0.1, np.zeros(7)
    config = Config(
        algorithm="allreduce", lr=0.5, batch_size=40 // ranks, partition=partition, dtype="float64", **PLAIN
    )
    descent = Descent(config, Topology.named("complete", ranks), problem, decay)
    for t in descent.steps(30):
        x = x - 0.5 / (1 + decay * (t - 1)) * problem.gradient(x)
    np.testing.assert_allclose(descent.x.detach().numpy(), np.tile(x, (ranks, 1)), rtol=0, atol=1e-12)


def test_ranks_with_fewer_samples_weigh_less() -> None:
    """The mean of all gradients of an epoch at one point is the gradient of the objective, for any number of ranks."""
    problem, ranks = random_problem(41, 7), 4
    descent = Descent(Config(partition="sorted", batch_size=1, **PLAIN), Topology.named("ring", ranks), problem)
    x = np.random.default_rng(3).normal(size=7)
    shares = [np.unique([int(batch) for batch in descent.shards.batches(1, rank)]) for rank in range(ranks)]
    assert sorted(len(share) for share in shares) == [10, 10, 10, 11]
    everyone, one = np.tile(x, (ranks, 1)), np.ones((ranks, 1), dtype=int)
    means = [
        np.mean([problem.gradients(everyone, k * one, descent.weights)[rank] for k in share], axis=0)
        for rank, share in enumerate(shares)
    ]
    np.testing.assert_allclose(np.mean(means, axis=0), problem.gradient(x), rtol=1e-12, atol=1e-14)


def test_sorted_gives_ranks_one_class_and_iid_does_not() -> None:
    def pure(partition: str) -> int:
        shards = Descent(Config(partition=partition, batch_size=1, **PLAIN), Topology.named("ring", 16), BUNDLED).shards
        own = [{int(shards.labels[batch]) for batch in shards.batches(1, rank)} for rank in range(16)]
        return sum(len(classes) == 1 for classes in own)

    assert pure("sorted") == 15  # 212 of 569 samples are of the first class, and end within the shard of one rank
    assert pure("iid") == 0


def run(place: Path, **changes: Any) -> list[dict[str, Any]]:
    short: dict[str, Any] = {"epochs": 3, "ranks": (8,), "batch_size": 4, "out": place / "out"}
    simulate(dataclasses.replace(options.Logistic(), **short | changes))
    return [json.loads(line) for line in (place / "out" / "results.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def test_the_command_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = random_problem(40, 10)
    given = f"--ranks 4 --epochs 5 --batch-size 2 --lr 0.5 0.001 --algorithm dpsgd choco --seed 3 --out {tmp_path}/out"
    monkeypatch.setattr(sys, "argv", ["simulate", "logistic", *given.split(), "--data", written(tmp_path, problem)])
    monkeypatch.setattr(cli, "launched", lambda: None)  # each rank of a suite under a launcher runs its own
    command.main()
    assert (tmp_path / "out" / "logistic.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [(row["algorithm"], row["lr"]) for row in rows] == list(product(("dpsgd", "choco"), (0.5, 0.001)))
    best = optimum(dataclasses.replace(problem, regularization=1 / 40))
    for row in rows:
        assert row["optimum"] == pytest.approx(best.objective, abs=1e-14)
        assert row["certificate"] <= PRECISION
        assert row["kept"] == (row["lr"] == 0.5)
        assert (row["epochs"][0], row["epochs"][-1]) == (0, 5)
        assert row["suboptimality"][0] == pytest.approx(np.log(2) - best.objective)
        assert -1e-12 < row["suboptimality"][-1] < row["suboptimality"][0]
        lengths = {len(row[name]) for name in ("epochs", "suboptimality", "bytes_per_rank", "consensus_distance")}
        assert lengths == {14}, "the start, every other step of 25, and the end"
    assert rows[0]["bytes_per_rank"][-1] == 25 * 2 * (16 + 10 * 8), "to two neighbours, 16 bytes of header"
    assert "objective - optimum" in (shown := capsys.readouterr().out)
    assert f"{rows[0]['suboptimality'][-1]:.2e}" in shown


def test_a_run_that_diverges_is_a_result(tmp_path: Path) -> None:
    rows = run(tmp_path, algorithm=("dpsgd",), lr=(1e300, 0.1, 1e5))
    assert [row["diverged"] for row in rows] == [True, False, True]
    assert [row["kept"] for row in rows] == [False, True, False]
    (alone,) = run(tmp_path / "alone", algorithm=("dcd",), lr=(1e300,), ranks=(1,))
    assert (alone["diverged"], alone["kept"]) == (True, True)


WRONG = {
    "--epochs must be at least 1: got 0": {"epochs": 0},
    "--batch-size must be at least 1: got 0": {"batch_size": 0},
    "--lr must be above 0 and finite: got -1": {"lr": (0.1, -1.0)},
    "--lr needs one value": {"lr": ()},
    "--decay must be at least 0 and finite: got -0.1": {"decay": -0.1},
    "--decay must be at least 0 and finite: got nan": {"decay": float("nan")},
    "--regularization must be above 0 and finite: got 0": {"regularization": 0.0},
    "--partition is iid, fixed, sorted": {"partition": "odd"},
    "570 ranks cannot share 569 training samples": {"ranks": (2, 570)},
    "a batch of 73 is larger": {"batch_size": 73},
    "breast-cancer or the path of a LIBSVM file: got nowhere, which does not exist": {"data": "nowhere"},
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_options_are_refused_before_anything_is_written(sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path, **WRONG[sentence])
    assert sentence in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no samples"),
        (b"1\n-1\n", "holds no features"),
        (b"1 1:1\n1 2:1\n", "needs two classes, but .* has 1 \\(1\\)"),
        (b"1 1:1\n2 2:1\n3 2:1\n", "needs two classes, but .* has 3 \\(1, 2, 3\\)"),
        (b"1 1:nan\n2 2:1\n", "holds NaN or infinity"),
        (b"nan 1:1\n2 2:1\n", "holds NaN or infinity"),
        (b"1 1:a\n2 2:1\n", "cannot be read as a LIBSVM file, .*: could not convert"),
        (b"1 99999999999999:1\n2 2:1\n", "cannot be read as a LIBSVM file"),
        (b"\x1f\x8b\x08\x00", "cannot be read as a LIBSVM file"),
    ],
)
def test_files_that_are_no_two_classes(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / ("data.gz" if content.startswith(b"\x1f") else "data.svm")
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence) as refused:
        load(str(path))
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=r"LIBSVM file, .*: Is a directory"):
        load(str(tmp_path))
