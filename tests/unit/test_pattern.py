"""The table of algorithms and compressors: its runs, how a broken one shows, and in the long tests what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpidec import UserError
from mpidec.optim import ALGORITHMS
from mpidec.simulate import options, pattern
from mpidec.simulate.pattern import Job
from mpidec.train.config import Config


def test_every_cell_is_tried_with_every_rate_and_consensus_step() -> None:
    jobs = list(pattern._jobs(options.Pattern()))
    assert len({job.cell for job in jobs}) == 2 + 4 * 6
    of_choco = [job.config for job in jobs if job.cell == ("choco", "random-1 %")]
    assert {(c.lr, c.gamma) for c in of_choco} == {(lr, g) for lr in (0.03, 0.1, 0.3) for g in (0.03, 0.01, 0.003)}
    assert {job.config.contraction for job in jobs if job.cell == ("dcd", "qsgd, 4 bits")} == {False}
    assert {name for name, _ in pattern.PUBLISHED} <= set(ALGORITHMS)


def run(algorithm: str, compressor: str, **options_: object) -> dict[str, object]:
    config = Config(algorithm=algorithm, epochs=2, **pattern.COMPRESSORS[compressor], **options_)
    return pattern._run(Job((algorithm, compressor), config, 4))


def test_a_run_that_diverges_has_no_accuracy_and_one_that_does_not_has() -> None:
    lost, kept = run("dcd", "random-1 %", lr=0.3), run("choco", "sign", lr=0.1, gamma=0.3)
    assert lost["diverged"]
    assert lost["accuracy"] is None
    assert not kept["diverged"]
    assert kept["accuracy"] > 80
    assert kept["bytes_per_step"] == 2 * (16 + 1208 + 4 * 4)  # 9,610 signs and 4 scales to each of two neighbours
    assert json.loads(json.dumps(lost, allow_nan=False)) == lost


def test_the_table_stands_beside_the_published_one(capsys: pytest.CaptureFixture[str]) -> None:
    fine = {"accuracy": 97.0, "diverged": False, "bytes_per_step": 1000.0}
    lost = {"accuracy": None, "diverged": True, "bytes_per_step": 1000.0}
    cells = [(name, "") for name in pattern.BASELINES]
    cells += [(name, compressor) for name in pattern.ALGORITHMS for compressor in pattern.COMPRESSORS]
    runs = {cell: [fine, lost] for cell in cells} | {("ecd", "sign"): [lost, lost]}
    best = {cell: its[0] for cell, its in runs.items()}
    lines = pattern._table(best, runs).splitlines()
    sign = next(line for line in lines if line.startswith("sign"))
    assert " ".join(sign.split()) == "sign 1,000 97.0 (1/2) 92.5 97.0 (1/2) 97.0 (1/2) 92.4 diverges (2/2) -"


def test_wrong_options(tmp_path: Path) -> None:
    for wrong, sentence in (
        ({"processes": 0}, "--processes must be at least 1: got 0"),
        ({"ranks": 5000}, "5000 ranks cannot share 1438 training samples"),
        ({"topology": "hypercube", "ranks": 6}, r"2\^k ranks: got 6"),
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"partition": "dirichlet"}, "--partition is iid, fixed, sorted, or dirichlet:ALPHA"),
    ):
        with pytest.raises(UserError, match=sentence):
            pattern.simulate(options.Pattern(out=tmp_path / "out", **wrong))
        assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_choco_survives_every_cell_and_dcd_and_ecd_do_not(tmp_path: Path) -> None:
    """The command with its defaults, minutes on two cores."""
    pattern.simulate(options.Pattern(out=tmp_path))
    assert (tmp_path / "pattern.png").stat().st_size > 10_000
    best: dict[tuple[str, str | None, int | None], float] = {}
    for line in (tmp_path / "results.jsonl").read_text().splitlines():
        record = json.loads(line)
        cell = record["algorithm"], record["compressor"], record["bits"]
        best[cell] = max(best.get(cell, 0.0), record["accuracy"] or 0.0)
    whole = best["allreduce", "identity", None]
    assert min(accuracy for cell, accuracy in best.items() if cell[0] == "choco") > whole - 3
    assert max(best["dcd", "qsgd", 4], best["dcd", "random-k", None], best["dcd", "qsgd", 2]) < whole - 30
    assert best["dcd", "qsgd", 8] > whole - 3
    broken = ("sign", None), ("top-k", None), ("qsgd", 4), ("qsgd", 2)
    assert all(best[("ecd", *cell)] < whole - 20 for cell in broken)
