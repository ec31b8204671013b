"""Fixtures of the multi-process tests: one master that serves all of them, and worlds.

With SECURED_TESTS=1 in the environment, all masters ask for a token, and all traffic is encrypted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from world import KEYRING, Master, World

MakeWorld = Callable[..., World]


def pytest_configure(config: pytest.Config) -> None:
    """Make the keyring and the token of all tests, if they are to be secured."""
    if os.environ.get("SECURED_TESTS") != "1" or KEYRING in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="pccl-secured-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder))
    keyring, token = f"{folder}/keyring", f"{folder}/token"
    command = [sys.executable, "-m", "pccl_backend.cli", "token", "new", "tests"]
    command += ["--keyring", keyring, "--out", token]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    os.environ |= {KEYRING: keyring, "PCCL_SECRET_FILE": token}


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
