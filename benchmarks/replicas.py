"""torchft's replicas over pccl and over Gloo: one of three is killed, and starts again.

    make torchft     # its packages, in build/torchft-packages; this also runs the tests
    export PYTHONPATH=$PWD/build/torchft-packages
    tools/stock-network.sh .venv/bin/python benchmarks/replicas.py
    sudo -E .venv/bin/python benchmarks/replicas.py --scenario benchmarks/wan/europe.toml --mib 4

A replica is one process. Its step is a pause of 20 ms and an all-reduce through torchft's Manager.
With torchft 0.2 the systems are its ProcessGroupGloo, and pccl's ProcessGroupPccl with
PcclTransport. Newer releases take groups of torch, so there both are such groups, with
`enable_reconfigure`. In a scenario, the replicas are on its first three
hosts; pccl runs in plain text, as Gloo does. torch's flight recorder writes no file.

The replicas of both systems are there all the time. One system rests while the other has its turn.
In a turn, a replica is killed (SIGKILL) at a random moment of a step. 5 s later another process
takes its place, which has loaded all libraries before. In each round, every replica is killed once.
The first one is rank 0: its store is that of the quorum, and its process has pccl's master.

    commit  from the kill until all survivors have committed a step that began after it
    back    from the start of the other process until it has committed a step of three replicas
    step    an undisturbed step

The ratio of a row is the median of the ratios of its pairs of turns. torchft's lighthouse takes a
replica for dead after 1 s without a heartbeat (its default: 5 s), and waits up to 3 s for one that
is alive (default: 100 ms, in which a busy machine loses replicas that are well). So a commit takes
a second at least.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "wan"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

import records
from options import at_least_one
from processes import run_main
from programs import Program
from rich.progress import track
from sections import table

SYSTEMS = ("pccl", "gloo")
KILLED = ("first", "another")
TIMES = ("commit", "back", "step")
REPLICAS = 3
LOG = Path(tempfile.gettempdir()) / "pccl-replicas.log"  # torchft logs each request there
PAUSE_S = 0.02  # in a step, for the computation
BEFORE = 8  # undisturbed steps of a turn
RESTART_S = 5.0  # from a kill to the next process
LIGHTHOUSE_MS = {"join_timeout_ms": 3000, "heartbeat_timeout_ms": 1000, "quorum_tick_ms": 20}
LIMIT = timedelta(seconds=30)  # of torchft's calls, and of the process groups
TURN_S = 120.0  # limit for each wait of a turn


@dataclass(kw_only=True)
class Row:
    """One time of all turns in which one kind of replica was killed: seconds, by system.

    Attributes:
        killed: "first" (rank 0) or "another".
        what: one of TIMES.
        emulator: the emulator's observations.
        sound: whether the figures may be used.
    """

    network: str
    torchft: str
    killed: str
    what: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    emulator: str = ""
    sound: bool = True


@dataclass(frozen=True, kw_only=True)
class Place:
    """A machine: the prefix of a command, and its address."""

    command: Sequence[str]
    address: str


# ---- In the processes ----------------------------------------------------------------------------


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def server_main(given: argparse.Namespace) -> None:
    """Serve torchft's lighthouse and a store, until the input ends."""
    import torch.distributed as dist
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=REPLICAS - 1, **LIGHTHOUSE_MS)
    store = dist.TCPStore(given.address, 0, is_master=True, wait_for_workers=False)
    port = lighthouse.address().rpartition(":")[2]
    say(lighthouse=f"http://{given.address}:{port}", store=store.port)
    sys.stdin.read()
    os._exit(0)


def takes_groups_of_torch() -> bool:
    """Return whether this torchft is newer than 0.2."""
    from torchft import process_group

    return hasattr(process_group, "reconfigure_with_store")


def group_maker(given: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    """Load all that a system needs; return a function that makes its part of a Manager's arguments.

    A process loads for seconds on a busy machine, and that is not measured.
    """
    import torch.distributed as dist
    from torchft import ProcessGroupGloo

    import pccl_backend as pccl

    def group_of_torch() -> dict[str, Any]:
        store = dist.TCPStore(given.address_of_store, given.store, is_master=False)
        dist.init_process_group(
            given.system,
            store=dist.PrefixStore(given.system, store),
            rank=given.replica,
            world_size=REPLICAS,
            timeout=LIMIT,
            enable_reconfigure=True,
        )
        return {"pg": dist.group.WORLD}

    if takes_groups_of_torch():
        from pccl_backend._torch import reconfigurable  # noqa: F401, init_process_group loads it

        return group_of_torch
    if given.system == "gloo":
        return lambda: {"pg": ProcessGroupGloo(timeout=LIMIT)}
    group, transport = pccl.torchft.ProcessGroupPccl, pccl.torchft.PcclTransport
    return lambda: {
        "pg": group(timeout=LIMIT),
        "checkpoint_transport": transport(host=given.address),
    }


class Target:
    """The step at which a replica rests. The parent writes it, line by line."""

    def __init__(self) -> None:
        self._step = 0
        self._change = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            with self._change:
                self._step = int(line)
                self._change.notify()
        os._exit(0)

    def wait(self, step: int) -> None:
        """Wait until there is a step after this one."""
        with self._change:
            self._change.wait_for(lambda: self._step > step)


def replica_main(given: argparse.Namespace) -> None:
    """Be a replica: print a line for each step."""
    import socket

    # torchft's transport takes its address from there. A namespace has no name of its own.
    socket.gethostname = lambda: given.address
    import logging

    import torch
    import torch.distributed as dist
    from torchft import Manager

    logging.disable(logging.CRITICAL)  # torchft logs each loss, with its stack
    torch.set_num_threads(1)
    model = torch.zeros(given.mib << 18)
    gradient = torch.empty(given.mib << 18)
    make_group = group_maker(given)
    say(ready=True)
    first = int(sys.stdin.readline())
    target = Target()
    store = dist.TCPStore(given.address, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        load_state_dict=lambda state: model.copy_(state["model"]),
        state_dict=lambda: {"model": model},
        min_replica_size=REPLICAS - 1,
        init_sync=False,  # all begin with zeros
        timeout=LIMIT,
        quorum_timeout=LIMIT,
        rank=0,
        world_size=1,
        store_addr=given.address,
        store_port=store.port,
        lighthouse_addr=given.lighthouse,
        hostname=given.address,
        replica_id=f"replica{given.replica}",
        **make_group(),
    )
    target.wait(first)
    while True:
        target.wait(manager.current_step())
        begun = time.monotonic()
        manager.start_quorum()
        time.sleep(PAUSE_S)  # the computation of a step; nothing is awaited
        gradient.fill_(1.0)
        manager.allreduce(gradient).wait()
        committed = manager.should_commit()
        if committed:
            model.add_(gradient)
        assert not committed or model[-1] == manager.current_step(), "a sum is wrong"
        say(
            step=manager.current_step(),
            committed=committed,
            replicas=manager.num_participants(),
            begun=begun,
            end=time.monotonic(),
            error=str(manager.errored())[:200],
        )


# ---- Measuring -----------------------------------------------------------------------------------


Words = dict[str, Any]


class Replica(Program):
    """A process that is, or will be, a replica."""

    def until(self, true: Callable[[Words], bool]) -> Words:
        """Return its next line of this kind.

        Raises:
            RuntimeError: the process has ended.
            TimeoutError: it printed no such line in time.
        """
        deadline = time.monotonic() + TURN_S
        while line := self.line(deadline - time.monotonic()):
            words: Words = json.loads(line)
            if true(words):
                return words
        raise RuntimeError(f"a replica ended with {self.wait()}: see {LOG}")

    def rest_at(self, step: int) -> None:
        assert self.stdin is not None
        self.stdin.write(f"{step}\n")
        self.stdin.flush()

    def strike(self) -> float:
        """Kill it; return the time of its end."""
        pidfd = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], TURN_S)
        ended = time.monotonic()
        os.close(pidfd)
        self.end()
        return ended


def is_ready(words: Words) -> bool:
    return "ready" in words


def whole(words: Words) -> bool:
    return bool(words["committed"] and words["replicas"] == REPLICAS)


class System:
    """The replicas of one system, and their lighthouse."""

    def __init__(
        self, system: str, places: Sequence[Place], mib: int, log: IO[str], stack: ExitStack
    ) -> None:
        self._places = places
        self._log = log
        self._stack = stack
        self._options = ["--system", system, "--mib", str(mib)]
        self._server = self._start(Program, 0, "--server")
        words = json.loads(self._server.line())
        self._options += ["--lighthouse", words["lighthouse"], "--store", str(words["store"])]
        self._options += ["--address-of-store", places[0].address]
        self._step = 0
        self._replicas = [self._spare(number) for number in range(REPLICAS)]

    def begin(self) -> None:
        """Let the replicas meet."""
        for replica in self._replicas:
            replica.until(is_ready)
            replica.rest_at(0)
        self._together()

    def _start(self, kind: type[Any], number: int, *options: str) -> Any:
        place = self._places[number]
        command = [*place.command, sys.executable, __file__, "--address", place.address]
        command += [*options, *self._options]
        started = kind(command, stdin=subprocess.PIPE, stderr=self._log)
        self._stack.callback(started.end)
        return started

    def _spare(self, number: int) -> Replica:
        spare: Replica = self._start(Replica, number, "--replica", str(number))
        return spare

    def _rest_at(self, step: int) -> None:
        self._step = step
        for replica in self._replicas:
            replica.rest_at(step)

    def _together(self) -> None:
        """Let all make some steps of three replicas, and rest."""
        self._rest_at(self._step + 1_000_000)
        ends = [replica.until(whole) for replica in self._replicas]
        self._rest_at(max(words["step"] for words in ends) + BEFORE)
        for replica in self._replicas:
            replica.until(lambda words: words["committed"] and words["step"] == self._step)

    def turn(self, number: int) -> dict[str, float]:
        """Kill a replica; return the seconds of each time."""
        spare = self._spare(number)
        spare.until(is_ready)
        begin = self._step + BEFORE
        self._rest_at(self._step + 1_000_000)
        victim = self._replicas[number]
        steps: list[float] = []
        while True:
            words = victim.until(whole)
            steps.append(words["end"] - words["begun"])
            if words["step"] >= begin:
                break
        step = statistics.median(steps[1:])
        time.sleep(random.uniform(0.0, step))  # the fault comes at a random moment
        fault = victim.strike()
        survivors = [replica for replica in self._replicas if replica is not victim]

        time.sleep(max(0.0, fault + RESTART_S - time.monotonic()))  # the outage is a given
        self._replicas[number] = spare
        start = time.monotonic()
        spare.rest_at(0)
        spare.rest_at(self._step)

        def is_next(words: Words) -> bool:
            return bool(words["committed"] and words["begun"] > fault)

        commit = max(replica.until(is_next)["end"] for replica in survivors)
        back = spare.until(whole)["end"]
        self._together()
        return {"commit": commit - fault, "back": back - start, "step": step}


def measure(rows: Sequence[Row], places: Sequence[Place], mib: int, rounds: int) -> None:
    """Fill the rows."""
    with ExitStack() as stack:
        log = stack.enter_context(LOG.open("w"))
        systems = {name: System(name, places, mib, log, stack) for name in SYSTEMS}
        for system in systems.values():
            system.begin()
        turns = [number for _ in range(rounds) for number in range(REPLICAS)]
        for number in track(turns, "kills", transient=True):
            killed = KILLED[min(number, 1)]
            for name, system in systems.items():
                times = system.turn(number)
                for row in rows:
                    if row.killed == killed:
                        row.seconds.setdefault(name, []).append(times[row.what])


@contextmanager
def lab_of(scenario: Path) -> Iterator[tuple[Any, list[Place]]]:
    """The lab of a scenario, and its first hosts."""
    from carriers import DEVICE
    from lab import Lab
    from network import own_boot_id

    # torch's store looks for the names of addresses, and warns if a namespace has none.
    os.environ |= {"GLOO_SOCKET_IFNAME": DEVICE, "PCCL_INSECURE": "1"}
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    with Lab(scenario) as lab, tempfile.TemporaryDirectory(prefix="pccl-bench-") as folder:
        yield (
            lab,
            [
                Place(command=[*command, *own_boot_id(Path(folder), number)], address=host.address)
                for number, (command, host) in enumerate(zip(lab.places(), lab.hosts, strict=True))
            ][:REPLICAS],
        )


def version() -> str:
    """Return the version of the installed torchft."""
    for name in ("torchft", "torchft-nightly"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    raise SystemExit("this benchmark needs torchft: its docstring has the command")


# ---- The table -----------------------------------------------------------------------------------


HEAD = ("network", "torchft", "time", "killed", "kills", "pccl (min-max)", "Gloo", "pccl ÷ Gloo")


def cells(row: Row) -> list[str]:
    """Return a row of the table."""
    ours, theirs = (row.seconds[name] for name in SYSTEMS)
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    times = [records.spread(ours), records.spread(theirs), f"{ratio:.2f}"]
    return [row.network, row.torchft, row.what, row.killed, str(len(ours)), *times]


def main() -> int:
    """Print a table; return 1 if the emulator did not keep up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    rounds = "of three kills per system (default 5)"
    parser.add_argument("--rounds", type=at_least_one, default=5, help=rounds)
    parser.add_argument("--mib", type=at_least_one, default=16, help="of float32 in a step")
    parser.add_argument("--scenario", type=Path, help="of an emulated network (default: loopback)")
    records.add_option(parser)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--system", choices=SYSTEMS, help=argparse.SUPPRESS)
    for name in ("--replica", "--store"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    for name in ("--address", "--lighthouse", "--address-of-store"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.server:
        server_main(given)
    if given.replica is not None:
        replica_main(given)
    # Losses are expected here.
    os.environ |= {"OMP_NUM_THREADS": "1", "PCCL_LOG": "error", "TORCH_FR_DUMP_ON_TIMEOUT": "0"}
    network = "loopback" if given.scenario is None else given.scenario.stem
    rows = [
        Row(network=network, torchft=version(), killed=killed, what=what)
        for what in TIMES
        for killed in KILLED
    ]
    if given.scenario is None:
        places = [Place(command=(), address="127.0.0.1")] * REPLICAS
        measure(rows, places, given.mib, given.rounds)
    else:
        with lab_of(given.scenario) as (lab, places):
            measure(rows, places, given.mib, given.rounds)
        for row in rows:
            row.emulator, row.sound = str(lab.report), lab.report.sound
    print(table(HEAD, [cells(row) for row in rows]) + rows[0].emulator, flush=True)
    congestion = records.congestion_here()
    records.write(records.Record(congestion=congestion, rounds=given.rounds, rows=rows), given.json)
    return int(not all(row.sound for row in rows))


if __name__ == "__main__":
    run_main(main)
