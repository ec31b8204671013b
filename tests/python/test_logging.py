"""The log of a peer in Python's logging."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from programs import Program
from world import Master, plain_text, run_program, wait_until

from pccl_backend._torch import logs

LINE = re.compile(r"pccl \d{4}-\d\d-\d\dT[\d:.]+Z (\w+): (.+)")


@dataclasses.dataclass
class Record:
    message: str = "all is lost"
    level: int = 1
    event: str = "lost"
    created: float = 1785501296.789
    run: str = "night"
    group: int | None = 0
    peer: str = "tokyo"
    rank: int | None = 3
    epoch: str = "1.2"


class Compiled:
    """Stands in for the queue of the compiled module."""

    def __init__(self) -> None:
        self.queue: list[Record] = []
        self.stderr: list[str] = []
        self.open = False
        self.changed = threading.Condition()

    def log(self, message: str) -> None:
        with self.changed:
            if self.open:
                self.queue.append(Record(message))
            else:
                self.stderr.append(message)
            self.changed.notify_all()

    def route_logs(self, to_queue: bool) -> None:
        with self.changed:
            self.open = to_queue
            if not to_queue:
                self.stderr += [record.message for record in self.close_logs()]

    def take_logs(self, limit: float) -> list[Record]:
        with self.changed:
            self.changed.wait_for(lambda: self.queue or not self.open, limit)
            taken, self.queue = self.queue, []
        return taken

    def close_logs(self) -> list[Record]:
        with self.changed:
            self.open = False
            self.changed.notify_all()
            taken, self.queue = self.queue, []
        return taken

    def write_log(self, record: Record) -> None:
        self.stderr.append(record.message)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.come = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self.come:
            self.records.append(record)
            self.come.notify_all()

    def wait(self, count: int) -> list[str]:
        with self.come:
            assert self.come.wait_for(lambda: len(self.records) >= count, 30)
            return [record.getMessage() for record in self.records]


class Raising(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("this handler is broken")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    stand_in = Compiled()
    monkeypatch.setattr(logs, "_C", stand_in)
    return stand_in


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Return a logger without parents: pytest gives handlers to all that `logging` knows."""
    alone = logging.Logger("pccl")
    monkeypatch.setattr(logs, "_logger", alone)
    return alone


@pytest.fixture
def bridge(compiled: Compiled, logger: logging.Logger) -> Iterator[logs.Bridge]:
    made = logs.Bridge()
    yield made
    made.stop()


def test_a_record_has_the_facts(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    kept = Kept()
    logger.addHandler(kept)
    bridge.start()
    compiled.log("all is lost")
    assert kept.wait(1) == ["all is lost"]
    (record,) = kept.records
    facts = {name: getattr(record, name) for name in ("event", "run", "group", "rank", "epoch")}
    assert facts == {"event": "lost", "run": "night", "group": 0, "rank": 3, "epoch": "1.2"}
    assert (record.levelno, record.name) == (logging.WARNING, "pccl")
    assert record.created == 1785501296.789
    assert logging.Formatter("%(asctime)s").format(record).endswith(",789")
    assert compiled.stderr == []


def test_a_program_without_handlers_has_its_lines_on_stderr(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    bridge.start()
    compiled.log("first")
    assert compiled.stderr == ["first"]
    kept = Kept()
    logger.addHandler(kept)
    bridge.look()  # as after a second, or with the next join
    compiled.log("second")
    assert kept.wait(1) == ["second"]
    logger.removeHandler(kept)
    bridge.look()
    compiled.log("third")
    assert compiled.stderr == ["first", "third"]


def test_the_level_of_the_logger_counts(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    kept = Kept()
    logger.addHandler(kept)
    logger.setLevel(logging.ERROR)
    bridge.start()
    compiled.log("a warning")
    bridge.stop()
    assert kept.records == []
    assert compiled.stderr == []


def test_the_end_delivers_what_waits(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    kept = Kept()
    logger.addHandler(kept)
    bridge.start()
    for number in range(100):
        compiled.log(str(number))
    bridge.stop()
    assert sorted(kept.wait(100), key=int) == [str(number) for number in range(100)]
    compiled.log("later")
    assert compiled.stderr == ["later"]
    assert not bridge.look(), "it stays closed"


def test_a_broken_handler_loses_no_line(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    logger.addHandler(Raising())
    bridge.start()
    compiled.log("first")
    compiled.log("second")
    bridge.stop()
    assert sorted(compiled.stderr) == ["first", "second"]


def test_a_slow_handler_does_not_hold_up_the_end(
    compiled: Compiled,
    logger: logging.Logger,
    bridge: logs.Bridge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = threading.Event()

    class Slow(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            return goes_on.wait(60) if threading.current_thread().name == "pccl-logging" else True

    monkeypatch.setattr(logs, "END_S", 0.1)
    logger.addHandler(Slow())
    bridge.start()
    compiled.log("first")
    began = time.monotonic()
    bridge.stop()
    assert time.monotonic() - began < 30
    goes_on.set()


def test_the_end_of_a_forked_child_is_not_that_of_its_parent(
    compiled: Compiled, logger: logging.Logger, bridge: logs.Bridge
) -> None:
    logger.addHandler(Kept())
    bridge.start()
    bridge.pid = os.getpid() + 1  # as a child sees the one of its parent
    bridge.stop()
    assert compiled.open
    bridge.pid = os.getpid()


# --- In a run -------------------------------------------------------------------------------------

JOINS = """
import logging, os, sys
import torch.distributed as dist
if sys.argv[2] != "nothing":
    form = "%(levelname)s|%(event)s|%(run)s|%(group)s|%(rank)s|%(epoch)s|%(message)s"
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format=form)
    for name in list(logging.root.manager.loggerDict):
        logging.getLogger(name).disabled = not name.startswith("pccl")
dist.init_process_group("pccl", init_method=sys.argv[1])
dist.barrier()
if sys.argv[2] == "fork":
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
dist.destroy_process_group()
print("done", flush=True)
"""


def joined(master: Master, how: str) -> tuple[list[str], list[str]]:
    """Let a program join a run, and leave; return its lines on stdout and on stderr."""
    command = [sys.executable, "-c", JOINS, master.url("logged-" + how), how]
    done = run_program(command, environment={"PCCL_LOG": "info"})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def begins(lines: list[str]) -> list[str]:
    return [line for line in lines if " begins: this process is rank 0 of 1" in line]


@pytest.mark.parametrize("how", ["configured", "fork"])
def test_a_configured_program_has_the_lines_in_its_log(master: Master, how: str) -> None:
    shown, errors = joined(master, how)
    (line,) = begins(shown)
    level, event, run, group, rank, epoch, text = line.split("|", 6)
    assert (level, event, run) == ("INFO", "epoch_begins", "logged-" + how)
    assert (group, rank) == ("0", "0")
    assert f"epoch {epoch} begins" in text
    assert not [line for line in errors if LINE.fullmatch(line) and "begins" in line]


def test_an_unconfigured_program_has_them_on_stderr(master: Master) -> None:
    shown, errors = joined(master, "nothing")
    assert shown == ["done"]
    (line,) = begins(errors)
    assert LINE.fullmatch(line)


HOLDS_THE_GIL = """
import ctypes, sys, torch.distributed as dist
dist.init_process_group("pccl", init_method=sys.argv[1])
print("joined", flush=True)
ctypes.PyDLL(None).sleep(600)  # a hung call with the GIL held; the test ends this process
"""


@plain_text
def test_a_process_that_holds_the_gil_still_writes_to_stderr(tmp_path_factory: Any) -> None:
    log = tmp_path_factory.mktemp("master") / "log.txt"
    master = Master(log)
    command = [sys.executable, "-c", HOLDS_THE_GIL, master.url("held", master_timeout=60)]
    errors = log.with_name("errors.txt")
    with open(errors, "w") as out, Program(command, stderr=out) as program:
        assert program.line() == "joined\n"
        master.stop()
        assert wait_until(lambda: "broke" in errors.read_text(), timeout_s=30)
