"""The end of a test run that hangs, wherever it hangs: the stacks of all threads, and status 1.

pytest-timeout raises in the main thread, once. That ends neither code that waits again while it
unwinds, nor a call into C that never returns to Python, nor the teardown of a test that has failed:
pytest-timeout stops its clock at a failure. So faulthandler watches each step from a thread of C,
which needs nothing of Python, and exits. Under pytest-xdist it ends the worker: its controller
reports the test as failed and starts another worker for the others.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Generator

import pytest

PATIENCE = 1.25  # of the time limit of pytest-timeout, which is to come first

_errors = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    # The output of tests goes elsewhere; this is where the stacks are seen.
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
    """Watch the rest, to the end of the process: it waits for threads and exit handlers."""
    config = session.config

    def watch_the_end() -> None:
        threading.main_thread().join(None)
        _watch(config, _limit(config))

    if hasattr(config, "workerinput"):  # it stays until the controller ends it, however long
        threading.Thread(target=watch_the_end, daemon=True).start()
    else:
        _watch(config, 2 * _limit(config))  # a controller outlasts a worker that has to be ended


def _limit(config: pytest.Config, item: pytest.Item | None = None) -> float:
    """Return the seconds that pytest-timeout gives this test, or any; 0: there is no limit."""
    marker = item.get_closest_marker("timeout") if item is not None else None
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    given = config.getoption("timeout", None)
    return float(config.getini("timeout") if given is None else given)


def _watch(config: pytest.Config, limit: float) -> None:
    faulthandler.cancel_dump_traceback_later()
    if limit > 0 and not config.getoption("usepdb", False):
        faulthandler.dump_traceback_later(PATIENCE * limit, exit=True, file=config.stash[_errors])
