"""Simulations of consensus and of networks, started as users start them, and the mistakes that they answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.jobs import alone, assert_one_sentence, mpirun

SIMULATE, TRAIN = ("-m", "mpidec.simulate"), ("-m", "mpidec.train")
SMALL = ("--ranks", "4", "--dim", "20", "--rounds", "30")
PNG = b"\x89PNG\r\n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches of an earlier version are none of these tests' business."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def label(value: object) -> str:
    """The command line as the name of its case."""
    return " ".join(value) if isinstance(value, list) else ""


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_consensus_leaves_a_record_of_every_setting_a_table_and_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    swept = ("--topology", "ring", "star", "--compressor", "sign", "top-k", "--ratio", "0.2", "0.5")
    done = alone(*SIMULATE, "consensus", *SMALL, *swept, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["consensus.png", "results.jsonl"]
    assert (tmp_path / "out" / "consensus.png").read_bytes().startswith(PNG)

    lines = records(tmp_path / "out")
    made = [(one["topology"], one["algorithm"], one["compressor"], one.get("ratio")) for one in lines]
    memories = [(name, *how) for name in ("choco", "naive") for how in (("sign", None), ("top-k", 0.2), ("top-k", 0.5))]
    wanted = [(graph, *one) for graph in ("ring", "star") for one in [("dpsgd", "identity", None), *memories]]
    assert sorted(made, key=str) == sorted(wanted, key=str)
    for one in lines:
        assert one["rounds"] == list(range(31))
        assert len(one["error"]) == len(one["bytes_per_rank"]) == 31
        assert one["error"][0] == 1 > one["error"][-1]
        assert not one["diverged"]
        assert isinstance(one.get("gamma", 0.0), float), "auto has become a number"
        assert one["label"] in done.stdout
    dpsgd = next(one for one in lines if one["algorithm"] == "dpsgd" and one["topology"] == "ring")
    assert dpsgd["guaranteed_rate"] == pytest.approx(1 / 3)
    assert dpsgd["bytes_per_rank"][-1] == 30 * 2 * (16 + 8 * 20), "30 rounds, 2 neighbours, header and float64"
    header = next(line for line in done.stdout.splitlines() if line.startswith("setting"))
    for column in ("gamma", "error", "bytes a rank", "factor a round", "guaranteed"):
        assert column in header


def test_consensus_repeats_and_its_seed_tells(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    errors = []
    for number, seed in enumerate(("3", "3", "4")):
        sweep = ("--algorithm", "naive", "--compressor", "qsgd", "--bits", "3", "--gamma", "0.5", "--seed", seed)
        done = alone(*SIMULATE, "consensus", *SMALL, *sweep, "--out", f"out{number}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        errors.append(records(tmp_path / f"out{number}")[0]["error"])
    assert errors[0] == errors[1] != errors[2]


def test_what_diverges_is_shown_as_such(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sweep = ("--algorithm", "choco", "--compressor", "qsgd", "--bits", "1", "--gamma", "1", "0.1")
    done = alone(*SIMULATE, "consensus", *sweep, "--ranks", "4", "--dim", "300", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [one["diverged"] for one in records(tmp_path / "out")] == [True, False]
    assert "diverged" in done.stdout


def test_a_network_leaves_the_folder_of_a_run_that_real_ranks_repeat(tmp_path: Path) -> None:
    options = ("--epochs", "1", "--batch-size", "64", "--gamma", "auto", "--dtype", "float64")
    done = alone(*SIMULATE, "network", "--ranks", "4", *options, "--out", "rows", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = tmp_path / "rows"
    assert sorted(path.name for path in rows.iterdir()) == ["config.yaml", "metrics.jsonl", "summary.json"]
    config, summary = (
        yaml.safe_load((rows / "config.yaml").read_text()),
        json.loads((rows / "summary.json").read_text()),
    )
    assert (summary["status"], summary["ranks"], summary["steps"], summary["epochs"]) == ("completed", 4, 6, 1)
    assert 0 < summary["gamma"] == config["gamma"] <= 0.5, "the number that auto stands for"
    assert "ranks" not in config

    done = mpirun(4, *TRAIN, "--config", "rows/config.yaml", "--out", "job", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    real = json.loads((tmp_path / "job" / "summary.json").read_text())
    same = ("gamma", "ranks", "topology", "steps", "bytes_sent_per_rank", "test_accuracy", "test_accuracy_local")
    assert {name: summary[name] for name in same} == {name: real[name] for name in same}
    for name in ("train_loss", "consensus_distance"):
        assert summary[name] == pytest.approx(real[name], rel=1e-9)
    assert set(summary) == set(real)


def test_a_network_reads_the_configuration_of_a_run_and_flags_overrule_it(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("algorithm: dpsgd\nepochs: 1\nbatch_size: 64\ntopology: star\nseed: 5\n")
    given = ("--config", "one.yaml", "--topology", "chain", "--ranks", "3", "--out", "out")
    done = alone(*SIMULATE, "network", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["algorithm"], summary["topology"], summary["ranks"]) == ("dpsgd", "chain", 3)
    assert yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["seed"] == 5


CHANGING = ["consensus", "--topology", "matching_ring", "--algorithm", "choco"]
WRONG = [
    (["consensu"], "consensu"),
    ([], "Expected one of {consensus, "),
    (["consensus", "--ranks", "0"], "--ranks must be at least 1 and at most 65,536: got 0"),
    (["consensus", "--ranks", "1000000000"], "--ranks must be at least 1 and at most 65,536: got 1000000000"),
    (["consensus", "--dim", "1000000000000"], "16 ranks with 1,000,000,000,000 entries each are more than the"),
    (["consensus", "--ranks"], "--ranks needs one value at least"),
    (["consensus", "--ranks", "four"], "--ranks"),
    (["consensus", "--gamma", "2"], "--gamma must be above 0 and at most 1, or auto: got 2"),
    (["consensus", "--compressor", "top-k", "--ratio", "7"], "--ratio must be above 0 and at most 1: got 7"),
    (["consensus", "--compressor", "sign", "--ratio", "0.1", *SMALL], "--ratio has no effect: none of dpsgd"),
    (["consensus", "--algorithm", "dpsgd", "--gamma", "0.1", *SMALL], "--gamma has no effect: none of dpsgd"),
    (["consensus", "--algorithm", "allreduce"], "--algorithm allreduce does not fit this simulation: take dpsgd, "),
    (["consensus", "--algorithm", "chocco"], "unknown algorithm 'chocco'"),
    (["consensus", "--compressor", "sine"], "unknown compressor 'sine'"),
    (["consensus", "--algorithm", "dpsgd", "--compressor", "sign"], "dpsgd does not work with the compressor sign"),
    (["consensus", "--topology", "hypercube", "--ranks", "12"], "a hypercube has 2^k ranks: got 12, take 8 or 16"),
    (["consensus", "--topology", "wheel"], "unknown topology 'wheel'"),
    (CHANGING, "choco keeps a weighted sum"),
    ([*CHANGING, "--gamma", "0.1"], "choco keeps a weighted sum"),
    (["consensus", "--dim", "0"], "--dim must be at least 1: got 0"),
    (["consensus", "--rounds", "-5"], "--rounds must be at least 1: got -5"),
    (["consensus", "--dtype", "float16"], "unknown dtype 'float16': known are float32, float64"),
    (["consensus", "--seed", "-1"], "--seed must be at least 0"),
    (["consensus", *SMALL, "--out", "used"], "the output folder used is not empty: choose another --out"),
    (["network", "--algorithm", "allreduce", "--collectives", "mpi"], "rows are summed here, by no --collectives mpi"),
    (["network", "--ranks", "0"], "--ranks must be at least 1 and at most 65,536: got 0"),
    (["network", "--ranks", "-3"], "--ranks must be at least 1 and at most 65,536: got -3"),
    (["network", "--ranks", "2000"], "2000 ranks cannot share 1438 training samples: start fewer ranks"),
    (["network", "--ranks", "720", "--batch-size", "3"], "a batch of 3 is larger than a rank's shard of 2 samples"),
    (["network", "--gamma", "2"], "--gamma must be above 0 and at most 1, or auto: got 2"),
    (["network", "--ratio", "0.1"], "--ratio belongs to the compressors top-k, random-k, but this run uses sign"),
    (["network", "--topology", "hypercube", "--ranks", "12"], "a hypercube has 2^k ranks: got 12, take 8 or 16"),
    (["network", "--partition", "dirichlet"], "--partition is iid, fixed, sorted, or dirichlet:ALPHA"),
    (["network", "--config", "nowhere.yaml"], "the configuration nowhere.yaml cannot be read"),
    (["network", "--rank", "3"], "Unrecognized options: --rank, 3"),
    (["network", "--epochs", "1", "--out", "used"], "the output folder used is not empty: choose another --out"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=label)
def test_mistakes(options: list[str], sentence: str, tmp_path: Path) -> None:
    if options[:1] == ["consensus"]:
        pytest.importorskip("matplotlib")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("keep me")
    done = alone(*SIMULATE, *options, cwd=tmp_path)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode != 0
    assert done.stdout == ""
    assert [path.name for path in tmp_path.rglob("*")] == ["used", "file"], "nothing is left behind"


@pytest.mark.parametrize("command", ["consensus", "network"])
def test_the_launcher_is_refused_once(command: str, tmp_path: Path) -> None:
    done = mpirun(2, *SIMULATE, command, cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr
    assert "all ranks of a simulation are in one process: start it without the launcher" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
