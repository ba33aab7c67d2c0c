"""The projection with latency and bandwidth measured between two ranks, and what is said without them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.jobs import alone, assert_one_sentence, mpirun

SCALE = ("-m", "mpidec.simulate", "scale", "--ranks", "4", "--parameters", "1000", "--measure", "--out", "out")


def test_two_ranks_measure_and_one_writes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = mpirun(2, *SCALE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Milliseconds a step") == 1, "rank 0 alone speaks"
    shown = re.search(r"measured: latency (\S+) us, bandwidth (\S+) GB/s, of two ranks of one host", done.stdout)
    assert shown, done.stdout
    records = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert len(records) == 10
    assert {f"{record['latency'] * 1e6:.1f}" for record in records} == {shown[1]}
    assert {f"{record['bandwidth'] / 1e9:.2f}" for record in records} == {shown[2]}


def test_alone_there_is_nobody_to_measure_with(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = alone(*SCALE, cwd=tmp_path)
    assert_one_sentence(done.stderr, "no launcher started this process: run mpirun -np 2 python -m mpidec.simulate")
    assert done.returncode != 0
    assert done.stdout == ""
    done = mpirun(1, *SCALE, cwd=tmp_path)
    assert "error: --measure sends messages between two ranks, but the launcher started one process" in done.stderr
    assert list(tmp_path.iterdir()) == []
