"""The page of a master beside a real run: a frozen and a killed peer are marked in time.

test_page_browser.py has recorded runs, and the requirements.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet
from page_server import PageServer
from record_snapshots import PEER_TIMEOUT_S, Stage
from test_page_browser import MARKED_S, Browser, Opened, browser, expect, opened, row_of, server

__all__ = ["browser", "opened", "server"]  # fixtures

SLACK_S = 4.0  # for the processes of a machine that does other work, too


class Relay:
    """Brings the snapshots of a run from its master to the server of the page, one a second."""

    def __init__(self, stage: Stage, server: PageServer) -> None:
        self.seen: dict[str, float] = {}  # by state of osaka: when a snapshot first had it
        self._stage, self._server = stage, server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            snapshot = self._stage.look()
            if "groups" not in snapshot:
                continue
            peers = snapshot["groups"][0]["peers"]
            state = next((one["state"] for one in peers if one["name"] == "osaka"), "gone")
            self._server.put(snapshot)
            self.seen.setdefault(state, time.monotonic())

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    fleet = Fleet(journal=tmp_path / "journal", master_log=tmp_path / "master.log")
    try:
        yield Stage(fleet, "live")
    finally:
        fleet.close()


def test_frozen_and_killed_peers_are_marked_in_time(
    stage: Stage, server: PageServer, opened: Opened, browser: Browser
) -> None:
    stage.train(1.0)
    with Relay(stage, server) as relay:
        page = opened.run(stage.look())
        stage.train(5.0)
        expect(row_of(page, "osaka")).to_contain_text("● member")
        expect(page.locator(".part-curves")).to_contain_text("loss")

        frozen = time.monotonic()
        os.kill(stage.osaka.pid, signal.SIGSTOP)
        expect(row_of(page, "osaka")).to_contain_text("▲ silent")
        expect(page.locator(".finding").first).to_contain_text("peer_silent")
        assert time.monotonic() - frozen < PEER_TIMEOUT_S + SLACK_S

        stage.osaka.kill()
        expect(row_of(page, "osaka")).to_contain_text("✕ lost")
        marked = time.monotonic()
        assert marked - relay.seen["gone"] < MARKED_S
        expect(page.locator(".lost")).to_contain_text("✕ lost: osaka")
        expect(page.locator(".part-ring svg")).to_contain_text("2 members")
