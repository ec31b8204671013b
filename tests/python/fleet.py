"""Fleet: peers under remote control, for tests that kill, join and measure.

A warm process has imported torch and pccl and forks each peer, which then costs milliseconds
instead of seconds. A peer executes commands from a socket, one after another, and answers in JSON.
The test holds a pidfd of each peer, so it knows when a killed peer has really ended. Nothing
outlives `Fleet.close()`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from programs import Program
from world import keyring_options

PCCL = Path(sys.executable).with_name("pccl")
ANSWER_TIMEOUT = 60.0
EXIT_TIMEOUT = 60.0  # the end of torch, which a slow machine reads from its disk again
COUNT = 4 << 20  # elements of a long all-reduce: 16 MiB of float32


class Remote:
    """One peer process, as its test sees it."""

    def __init__(self, pid: int, connection: socket.socket, namespace: str) -> None:
        self.pid = pid
        self.namespace = namespace
        self.pidfd = os.pidfd_open(pid)
        self.socket = connection
        self._reader = connection.makefile("r")

    def tell(self, verb: str, **arguments: Any) -> None:
        """Send a command; answer() returns the answers in order."""
        self.socket.sendall((json.dumps([verb, arguments]) + "\n").encode())

    def answer(self, timeout: float = ANSWER_TIMEOUT) -> dict[str, Any]:
        self.socket.settimeout(timeout)
        line = self._reader.readline()
        if not line:
            raise EOFError(f"peer process {self.pid} has ended")
        result: dict[str, Any] = json.loads(line)
        if "crashed" in result:
            raise AssertionError(f"peer process {self.pid}:\n{result['crashed']}")
        return result

    def call(self, verb: str, timeout: float = ANSWER_TIMEOUT, **arguments: Any) -> dict[str, Any]:
        self.tell(verb, **arguments)
        return self.answer(timeout)

    def kill(self) -> float:
        """Send SIGKILL; return the monotonic time of its end."""
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        return self.ended()

    def ended(self, timeout: float = EXIT_TIMEOUT) -> float:
        readable, _, _ = select.select([self.pidfd], [], [], timeout)
        assert readable, f"peer process {self.pid} has not ended within {timeout} s"
        return time.monotonic()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.ended()
        os.close(self.pidfd)
        self._reader.close()
        self.socket.close()


def wait_joined(peers: list[Remote], count: int) -> list[Remote]:
    """Wait until `count` of the peers, which have called join, are members; return those."""
    joined: list[Remote] = []
    while len(joined) < count:
        waiting = {peer.socket: peer for peer in peers if peer not in joined}
        readable, _, _ = select.select(list(waiting), [], [], ANSWER_TIMEOUT)
        assert readable, f"{len(joined)} of {count} peers have joined within {ANSWER_TIMEOUT} s"
        for socket_ in readable:
            answer = waiting[socket_].answer()
            assert answer["ok"], answer
            joined.append(waiting[socket_])
    return joined


def begin_all_reduce(peers: list[Remote]) -> None:
    """Post an all-reduce on all peers; return when all have posted it."""
    for seed, peer in enumerate(peers):
        peer.tell("all_reduce", count=COUNT, seed=seed)
    for peer in peers:
        assert "posted" in peer.answer()


def check_sum(peers: list[Remote]) -> None:
    """Check that the all-reduce succeeded on all peers, with the same bits."""
    outcomes = [peer.answer() for peer in peers]
    assert all(one["ok"] for one in outcomes), outcomes
    assert len({one["digest"] for one in outcomes}) == 1


class Fleet:
    """A master, the warm process, and every peer forked from it."""

    def __init__(
        self,
        *,
        environment: dict[str, str] | None = None,
        journal: Path | None = None,
        host: str = "127.0.0.1",
        secured: bool = False,
        master_log: Path | None = None,
    ) -> None:
        """Start them. `master_log`: the file for the standard error of the masters."""
        self.journal = journal
        self._master_log = master_log
        # The places of the keyring of a secured run and of the token of all peers.
        self.secrets = Path(tempfile.mkdtemp(prefix="pccl-secrets-")) if secured else None
        if self.secrets is not None:
            self.new_token("fleet")
        self._master_namespace = ""
        self.address = f"{host}:0"
        self.start_master()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Freed tensors go back to the system, so the memory that a peer holds shows leaks.
        malloc = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
        env = {**os.environ, "OMP_NUM_THREADS": "1", **malloc, **(environment or {})}
        if self.secrets is not None:
            env["PCCL_SECRET_FILE"] = str(self.token)
        self._warm = Program(
            [sys.executable, __file__, str(theirs.fileno())],
            stdout=None,
            pass_fds=[theirs.fileno()],
            env=env,
        )
        theirs.close()
        self._control.settimeout(ANSWER_TIMEOUT)
        assert self._control.recv(100) == b"warm"
        self.peers: list[Remote] = []

    @property
    def keyring(self) -> Path:
        assert self.secrets is not None, "this fleet is not secured"
        return self.secrets / "keyring"

    @property
    def token(self) -> Path:
        """Return the file that the peers read."""
        return self.keyring.with_name("token")

    def new_token(self, name: str, *words: str) -> None:
        """Make a token in the keyring, and put it in the file that the peers read."""
        self.put_token(self.make_token(name, *words))

    def make_token(self, name: str, *words: str) -> str:
        """Make a token in the keyring."""
        command = [PCCL, "token", "new", name, *words, "--keyring", self.keyring]
        made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
        return made.stdout

    def put_token(self, token: str, file: str = "token") -> Path:
        """Put a token in a file beside the keyring; return its path, for `join`."""
        fresh = self.token.with_name("token.new")
        fresh.touch(0o600)
        fresh.write_text(token)
        return fresh.rename(self.token.with_name(file))

    def start_master(self, *more: str) -> None:
        """Start the master; a restart uses the same address."""
        host, _, port = self.address.rpartition(":")
        arguments = ["--host", host, "--port", port, *more]
        if self.journal is not None:
            arguments += ["--journal", str(self.journal)]
        else:
            arguments += ["--no-journal"]
        if self.secrets is not None:
            arguments += ["--keyring", str(self.keyring)]
        else:
            arguments += keyring_options()
        enter = []
        if inside := self._master_namespace:
            # The namespace lives as long as the master, which ends with this process even after a
            # kill.
            enter = ["nsenter", f"--net={inside}", "setpriv", "--pdeathsig", "KILL"]
        with contextlib.ExitStack() as given:
            log = given.enter_context(self._master_log.open("ab")) if self._master_log else None
            self.master = Program([*enter, PCCL, "master", *arguments], stderr=log)
        words = self.master.line(ANSWER_TIMEOUT).split()
        assert words, "the master has not started: see its error above"
        self.address = words[-1]

    def kill_master(self) -> None:
        self.master.end()

    def move_master(self, namespace: str, host: str) -> None:
        """End the master, and start one at that address in another network namespace."""
        self.kill_master()
        self._master_namespace, self.address = namespace, f"{host}:0"
        self.start_master()

    def url(self, run: str = "test", **parameters: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"pccl://{self.address}/{run}" + (f"?{query}" if query else "")

    def spawn(self, namespace: str = "", *, log: Path | None = None) -> Remote:
        """Start a process, in the given network namespace (network.py) or in this one.

        `log`: the file for its standard error; without it, this process's standard error is used.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as given:
            descriptors = [theirs.fileno()]
            if log is not None:
                descriptors.append(given.enter_context(log.open("ab")).fileno())
            socket.send_fds(self._control, [f"spawn {namespace}".encode()], descriptors)
        peer = Remote(int(self._control.recv(100)), ours, namespace)
        self.peers.append(peer)
        return peer

    def found(
        self,
        count: int,
        run: str = "test",
        namespaces: Sequence[str] = (),
        **parameters: object,
    ) -> list[Remote]:
        """Start `count` peers in one run, in rank order: two found it and admit the others."""
        newcomers = [self.spawn(*namespaces[i : i + 1]) for i in range(count)]
        url = self.url(run, min_peers=min(2, count), **parameters)
        for peer in newcomers:
            peer.tell("join", url=url)
        founders = wait_joined(newcomers, min(2, count))
        return self.admit(founders, [peer for peer in newcomers if peer not in founders])

    def admit(self, members: list[Remote], newcomers: list[Remote]) -> list[Remote]:
        """Admit `newcomers`, which have called join; return all members in rank order."""
        members, newcomers = list(members), list(newcomers)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while newcomers:
            assert time.monotonic() < deadline, f"{len(newcomers)} newcomers were not let in"
            for member in members:
                member.tell("update_topology")
            joined = {member.answer()["world"] - len(members) for member in members}
            assert len(joined) == 1, joined
            arrived = wait_joined(newcomers, joined.pop())
            members += arrived
            newcomers = [peer for peer in newcomers if peer not in arrived]
            # Nothing announces that a newcomer is ready, so the members ask again. The pause leaves
            # the cores to the newcomers; `deadline` bounds the loop.
            time.sleep(0.01)
        ranks = {peer: peer.call("info")["rank"] for peer in members}
        return sorted(members, key=lambda peer: ranks[peer])

    def forget(self, peer: Remote) -> None:
        """End the process if it lives."""
        self.peers.remove(peer)
        peer.close()

    def close(self) -> None:
        try:
            for peer in list(self.peers):
                self.forget(peer)
            self._control.close()
            self._warm.wait(timeout=EXIT_TIMEOUT)
            self.master.terminate()
            self.master.wait(timeout=EXIT_TIMEOUT)
        finally:
            self._warm.end()
            self.master.end()
            if self.secrets is not None:
                shutil.rmtree(self.secrets)


# ---- Impl a peer process -----------------------------------------------------------------------


class Peer:
    """The commands of a peer process: a method is a verb, and returns the answer."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        import torch
        import torch.distributed as dist

        import pccl_backend as pccl

        torch.set_num_threads(1)
        self.torch, self.dist, self.pccl = torch, dist, pccl
        self.say = say
        self.posted: list[Any] = []
        self.inputs: dict[tuple[int, int], str] = {}  # digests by (count, seed)
        self.base = torch.zeros(0)
        self.weights = torch.zeros(1000)
        self.revision = 0

    def _attempt(self, what: Callable[[], Any]) -> dict[str, Any]:
        start = time.monotonic()
        try:
            value = what()
            result = {"ok": True, **(value if isinstance(value, dict) else {})}
        except (RuntimeError, ValueError, TypeError, OSError) as error:
            result = {"ok": False, "error": type(error).__name__, "message": str(error)}
        return {**result, "start": start, "end": time.monotonic()}

    def join(self, url: str, timeout: float = 60.0, token: str = "") -> dict[str, Any]:
        """`token`: the path of the token of this peer, if it has its own."""
        from datetime import timedelta

        if token:
            os.environ["PCCL_SECRET_FILE"] = token

        def init() -> dict[str, Any]:
            self.dist.init_process_group(
                "pccl", init_method=url, timeout=timedelta(seconds=timeout)
            )
            return {"rank": self.dist.get_rank(), "world": self.dist.get_world_size()}

        return self._attempt(init)

    def _tensor(self, count: int, seed: int) -> Any:
        if len(self.base) != count:
            self.base = self.torch.arange(count, dtype=self.torch.float32).remainder_(64)
        return self.base + seed

    def all_reduce(
        self,
        count: int,
        seed: int,
        *,
        tag: str = "",
        op: str = "sum",
        on_loss: str | None = None,
        quantize: int = 0,
        stride: int = 1,
        dies_at: float = 0.0,
        repeat: bool = False,
        dtype: str = "float32",
        root: int | None = None,
    ) -> dict[str, Any]:
        """Send {"posted": ...} once it is posted, then return its end.

        `quantize`: bits of an element on the wire; 0: not quantized.
        `stride` above 1: use a tensor that is not contiguous. `dies_at`: the fraction of its bytes
        that have arrived when this process kills itself. `repeat`: after a failure, update the
        topology and repeat the operation at once; the answer then contains the results of the
        repetition. `dtype`: of four bytes. `root`: reduce to this rank instead.
        """
        tensor = self._tensor(count, seed).to(getattr(self.torch, dtype))
        if (count, seed) not in self.inputs:
            self.inputs[count, seed] = digest(tensor)
        if stride > 1:
            tensor = tensor.new_zeros(count, stride)[:, 0].copy_(tensor)

        if dies_at > 0:
            yield_to_this_thread()

        def reduce() -> dict[str, Any]:
            received = self.pccl.run_info().tensor_bytes_received
            q = self.pccl.quantization.MinMax(bits=quantize) if quantize else None
            if root is None:
                work = self.pccl.all_reduce(
                    tensor, op=op, tag=tag, quantize=q, on_loss=on_loss, async_op=True
                )
            else:
                work = self.dist.reduce(tensor, root, async_op=True)
            self.say({"posted": time.monotonic()})
            world = self.dist.get_world_size()
            passes = 2 * (world - 1) / world if root is None else 1
            mortal = received + dies_at * count * 4 * passes
            while dies_at > 0:
                if self.pccl.run_info().tensor_bytes_received >= mortal:
                    os.kill(os.getpid(), signal.SIGKILL)
                assert not work.is_completed(), "the operation ended before the kill"
                # Nothing announces that the counter has grown. A short interval hits the moment of
                # the kill; the time limit of the test bounds the loop.
                time.sleep(0.0005)
            work.wait()
            if on_loss is None:
                return {}
            parts = self.pccl.contributors(work)
            return {"parts": [(part.start, part.stop, part.peers) for part in parts]}

        state = self._attempt(reduce)
        if repeat and not state["ok"]:
            return {**state, **self._repeat(tensor)}
        after = digest(tensor)
        return {
            **state,
            "digest": after,
            "untouched": after == self.inputs[count, seed],
            "values": tensor[:: max(count // 1000, 1)].tolist(),
        }

    def collective(self, kind: str, count: int) -> dict[str, Any]:
        """Send {"posted": ...} once it is posted, then return its end.

        `kind`: a name of every_collective.py. `right`: the outputs are correct after success.
        `read`, `untouched`: the inputs, and all tensors, are bit for bit as before.
        """
        from every_collective import COLLECTIVES, TRANSFERS

        make = {**COLLECTIVES, **TRANSFERS}[kind]
        call = make(self.dist.get_rank(), self.dist.get_world_size(), count)
        inputs, outputs = map(digests, (call.inputs, call.outputs))

        def run() -> None:
            works = call.begin()
            self.say({"posted": time.monotonic()})
            call.wait(works)

        state = self._attempt(run)
        read = digests(call.inputs) == inputs
        untouched = read and digests(call.outputs) == outputs
        return {**state, "right": call.right(), "read": read, "untouched": untouched}

    def _repeat(self, tensor: Any) -> dict[str, Any]:
        """Repeat it: the sum is exact, so any element that was not restored shows."""
        self.pccl.update_topology()
        updated = time.monotonic()
        self.dist.all_reduce(tensor)
        repeated = time.monotonic()
        seeds = tensor - self.dist.get_world_size() * self.base
        return {
            "updated": updated,
            "repeated": repeated,
            "seeds": seeds[0].item(),
            "exact": bool((seeds == seeds[0]).all()),
            "digest": digest(tensor),
        }

    def post(self, count: int, seed: int, times: int = 1, tag: str = "") -> dict[str, Any]:
        def post() -> None:
            for _ in range(times):
                tensor = self._tensor(count, seed)
                self.posted.append(
                    (self.pccl.all_reduce(tensor, op="sum", tag=tag, async_op=True), tensor)
                )

        return self._attempt(post)

    def wait_all(self) -> dict[str, Any]:
        outcomes = []
        for work, _ in self.posted:
            outcomes.append(self._attempt(work.wait))
        self.posted.clear()
        return {"outcomes": outcomes}

    def update_topology(self) -> dict[str, Any]:
        def update() -> dict[str, Any]:
            topology = self.pccl.update_topology()
            return {
                "joined": len(topology.joined),
                "rank": self.dist.get_rank(),
                "world": self.dist.get_world_size(),
            }

        return self._attempt(update)

    def are_peers_pending(self) -> dict[str, Any]:
        return self._attempt(lambda: {"pending": self.pccl.are_peers_pending()})

    def set_state(self, value: float, revision: int) -> dict[str, Any]:
        self.weights = self.torch.full((1000,), value)
        self.revision = revision
        return {"ok": True}

    def sync(self, strategy: str = "enforce_popular") -> dict[str, Any]:
        state = self.pccl.SharedState({"weights": self.weights}, revision=self.revision)

        def sync() -> dict[str, Any]:
            info = self.pccl.sync_shared_state(state, strategy=strategy)
            self.revision = state.revision
            return {"rx_bytes": info.rx_bytes, "hash": str(info.hash)}

        return {**self._attempt(sync), "digest": digest(self.weights), "revision": self.revision}

    def train(self, newcomer: bool = False, steps: int = 1_000_000) -> dict[str, Any]:
        """Train until any peer has done its `steps`; all peers then stop after the same step.

        A step is: topology update, shared-state sync, all-reduce. It advances the state by one
        revision.
        """
        failures, digests, revisions = [], {}, []
        for step in range(steps):
            try:
                if not (
                    newcomer and step == 0
                ):  # a newcomer starts where the members' update_topology returns
                    self.pccl.update_topology()
                strategy = "receive_only" if newcomer and step == 0 else "enforce_popular"
                synced = self.sync(strategy)
                if not synced["ok"]:
                    raise RuntimeError(synced["message"])
                digests[self.revision] = synced["digest"]
                delta = self.torch.full((1000,), float(self.dist.get_rank() + 1))
                self.dist.all_reduce(delta)
                self.weights += delta
                self.revision += 1
                revisions.append(self.revision)
                last = self.torch.tensor([float(step == steps - 1)])
                self.dist.all_reduce(last, op=self.dist.ReduceOp.MAX)
            except RuntimeError as error:
                failures.append(f"step {step}: {error}")
                break
            if step == 0:
                self.say({"first_step": self.revision})
            if last.item() > 0:
                break
            time.sleep(0.005)  # the "forward and backward" of this training
        return {
            "failures": failures,
            "digests": digests,
            "revisions": revisions,
        }

    def optimize_topology(self) -> dict[str, Any]:
        return self._attempt(lambda: {"text": repr(self.pccl.optimize_topology())})

    def report(self, **numbers: float) -> dict[str, Any]:
        return self._attempt(lambda: self.pccl.report(**numbers))

    def usage(self) -> dict[str, Any]:
        import gc

        gc.collect()
        status = Path("/proc/self/status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return {
            "threads": len(os.listdir("/proc/self/task")),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "rss": int(rss.split()[1]) * 1024,
        }

    def info(self) -> dict[str, Any]:
        run = self.pccl.run_info()
        return {
            "rank": self.dist.get_rank(),
            "world": self.dist.get_world_size(),
            "peer": run.peer,
            "ring": run.ring,
            "address": run.members[run.rank].address,
            "port": int(run.members[run.rank].address.rpartition(":")[2]),
            "connections": {link.peer: link.connection for link in run.links},
        }

    def links(self) -> dict[str, Any]:
        run = self.pccl.run_info()
        return {"peer": run.peer, "links": [asdict(link) for link in run.links]}

    def everything(self) -> dict[str, Any]:
        return {"text": repr(self.pccl.run_info())}

    def leave(self) -> dict[str, Any]:
        return self._attempt(self.dist.destroy_process_group)


def yield_to_this_thread() -> None:
    """Lower the priority of the other threads of this process, so that this one wakes in time."""
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != threading.get_native_id():
            os.setpriority(os.PRIO_PROCESS, thread, 5)


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().numpy()).hexdigest()[:16]


def digests(tensors: list[Any]) -> list[str]:
    """Return a digest of each tensor; a sparse one is its indices and its values."""
    parts = []
    for tensor in tensors:
        parts += [tensor._indices(), tensor._values()] if tensor.is_sparse else [tensor]
    return [digest(part) for part in parts]


def serve(connection: socket.socket) -> None:
    """Run a peer process: read commands, send answers."""

    def say(answer: dict[str, Any]) -> None:
        connection.sendall((json.dumps(answer) + "\n").encode())

    try:
        peer = Peer(say)
        for line in connection.makefile("r"):
            verb, arguments = json.loads(line)
            say(getattr(peer, verb)(**arguments))
    except BaseException:
        say({"crashed": traceback.format_exc()})
        raise


def warm_main(descriptor: int) -> None:
    """Import everything, start nothing, fork a peer for each request, end with the socket."""
    import network
    import torch
    import torch.distributed  # noqa: F401

    import pccl_backend

    _ = pccl_backend.PcclError  # loads the extension
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children leave no zombies
    control = socket.socket(fileno=descriptor)
    control.send(b"warm")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 100, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for log in descriptors[1:]:
                os.dup2(log, sys.stderr.fileno())
                os.close(log)
            if namespace := message.partition(b" ")[2].decode():
                network.enter(namespace)
            serve(socket.socket(fileno=descriptors[0]))
            os._exit(0)
        for ours in descriptors:
            os.close(ours)
        control.send(str(pid).encode())


if __name__ == "__main__":
    warm_main(int(sys.argv[1]))
