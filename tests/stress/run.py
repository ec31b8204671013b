"""make stress: real processes are killed, paused, cut off and started, for as long as you like.

    tools/stock-network.sh .venv/bin/python tests/stress/run.py --minutes 3

Every 0.5 to 1 s something happens to one of 2 to 8 workers (worker.py) or, sometimes, to the
master. Afterwards all must make progress again, and their log lines must agree (report.py). The
exit status is 1 if they do not. Each choice comes from the seed; the timing depends on the machine.

With `--kind`, the workers train with DiLoCo (trainer.py) or trainers.DDP (ddp_trainer.py): after
every outer step all members must hold the same state, and each outer step must be one more. `make
churn` runs four kinds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import network
import report
from programs import Program
from report import Event

PCCL = Path(sys.executable).with_name("pccl")
PEER_TIMEOUT_S = 2.0
PEERS_MIN, PEERS_MAX = 2, 8
EVENT_EVERY_S = (0.5, 1.0)
MASTER_KILL = "kill of the master"
KINDS = ("collectives", "blocking", "overlapped", "carry", "streaming", "ddp")  # process_pool.py
CALM_S = 15.0  # at the end: the last faults are over, and all make progress


@dataclass
class Peer:
    """A worker process."""

    pid: int
    pidfd: int
    machine: network.Machine
    log: Path
    stopped_until: float = 0.0
    cut_until: float = 0.0

    def ended(self) -> bool:
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)


class Stress:
    """The orchestrator."""

    def __init__(self, folder: Path, seed: int, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._chance = random.Random(seed)
        self.events: list[Event] = []
        self.violations: list[str] = []
        self._peers: list[Peer] = []
        self._born = 0
        network.make_hub()
        self._machines = [network.Machine(number) for number in range(PEERS_MAX)]
        self._master_away_until = 0.0
        secrets = ["--keyring", self._folder / "keyring", "--out", self._folder / "token"]
        command = [PCCL, "token", "new", "stress", *secrets]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        self._master = self._start_master()
        here = Path(__file__).parent
        self._pool = Program(
            [sys.executable, str(here / "process_pool.py")],
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PCCL_PEER_TIMEOUT": str(PEER_TIMEOUT_S),
                "PCCL_SECRET_FILE": str(self._folder / "token"),
                # Freed tensors go back to the system, so the memory that a worker holds shows
                # leaks.
                "MALLOC_MMAP_THRESHOLD_": str(1 << 20),
            },
        )
        assert self._answer() == "ready"

    # ---- The processes ----

    def _answer(self) -> str:
        return self._pool.line().strip()

    def _start_master(self) -> Program:
        options = ["--journal", self._folder / "journal", "--keyring", self._folder / "keyring"]
        master = Program(
            [PCCL, "master", "--host", network.HUB, *options],
            env={**os.environ, "PCCL_LOG": "error"},
        )
        if not master.line():
            self.violations.append(f"the master did not start: it ended with {master.wait()}")
        return master

    def spawn(self) -> None:
        free = [one for one in self._machines if all(one is not p.machine for p in self._peers)]
        machine = self._chance.choice(free)
        log = self._folder / f"worker{self._born:04d}"
        self._born += 1
        assert self._pool.stdin is not None
        url = f"pccl://{network.HUB}/stress?min_peers=2"
        self._pool.stdin.write(f"{machine.namespace} {log} {url} {self._kind}\n")
        self._pool.stdin.flush()
        pid = int(self._answer())
        self._peers.append(Peer(pid, os.pidfd_open(pid), machine, log))

    def _bury(self, peer: Peer) -> None:
        self._peers.remove(peer)
        os.close(peer.pidfd)
        peer.machine.mend()

    # ---- Faults ----

    def disturb(self) -> None:
        """Cause one event."""
        roll = self._chance.random()
        eldest, others = self._peers[0], self._peers[1:]
        if len(self._peers) < PEERS_MIN + 1 or (len(self._peers) < PEERS_MAX and roll < 0.4):
            self.spawn()
            return self._note("spawn", self._peers[-1])
        if roll < 0.05 and not self._master_away_until:
            return self._kill_master()
        # The eldest holds the state, so it is not killed. All other faults hit it, too.
        victim = self._chance.choice(others if roll < 0.75 else self._peers)
        if victim.stopped_until or victim.cut_until:
            return None
        if roll < 0.75:
            victim.signal(signal.SIGKILL)
            select.select([victim.pidfd], [], [], 10)
            self._note("kill", victim)
            return self._bury(victim)
        # Usually the fault is too short for a loss. For the eldest it always is.
        long = victim is not eldest and self._chance.random() < 0.3
        length = self._chance.uniform(0.1, 0.5) * PEER_TIMEOUT_S * (4 if long else 1)
        until = time.monotonic() + length
        if roll < 0.9:
            victim.signal(signal.SIGSTOP)
            victim.stopped_until = until
            return self._note("stop" if long else "stop for a moment", victim)
        victim.machine.cut()
        victim.cut_until = until
        return self._note("cut" if long else "cut for a moment", victim)

    def _kill_master(self) -> None:
        self._master.end()
        self._master_away_until = time.monotonic() + self._chance.uniform(0, 2)
        self.events.append(Event(time.monotonic(), MASTER_KILL, "master"))

    def _note(self, kind: str, peer: Peer) -> None:
        self.events.append(Event(time.monotonic(), kind, peer.log.name))

    def heal(self, *, all_of_it: bool = False) -> None:
        """End the faults whose time is over."""
        now = float("inf") if all_of_it else time.monotonic()
        if self._master_away_until and self._master_away_until <= now:
            self._master_away_until = 0.0
            self._master = self._start_master()
        for peer in list(self._peers):
            if peer.stopped_until and peer.stopped_until <= now:
                peer.signal(signal.SIGCONT)
                peer.stopped_until = 0.0
            if peer.cut_until and peer.cut_until <= now:
                peer.machine.mend()
                peer.cut_until = 0.0
            if peer.ended():
                why = Path(f"{peer.log}.err").read_text().strip().splitlines()[-1:]
                self.violations.append(f"{peer.log.name} ended by itself: {' '.join(why)}")
                self._bury(peer)
        if self._master.poll() is not None and not self._master_away_until:
            self.violations.append(f"the master ended by itself: {self._master.returncode}")
            self._master = self._start_master()

    def run(self, seconds: float) -> None:
        for _ in range(PEERS_MIN + 1):
            self.spawn()
        end = time.monotonic() + seconds
        self._note("start", self._peers[0])
        while time.monotonic() < end:
            self._watch(time.monotonic() + self._chance.uniform(*EVENT_EVERY_S))
            half_time = time.monotonic() > end - seconds / 2
            if half_time and all(event.kind != MASTER_KILL for event in self.events):
                self._kill_master()  # at least once, also in a short run
            elif self._peers:
                self.disturb()
        self.heal(all_of_it=True)
        self._watch(time.monotonic() + CALM_S)

    def run_calmly(self, seconds: float, *, peers: int, steps: int) -> None:
        """Let that many trainers take that many outer steps, without any fault."""
        for _ in range(peers):
            self.spawn()
        end = time.monotonic() + seconds
        self._note("start", self._peers[0])
        while self._steps_of_the_eldest() < steps and time.monotonic() < end:
            self._watch(time.monotonic() + 1.0)

    def _steps_of_the_eldest(self) -> int:
        log = self._peers[0].log
        said = report.read([log]).get(log.name, [])
        return max((line["stepped"] for line in said if "stepped" in line), default=0)

    def _watch(self, until: float) -> None:
        """End faults when they are due, and notice at once which workers end by themselves."""
        while time.monotonic() < until:
            ends = [until, self._master_away_until]
            for peer in self._peers:
                ends += [peer.stopped_until, peer.cut_until]
            pause = min(end for end in ends if end) - time.monotonic()
            select.select([peer.pidfd for peer in self._peers], [], [], max(pause, 0))
            self.heal()

    def alive(self) -> list[Path]:
        return [peer.log for peer in self._peers]

    def close(self) -> None:
        for peer in self._peers:
            peer.signal(signal.SIGKILL)
        self._pool.end()
        self._master.end()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0])
    parser.add_argument("--calm", type=int, metavar="PEERS", help="no faults, so many trainers")
    parser.add_argument("--steps", type=int, default=0, help="outer steps of --calm")
    parser.add_argument("--logs", type=Path, help="a folder for the logs of the workers")
    return parser.parse_args()


def main() -> int:
    """Run the workers and print the report."""
    options = parse()
    if os.geteuid() != 0:
        print("make stress makes network namespaces: it needs root", file=sys.stderr)
        return 2
    print(f"{options.kind}, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pccl-stress-") as name:
        folder = options.logs or Path(name)
        stress = Stress(folder, options.seed, options.kind)
        try:
            if options.calm:
                stress.run_calmly(options.minutes * 60, peers=options.calm, steps=options.steps)
            else:
                stress.run(options.minutes * 60)
            end = time.monotonic()
        finally:
            stress.close()
        lines = report.read(sorted(folder.glob("worker????")))
        verdict = report.judge(lines, stress.events, end)
        verdict.violations += stress.violations
        for log in stress.alive():
            last = [line["at"] for line in lines.get(log.name, []) if "agreed" in line]
            if not last or end - last[-1] > CALM_S / 2:
                verdict.hangs.append(f"{log.name} did not get on when all was calm")
    print(verdict.text())
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
