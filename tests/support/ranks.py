"""A pytest plugin for several ranks: one report, one failure ends the job, and skipped ranks are counted."""

from __future__ import annotations

import io
import json
import sys

import pytest

from mpidec.launcher import launched

LAUNCH = launched()
RANK, SIZE = (LAUNCH.rank, LAUNCH.size) if LAUNCH else (0, 1)
SESSION, REPORT = pytest.StashKey[pytest.Session](), pytest.StashKey[io.StringIO]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-ranks", action="store_true", help="fail, not skip, the tests that need more ranks")
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--cases", help="file that rank 0 appends the outcome of every test to, as lines of JSON")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if SIZE > 1:
        # A failed rank never comes back to the collective call that the others wait in.
        config.option.maxfail = 1
    if RANK > 0:
        _keep_quiet(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "long" in item.keywords and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with --long"))
        if "jobs" not in item.path.parts:
            continue
        # Where the suite is split among workers: jobs share the cores as it is, so they take turns.
        item.add_marker(pytest.mark.xdist_group("jobs"))
        if LAUNCH is not None:
            item.add_marker(pytest.mark.skip(reason="starts MPI jobs of its own, which cannot be nested"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and "MPI processes" in str(report.longrepr) and item.config.getoption("--require-ranks"):
        report.outcome, report.longrepr = "failed", f"ranks are required: {report.longrepr[-1]}"
    cases = item.config.getoption("--cases")
    if cases and RANK == 0 and (report.when == "call" or report.outcome != "passed"):
        with open(cases, "a", encoding="utf-8") as file:
            case = {"name": item.nodeid, "outcome": report.outcome, "reason": str(report.longrepr or "")}
            file.write(json.dumps(case) + "\n")
    return report


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[SESSION] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After the report: a rank with a failed test ends the job."""
    session = config.stash.get(SESSION, None)
    if SIZE == 1 or session is None or session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return
    if RANK > 0:
        print(f"rank {RANK}:\n{config.stash[REPORT].getvalue()}", file=sys.stderr)
    sys.stdout.flush()
    from mpi4py import MPI

    MPI.COMM_WORLD.Abort(1)


def _keep_quiet(config: pytest.Config) -> None:
    """Keep the report of this rank to itself; it is shown where the rank fails."""
    from _pytest.terminal import TerminalReporter

    plugins = config.pluginmanager
    plugins.unregister(plugins.getplugin("terminalreporter"))
    config.stash[REPORT] = io.StringIO()
    plugins.register(TerminalReporter(config, config.stash[REPORT]), "terminalreporter")
