"""Fixtures of the multi-process tests: one master that serves all of them, and worlds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from world import Master, World

MakeWorld = Callable[..., World]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one torch thread: for small tensors, more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Restore SIGINT, which this process ignores under nohup or in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    """Start one master for all tests; each test has its own runs on it."""
    server = Master(tmp_path_factory.mktemp("master") / "log.txt")
    yield server
    server.stop()


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Make worlds of processes that meet by a file; rank 0 hosts their master."""
    worlds: list[World] = []

    def make(size: int, **options: Any) -> World:
        worlds.append(World(tmp_path, size, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def make_open_world(make_world: MakeWorld, master: Master) -> MakeWorld:
    """Make worlds of processes that join an open run of the master."""

    def make(size: int, *, min_peers: int | None = None, **options: Any) -> World:
        parameters = options.pop("parameters", {})
        url = master.url(min_peers=min_peers or size, **parameters)
        return make_world(size, init_method=url, **options)

    return make
