"""A run's own configuration file starts the same run again, and flags overrule it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mpidec import UserError
from mpidec.optim import ALGORITHMS
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.configfile import expand
from mpidec.train.data.source import Source
from mpidec.train.names import DTYPES
from mpidec.transport.solo import Solo
from support.options import parsed, saved
from support.problems import alone, net

COMBINATIONS = [(name, one) for name, entry in ALGORITHMS.items() for one in entry.compressors or (None,)]


@pytest.mark.parametrize(("algorithm", "compressor"), COMBINATIONS)
@pytest.mark.parametrize("nesterov", [True, False])
def test_round_trip(algorithm: str, compressor: str | None, nesterov: bool, tmp_path: Path) -> None:
    config = Config(algorithm=algorithm, compressor=compressor, nesterov=nesterov, lr=3e-5, seed=4)
    assert parsed("--config", saved(config, tmp_path)).resolved() == config.resolved()


@pytest.mark.parametrize(("algorithm", "compressor"), COMBINATIONS)
def test_another_algorithm_and_compressor_overrule_the_file(
    algorithm: str, compressor: str | None, tmp_path: Path
) -> None:
    path = saved(Config(compressor="qsgd", bits=3, gamma=0.7, epochs=9), tmp_path)
    config = parsed(f"--config={path}", "--algorithm", algorithm, *(["--compressor", compressor] if compressor else []))
    fresh = Config(algorithm=algorithm, compressor=compressor)
    assert config.epochs == 9
    assert config.order == fresh.order
    assert config.gamma == (0.7 if algorithm in ("choco", "deepsqueeze", "naive") else None)
    assert config.bits == (3 if compressor == "qsgd" else None)
    assert config.ratio == fresh.ratio


def test_another_algorithm_alone_takes_its_own_compressor(tmp_path: Path) -> None:
    path = saved(Config(compressor="qsgd", bits=3), tmp_path)
    assert parsed("--config", path, "--algorithm", "dpsgd").compressor == "identity"
    assert parsed("--config", path, "--compressor", "sign").bits is None


def test_what_the_files_algorithm_has_by_default_counts_as_not_chosen(tmp_path: Path) -> None:
    path = saved(Config(compressor="qsgd"), tmp_path)
    assert parsed("--config", path, "--algorithm", "sign").lr == 0.003
    assert parsed("--config", path, "--algorithm", "dcd").contraction is False
    assert parsed("--config", path, "--algorithm", "choco").contraction is True
    path = saved(Config(compressor="qsgd", lr=0.02, contraction=False), tmp_path)
    assert parsed("--config", path, "--algorithm", "sign").lr == 0.02
    assert parsed("--config", path, "--algorithm", "deepsqueeze").contraction is False
    path = saved(Config(algorithm="sign"), tmp_path)
    assert parsed("--config", path, "--algorithm", "choco").lr == 0.1
    assert parsed("--config", path).lr == 0.003


def test_the_last_of_two_files_counts(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("epochs: 1\n")
    (tmp_path / "two.yaml").write_text("epochs: 2\nweight-decay: 0.5\n")
    config = parsed("--config", str(tmp_path / "one.yaml"), "--config", str(tmp_path / "two.yaml"), "--epochs", "3")
    assert (config.epochs, config.weight_decay) == (3, 0.5)
    assert str(config.config).endswith("two.yaml")


def test_no_arguments_and_no_file() -> None:
    assert expand([]) == []
    assert parsed().resolved() == Config().resolved()


@pytest.mark.parametrize(
    ("given", "gamma", "order", "ratio", "bits"),
    [
        ({}, 0.3, None, None, None),
        ({"algorithm": "D-PSGD"}, None, "adapt-then-combine", None, None),
        ({"compressor": "topk"}, 0.3, None, 0.01, None),
        ({"compressor": "QSGD", "bits": 2}, 0.3, None, None, 2),
    ],
)
def test_unset_options_get_the_defaults_of_what_was_chosen(given, gamma, order, ratio, bits) -> None:
    config = Config(**given)
    assert (config.gamma, config.order, config.ratio, config.bits) == (gamma, order, ratio, bits)


@pytest.mark.parametrize(
    ("algorithm", "compressor", "contraction"),
    [
        ("choco", "qsgd", True),
        ("deepsqueeze", "random-k", True),
        ("dcd", "qsgd", False),
        ("ecd", "random-k", False),
        ("dgc", "qsgd", False),
        ("dgc", "random-k", True),
        ("choco", "sign", None),
    ],
)
def test_compressors_come_in_the_form_that_the_algorithm_is_analysed_for(algorithm, compressor, contraction) -> None:
    assert Config(algorithm=algorithm, compressor=compressor).contraction is contraction
    if contraction is not None:
        other = Config(algorithm=algorithm, compressor=compressor, contraction=not contraction)
        assert other.contraction is not contraction, "an explicit choice is kept"


@pytest.mark.parametrize(
    ("options", "owner"),
    [
        ({"algorithm": "sign"}, "rule"),
        ({"algorithm": "dgc"}, "rule"),
        ({"algorithm": "ef-sign", "residual": "direction"}, "rule"),
        ({"algorithm": "ef-sign"}, "local"),
        ({"algorithm": "choco"}, "local"),
        ({"algorithm": "local-sign"}, "local"),
    ],
)
def test_momentum_goes_to_whoever_makes_the_direction(options, owner: str) -> None:
    torch.manual_seed(0)
    config = Config(**options, momentum=0.7, weight_decay=0.02)
    optimizer = build.optimizer(config, net(), alone(), steps_per_epoch=10)
    group, rule = optimizer.local.param_groups[0], optimizer.algorithm
    own = (0.7, 0.02, True)
    mine = (group.get("momentum"), group.get("weight_decay"), group.get("nesterov"))
    theirs = tuple(getattr(rule, name, 0) for name in ("momentum", "weight_decay", "nesterov"))
    assert (mine if owner == "local" else theirs) == own
    assert not any(theirs if owner == "local" else mine)


@pytest.mark.parametrize("algorithm", ["choco", "deepsqueeze"])
def test_sparse_compressors_begin_with_a_consensus_step_of_their_ratio(algorithm: str) -> None:
    """Larger ones diverge on digits: 0.03 already at a ratio of 0.01."""
    assert Config(algorithm=algorithm, compressor="random-k").gamma == 0.01
    assert Config(algorithm=algorithm, compressor="random-k", ratio=0.5).gamma == 0.3
    assert Config(algorithm=algorithm, compressor="random-k", gamma=0.2).gamma == 0.2
    assert Config(algorithm=algorithm, compressor="top-k").gamma == (0.3 if algorithm == "choco" else 0.01)


def test_sign_rules_begin_with_a_small_rate() -> None:
    rates = {name: Config(algorithm=name).lr for name in ALGORITHMS}
    assert {name for name, lr in rates.items() if lr < 0.01} == {"sign", "local-sign"}
    assert Config(algorithm="sign", lr=0.5).lr == 0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_built_from_its_options(algorithm: str) -> None:
    for compressor in ALGORITHMS[algorithm].compressors or (None,):
        config = Config(algorithm=algorithm, compressor=compressor)
        optimizer = build.optimizer(config, net(), alone(), steps_per_epoch=10)
        assert type(optimizer.algorithm).__name__.lower().startswith(algorithm.replace("-", "")[:3])
        assert optimizer.local.param_groups[0]["lr"] == config.lr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gamma", "auto"], {"gamma": "auto"}),
        (["--gamma", "0.25"], {"gamma": 0.25}),
        (["--gamma", "auto", "--compressor", "random-k", "--ratio", "0.2"], {"gamma": "auto", "ratio": 0.2}),
        (["--algorithm", "naive"], {"gamma": 0.3}),
        (["--partition", "Dirichlet:0.50"], {"partition": "dirichlet:0.5"}),
        (["--partition", "SORTED"], {"partition": "sorted"}),
        (["--dtype", "Float64"], {"dtype": "float64"}),
        ([], {"partition": "iid", "dtype": "float32"}),
    ],
    ids=str,
)
def test_what_a_flag_says_comes_back_from_the_file(
    options: list[str], expected: dict[str, object], tmp_path: Path
) -> None:
    config = parsed(*options)
    again = parsed("--config", saved(config, tmp_path))
    assert expected.items() <= config.resolved().items()
    assert again.resolved() == config.resolved()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gamma": 2.0}, "--gamma must be above 0 and at most 1, or auto: got 2.0"),
        ({"gamma": 0.0}, "--gamma must be above 0 and at most 1, or auto: got 0.0"),
        (
            {"algorithm": "naive", "gamma": "auto"},
            "--gamma auto is for rules that remember what is not sent, but naive ",
        ),
        ({"algorithm": "dpsgd", "gamma": "auto"}, "--gamma belongs to the algorithms choco, deepsqueeze, naive, but "),
        (
            {"partition": "dirichlet:0"},
            "--partition is iid, fixed, sorted, or dirichlet:ALPHA with an ALPHA of 0.001 to 1e6: ",
        ),
        ({"dtype": "float16"}, "unknown dtype 'float16': known are float32, float64"),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        Config(**options)
    assert str(refusal.value).startswith(sentence)


def test_parameters_and_samples_come_in_the_dtype_that_was_asked_for() -> None:
    dataset = data.load(Source("digits"), Solo())
    for name in ("float32", "float64"):
        config = Config(dtype=name)
        assert {p.dtype for p in build.model(config, dataset).parameters()} == {getattr(torch, name)}
        split = dataset.train.to(torch.device("cpu"), build.dtype(config))
        assert (split.inputs.dtype, split.labels.dtype) == (getattr(torch, name), torch.int64)
    starts = [nn.utils.parameters_to_vector(build.model(Config(dtype=name), dataset).parameters()) for name in DTYPES]
    assert torch.equal(starts[0], starts[1].float()), "the same start, whatever the dtype"


def test_shards_are_dealt_as_the_partition_says() -> None:
    dataset = data.load(Source("digits"), Solo())
    shards = build.shards(Config(partition="dirichlet:0.5", batch_size=16, seed=3), dataset, 4)
    assert (str(shards.partition), shards.ranks, shards.batch_size, shards.seed) == ("dirichlet:0.5", 4, 16, 3)
