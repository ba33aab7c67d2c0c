"""How the suite behaves on several ranks: one report, one failure ends the job, and skipped ranks are counted."""

from __future__ import annotations

import io
import sys

import pytest

from mpidec.launcher import launched

LAUNCH = launched()
SEVERAL = LAUNCH is not None and LAUNCH.size > 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-ranks", action="store_true", help="fail, not skip, the tests that need more ranks")
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if SEVERAL and LAUNCH is not None:
        # A failed rank never comes back to the collective call that the others wait in.
        config.option.maxfail = 1
        if LAUNCH.rank > 0:
            _silence(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "long" in item.keywords and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with --long"))
        if "jobs" in item.path.parts and LAUNCH is not None:
            item.add_marker(pytest.mark.skip(reason="starts MPI jobs of its own, which cannot be nested"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    mpi = item.get_closest_marker("mpi")
    if report.skipped and mpi and item.config.getoption("--require-ranks") and not item.get_closest_marker("gpu"):
        report.outcome, report.longrepr = "failed", f"skipped, but ranks are required: {report.longrepr}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if SEVERAL and session is not None and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
        if LAUNCH is not None and LAUNCH.rank > 0:
            print(f"rank {LAUNCH.rank}:\n{config.stash[_REPORT].getvalue()}", file=sys.stderr)
        sys.stdout.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_SESSION] = session


def _silence(config: pytest.Config) -> None:
    """Keep the report of this rank to itself; it is shown where the rank fails."""
    from _pytest.terminal import TerminalReporter

    plugins = config.pluginmanager
    plugins.unregister(plugins.getplugin("terminalreporter"))
    config.stash[_REPORT] = io.StringIO()
    plugins.register(TerminalReporter(config, config.stash[_REPORT]), "terminalreporter")


_SESSION = pytest.StashKey[pytest.Session]()
_REPORT = pytest.StashKey[io.StringIO]()
