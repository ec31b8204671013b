"""Logs that are not read: neither a master nor a peer waits for the reader of its stderr."""

from __future__ import annotations

import fcntl
import os
import re
import sys
import threading

from programs import Program
from world import Master, free_port, keyring_options, wait_until

LINE = re.compile(r"pccl (\d{4}-\d\d-\d\dT[\d:.]+Z) (error|warning|info|debug): .+")


class FullPipe:
    """A pipe that is full, and stays unread until `read`."""

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(self.writer, bytes(4095) + b"\n")
        self.lines: list[str] = []
        self._reader = os.fdopen(reader, "rb")
        self._thread = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        """Begin to read the programs' output, until they have ended."""
        os.close(self.writer)
        self._thread.start()

    def rest(self) -> list[str]:
        """Return all lines, once the programs have ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.lines

    def _read(self) -> None:
        with self._reader:
            self._reader.readline()  # this line has filled the pipe
            self.lines.extend(line.decode().rstrip("\n") for line in self._reader)


JOINS_AND_LEAVES = """
import sys, torch, torch.distributed as dist
for number in range(int(sys.argv[2])):
    dist.init_process_group("pccl", init_method=sys.argv[1])
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
print("served")
"""


def test_a_master_whose_log_is_not_read_serves_many_joins() -> None:
    joins, pipe, port = 30, FullPipe(), free_port()
    options = ["--port", str(port), "--no-journal", *keyring_options()]
    command = [sys.executable, "-m", "pccl_backend.cli", "master", *options]
    environment = os.environ | {"PCCL_LOG": "debug"}
    with (
        Program(command, stderr=pipe.writer, env=environment) as master,
        Program(
            [sys.executable, "-c", JOINS_AND_LEAVES, f"pccl://127.0.0.1:{port}/run", str(joins)]
        ) as peer,
    ):
        assert "listening" in master.line()
        assert peer.communicate(timeout=120)[0] == "served\n"
        pipe.read()
        assert wait_until(lambda: count_joins(pipe.lines) == joins, timeout_s=60)
        master.terminate()
        assert master.wait(20) == 0
    lines = pipe.rest()
    times = [found[1] for line in lines if (found := LINE.fullmatch(line))]
    assert len(times) == len(lines)
    assert times == sorted(times)
    assert "ended by Terminated" in lines[-1]


def count_joins(lines: list[str]) -> int:
    return sum("waits to be admitted" in line for line in lines)


REDUCES = """
import sys, torch, torch.distributed as dist
dist.init_process_group("pccl", init_method=sys.argv[1])
for number in range(int(sys.argv[2])):
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
dist.barrier()
dist.destroy_process_group()
print("sum", tensor[0].item())
"""


def test_a_peer_whose_log_is_not_read_stays_a_member(master: Master) -> None:
    pipe = FullPipe()
    url = master.url(min_peers=2, peer_timeout=5)
    command = [sys.executable, "-c", REDUCES, url, "100"]
    environment = os.environ | {"PCCL_LOG": "debug"}
    with (
        Program(command, stderr=pipe.writer, env=environment) as silent,
        Program(command) as other,
    ):
        assert other.communicate(timeout=120)[0] == "sum 2.0\n"
        assert silent.communicate(timeout=120)[0] == "sum 2.0\n"
        assert silent.returncode == other.returncode == 0
    pipe.read()
    pipe.rest()
