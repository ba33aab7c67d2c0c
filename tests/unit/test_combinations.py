"""Which rules, compressors, local optimizers and graphs go together; the others are refused, or warned about."""

from __future__ import annotations

import re

import pytest
import torch

from mpidec import (
    DGC,
    QSGD,
    DistributedOptimizer,
    Identity,
    RandomK,
    Rows,
    Sign,
    TopK,
    Topology,
    UserError,
    algorithm,
    run_on_threads,
)
from support.problems import alone, net
from support.table import LOCALS, TABLE
from support.training import wrap


@pytest.mark.parametrize(
    ("make", "has"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "SGD has momentum=0.9"),
        (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01), "SGD has weight_decay=0.01"),
        (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "SGD has maximize=True"),
        (lambda p: torch.optim.AdamW(p, weight_decay=0), "AdamW is no torch.optim.SGD"),
        (lambda p: torch.optim.RMSprop(p), "RMSprop is no torch.optim.SGD"),
        (lambda p: torch.optim.SGD([{"params": list(p), "momentum": 0.5}], lr=0.1), "SGD has momentum=0.5"),
    ],
)
@pytest.mark.parametrize("name", ["dgc", "sign", "ef-sign-direction"])
def test_a_second_momentum_is_refused(name: str, make, has: str) -> None:
    with pytest.raises(UserError, match=f"compresses the direction of the step.*the local {has}; wrap a plain torch"):
        wrap(net(), TABLE[name].rule, make)


def test_momentum_of_ef_sign_belongs_to_the_local_optimizer_or_the_direction() -> None:
    with pytest.raises(UserError, match="give momentum and weight_decay to the local optimizer"):
        algorithm("ef-sign", momentum=0.9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"momentum": 1.0}, "momentum is at least 0 and below 1: got 1.0"),
        ({"nesterov": True}, "Nesterov's form needs a momentum above 0"),
        ({"weight_decay": -1.0}, "weight_decay is at least 0 and finite: got -1.0"),
        ({"vote": "minority"}, "unknown vote 'minority'"),
        ({"vots": "majority"}, "sign has no option 'vots': it takes vote, momentum"),
    ],
)
def test_options_out_of_range(options, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        algorithm("sign", **options)


@pytest.mark.parametrize("options", [{"period": 0}, {"period": 2.5}, {"start_epoch": -1}])
def test_periods_out_of_range(options) -> None:
    with pytest.raises(UserError, match=r"period is the number of steps|start_epoch is the epoch"):
        algorithm("local", **options)


@pytest.mark.parametrize("rule", [lambda: algorithm("local", start_epoch=2), lambda: DGC(TopK(0.01, warmup_epochs=4))])
def test_rules_that_count_epochs_want_to_know_their_length(rule) -> None:
    model = net()
    with pytest.raises(UserError, match="changes with the epoch: give steps_per_epoch"):
        DistributedOptimizer(LOCALS["sgd"](model.parameters()), model, rule(), alone())


@pytest.mark.parametrize(
    ("name", "compressor", "reason"),
    [
        (
            "choco",
            QSGD(2, contraction=False),
            "CHOCO with QSGD(2, False) may diverge: what that sends can be further off than if nothing",
        ),
        ("deepsqueeze", QSGD(1, contraction=False), "DeepSqueeze with QSGD(1, False) may diverge"),
        ("dcd", Sign(), "DCD is analysed for unbiased compressors, and Sign() is biased"),
        ("ecd", TopK(0.1), "the average of the models may drift"),
        ("dcd", RandomK(0.01, contraction=False), "DCD with RandomK(0.01, contraction=False) may diverge"),
        ("ecd", QSGD(1, contraction=False), "ECD with QSGD(1, False) may diverge"),
        ("naive", Sign(), "Naive forgets what Sign() loses, and stalls: it is a baseline, choco remembers"),
    ],
)
def test_unwise_compressors_are_warned_about(name: str, compressor, reason: str) -> None:
    with pytest.warns(UserWarning, match=re.escape(reason)) as told:
        wrap(net(), lambda: algorithm(name, compressor=compressor))
    assert len(told) == 1


def test_dgc_wants_random_entries_as_they_are() -> None:
    with pytest.warns(UserWarning, match=r"DGC forgets what it sends, and RandomK\(0.6, .*\) sends it enlarged"):
        wrap(net(), lambda: DGC(RandomK(0.6, contraction=False)), LOCALS["sgd"])


@pytest.mark.parametrize(
    ("period", "local", "reason"),
    [
        (3, "sgd", "the local step of LocalSignSGD is mpidec.Signum"),
        (4, "signum", r"an even period \(4\) of sign steps without momentum can cancel"),
    ],
)
def test_unwise_local_steps_of_local_sign(period: int, local: str, reason: str) -> None:
    with pytest.warns(UserWarning, match=reason):
        wrap(net(), lambda: algorithm("local-sign", period=period), LOCALS[local])


@pytest.mark.filterwarnings("error")
def test_fine_ones_are_not() -> None:
    wrap(net(), lambda: algorithm("choco", compressor=QSGD(8, contraction=False)))
    wrap(net(), lambda: algorithm("dcd"))
    wrap(net(), lambda: DGC(QSGD(4, contraction=False)), LOCALS["sgd"])
    wrap(net(), lambda: algorithm("dpsgd", compressor=Identity(torch.bfloat16)))
    wrap(net(), lambda: algorithm("local-sign", period=4), LOCALS["signum-momentum"])
    wrap(net(), lambda: algorithm("local-sign", period=3), LOCALS["signum"])
    wrap(net(), lambda: DGC(RandomK(0.1)), LOCALS["sgd"])


@pytest.mark.parametrize("name", ["choco", "dcd", "ecd"])
@pytest.mark.parametrize("family", ["one_peer_exponential", "matching_ring"])
def test_rules_with_sums_refuse_graphs_that_change(name: str, family: str) -> None:
    with pytest.raises(UserError, match=f"{name} keeps a weighted sum .* {family} changes them with period"):
        algorithm(name).start(torch.zeros(8, 3), Rows(Topology.named(family, 8)))


def test_one_rule_for_all_threads_is_refused() -> None:
    rule = algorithm("choco")
    with pytest.raises(UserError, match="already serves another optimizer"):
        run_on_threads(lambda world: DistributedOptimizer(LOCALS["sgd"]((model := net()).parameters()), model, rule), 3)


def test_a_rule_that_was_refused_can_be_wrapped_again() -> None:
    rule = algorithm("sign")
    with pytest.raises(UserError, match="wrap a plain torch"):
        wrap(net(), lambda: rule, LOCALS["nesterov"])
    assert wrap(net(), lambda: rule, LOCALS["small-sgd"]).algorithm is rule
