"""A search for the consensus step size is done once, and kept where it can be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mpidec import CHOCO, QSGD, Compressor, DeepSqueeze, Sign, Topology
from mpidec.consensus import cache
from mpidec.consensus.cache import cached_search
from mpidec.consensus.gamma import Rule, Search, search
from mpidec.train.config import Config
from mpidec.train.gamma import agreed_gamma
from mpidec.transport.solo import Solo
from support.problems import net

RING = Topology.named("ring", 8)
REST = '"rounds": 100, "sizes": [70], "correction": 1.0, "guaranteed": null, "margin": 0.5'
IMPOSSIBLE = [
    f'{{"trials": [], {REST}}}',
    f'{{"trials": [{{"gamma": 7, "halfway": 0, "end": 0}}], {REST}}}',
    f'{{"trials": [{{"gamma": "a", "halfway": 0, "end": 0}}], {REST}}}',
    f'{{"trials": [{{"gamma": 1, "halfway": 1, "end": 9}}], {REST}}}',
]


def choco(make: Callable[[], Compressor]) -> Rule:
    return lambda gamma: CHOCO(make(), gamma=gamma)


class Another(Sign):
    """The same code, another source."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mpidec" / "gamma"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    """What was really searched."""
    done: list[Search] = []

    def counted(*question) -> Search:
        done.append(search(*question))
        return done[-1]

    monkeypatch.setattr(cache, "search", counted)
    return done


def test_a_second_call_does_not_search(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached_search(choco(lambda: QSGD(3)), RING, [100, 7])
    assert [path.suffix for path in home.iterdir()] == [".json"], "nothing else is left behind"

    def refuse(*question) -> Search:
        raise AssertionError("searched again")

    monkeypatch.setattr(cache, "search", refuse)
    again = cached_search(choco(lambda: QSGD(3)), RING, [100, 7])
    assert again == first
    assert again.gamma == first.gamma


def test_trials_that_were_given_up_come_back_from_the_cache(home: Path, searches: list[Search]) -> None:
    first = cached_search(choco(lambda: QSGD(1)), RING, [300])
    assert first.trials[0].end == float("inf")
    assert cached_search(choco(lambda: QSGD(1)), RING, [300]) == first
    assert len(searches) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "{}", '{"trials": 3}', '{"trials": [{"gamma": 1}]}', *IMPOSSIBLE]
)
def test_a_broken_cache_is_none(content: str, home: Path, searches: list[Search]) -> None:
    first = cached_search(choco(Sign), RING, [70])
    (path,) = home.iterdir()
    path.write_text(content)
    assert cached_search(choco(Sign), RING, [70]) == first
    assert len(searches) == 2
    assert cached_search(choco(Sign), RING, [70]) == first
    assert len(searches) == 2, "and it is mended"


def test_no_cache_at_all_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searches: list[Search]) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cached_search(choco(Sign), RING, [70]) == searches[0]


def test_another_question_is_searched_anew(home: Path, searches: list[Search]) -> None:
    questions = [
        (choco(lambda: QSGD(3)), RING, [70]),
        (choco(lambda: QSGD(4)), RING, [70]),
        (choco(Sign), RING, [70]),
        (choco(Another), RING, [70]),
        (choco(lambda: QSGD(3)), Topology.named("star", 8), [70]),
        (choco(lambda: QSGD(3)), Topology.named("ring", 7), [70]),
        (choco(lambda: QSGD(3)), RING, [71]),
        (choco(lambda: QSGD(3)), RING, [70, 70]),
        (lambda gamma: CHOCO(QSGD(3), gamma=gamma, resync=3), RING, [70]),
        (lambda gamma: DeepSqueeze(QSGD(3), gamma=gamma), RING, [70]),
    ]
    for question in questions * 2:
        cached_search(*question)
    assert len(searches) == len(list(home.iterdir())) == len(questions)


def test_without_a_cache_home_it_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in (None, ""):
        if value is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        cached_search(choco(Sign), RING, [70])
        assert len(list((tmp_path / ".cache" / "mpidec" / "gamma").iterdir())) == 1


def test_without_any_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch, searches: list[Search]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cached_search(choco(Sign), RING, [70]) == searches[0]


def test_a_training_gets_the_number_of_its_layers(home: Path, searches: list[Search]) -> None:
    config = Config(gamma="auto", compressor="qsgd", bits=3)
    found = agreed_gamma(config, RING, net(), Solo()).gamma
    (one,) = searches
    assert found == one.gamma
    assert set(one.sizes) == {30, 15, 5, 3}
    assert agreed_gamma(Config(gamma=0.2), RING, net(), Solo()).gamma == 0.2
    assert len(searches) == 1, "a number is taken as it is"
