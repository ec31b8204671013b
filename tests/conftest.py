"""End a test run that hangs anywhere: print the stacks of all threads and exit with status 1.

pytest-timeout raises once, in the main thread. That does not end code that waits again while it
unwinds, or a call into C that never returns to Python. It does not end the teardown of a failed
test either, because pytest-timeout stops its clock at a failure. Therefore faulthandler watches
each step from a C thread that needs nothing of Python, and exits. Under pytest-xdist the exit ends
the worker. The controller then reports the test as failed and starts another worker for the others.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Generator

import pytest

PATIENCE = 1.25  # times the limit of pytest-timeout, which has to come first
BUSY_S = 60.0  # a busy machine may take so long to end a worker and to start another

_errors = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # pytest redirects the output of tests, so the stacks go to the original stderr.
    assert sys.__stderr__ is not None
    config.stash[_errors] = os.dup(sys.__stderr__.fileno())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    _watch(session.config, _limit(session.config))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()  # a worker may wait long for its next test


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _watch(item.config, _limit(item.config, item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    _watch(item.config, _limit(item.config, item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    _watch(item.config, _limit(item.config, item))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Watch the end of the process too, which waits for threads and exit handlers."""
    config = session.config

    def watch_the_end() -> None:
        threading.main_thread().join(None)
        _watch(config, _limit(config))

    if hasattr(config, "workerinput"):  # a worker lives until its controller ends it
        threading.Thread(target=watch_the_end, daemon=True).start()
    elif config.pluginmanager.hasplugin("dsession"):  # a controller outlasts its workers
        _watch(config, 2 * _limit(config) + BUSY_S)
    else:
        _watch(config, 2 * _limit(config))


def _limit(config: pytest.Config, item: pytest.Item | None = None) -> float:
    """Return the time limit of this test, or of any test, in seconds; 0 means no limit."""
    marker = item.get_closest_marker("timeout") if item is not None else None
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    given = config.getoption("timeout", None)
    return float(config.getini("timeout") if given is None else given)


def _watch(config: pytest.Config, limit: float) -> None:
    faulthandler.cancel_dump_traceback_later()
    if limit > 0 and not config.getoption("usepdb", False):
        faulthandler.dump_traceback_later(PATIENCE * limit, exit=True, file=config.stash[_errors])
