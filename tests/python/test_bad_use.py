"""Bad use: soon, every affected rank gets a named error with a remedy."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import work_misuse as work
from conftest import MakeWorld
from world import Master, free_port, plain_text, run_program, wait_until

import pccl_backend as pccl

SOON_S = 10.0  # an error that waits for a group's timeout comes later: after 20 s or more
FLAT = torch.ones(4)
PAIRS = torch.ones(2, 3)

Found = dict[str, Any]


def check(found: Found, error: str, *says: str) -> None:
    assert found["type"] == error, found
    for part in says:
        assert part in found["text"], found
    assert found["seconds"] < SOON_S, found


# --- Between ranks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (work.sizes_differ, ("10 elements", "11 elements", "rank 0", "rank 1")),
        (work.dtypes_differ, ("float32", "float64")),
        (work.reductions_differ, ("all_reduce(sum", "all_reduce(max", "layer.3")),
        (work.collectives_differ, ("all_reduce", "broadcast")),
        (work.roots_differ, ("broadcast",)),
        (work.messages_differ, ("3 elements", "4 elements")),
        (work.joint_calls_differ, ("update_topology", "sync_shared_state")),
    ],
)
def test_ranks_that_differ(
    make_world: MakeWorld, function: Callable[[], Found], says: tuple[str, ...]
) -> None:
    results = make_world(2).run(function)
    for found in results:
        check(found, "CollectiveMismatchError", *says)
    # A joint call's message begins with the name of this rank's own call.
    texts = {found["text"].partition(": ranks made")[2] or found["text"] for found in results}
    assert len(texts) == 1, "both sides are told the same"


def test_a_second_joint_call(make_world: MakeWorld) -> None:
    found, _ = make_world(2).run(work.a_second_joint_call)
    check(found, "InvalidStateError", "update_topology")


def test_ranks_that_want_different_min_peers(make_world: MakeWorld, master: Master) -> None:
    url = master.url()
    first, second = make_world(1), make_world(1)
    first.start(_join_by, f"{url}?min_peers=2", setup="nothing")
    threading.Event().wait(0.5)
    second.start(_join_by, f"{url}?min_peers=3", setup="nothing")
    (outcome,) = second.outcomes(30)
    check(outcome.value, "ValueError", "min_peers")


def _join_by(url: str) -> Found:
    return work.joins(init_method=url)


# --- One rank's arguments -------------------------------------------------------------------------

REFUSALS = {
    "float8": ("ValueError", "Float8_e4m3fn"),
    "average of bools": ("ValueError", "AVG", "bool", "a copy in float32"),
    "bits of floats": ("ValueError", "BXOR", "float32"),
    "bits of complex": ("ValueError", "complex"),
    "unknown op": ("ValueError", "median", "sum, avg, product"),
    "meta": ("NotImplementedError", "the CPU and of CUDA devices", "meta"),
    "meta to pccl": ("NotImplementedError", "the CPU and of CUDA devices", "meta"),
    "conjugated": ("ValueError", ".resolve_conj()"),
    "negated": ("ValueError", ".resolve_neg()"),
    "expanded": ("ValueError", "share memory", ".clone()"),
    "root": ("ValueError", "src=7", "from 0 to 1"),
    "to itself": ("ValueError",),
    "too few outputs": ("ValueError", "one output per rank, 2 in all, not 1"),
    "output dtype": ("ValueError", "dtype"),
    "output size": ("ValueError",),
    "long tag": ("ValueError", "257 bytes", "256"),
    "tag of another type": ("TypeError", "tag must be a str, not int"),
    "tag of surrogates": ("ValueError", r"the tag '\ud800' is no valid text"),
    "op is a class": ("TypeError", "op must be a name or a dist.ReduceOp"),
    "op without its factor": ("ValueError", "PREMUL_SUM", "_make_nccl_premul_sum(factor)"),
    "state": ("TypeError", "SharedState"),
    "strategy": ("ValueError", "majority", "enforce_popular, send_only, receive_only"),
}


def test_wrong_arguments(make_world: MakeWorld) -> None:
    for results in make_world(2).run(work.wrong_arguments):
        assert results.keys() == REFUSALS.keys()
        for name, found in results.items():
            error, *says = REFUSALS[name]
            check(found, error, *says)


def test_tensors_without_their_memory(make_world: MakeWorld) -> None:
    for results in make_world(2).run(work.unstored_tensors):
        for name, found in results.items():
            assert found["type"] == "ValueError", (name, found)
            check(found, "ValueError", "needs a storage of", f"has {found['has']}:", "Resize it")


def test_a_group_of_another_backend(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.group_of_another_backend, setup="nothing"):
        check(found, "ValueError", "gloo", "not pccl")


def test_subgroups_of_an_open_run(make_open_world: MakeWorld) -> None:
    (found,) = make_open_world(1).run(work.open_run_takes_no_subgroups)
    check(found, "NotImplementedError", "pccl_backend.join(url, peer_group=N)")


@pytest.mark.parametrize(
    ("tensors", "revision", "error", "says"),
    [
        ({1: torch.ones(1)}, 0, TypeError, "names must be str"),
        ({"x": 1.0}, 0, TypeError, "'x' must be a tensor"),
        ({"": torch.ones(1)}, 0, ValueError, "takes 0 bytes"),
        ({"x" * 513: torch.ones(1)}, 0, ValueError, "takes 513 bytes, not 1 to 512"),
        ({"x": torch.ones(3).expand(2, 3)}, 0, ValueError, "elements of 'x' share memory"),
        ({"x": PAIRS[:, :2], "y": PAIRS[:, 1:]}, 0, ValueError, "share a part of their memory"),
        ({"x": torch.ones(2, device="meta")}, 0, ValueError, "is on meta"),
        ({"x": torch.eye(2).to_sparse()}, 0, ValueError, "dense"),
        ({"\udcff": torch.ones(1)}, 0, ValueError, "no valid text"),
        ([torch.ones(1)], 0, TypeError, "must be a dict by name, not list"),
        ({"x": FLAT[:3], "y": FLAT[2:]}, 0, ValueError, "'x' and 'y' share a part of their memory"),
        ({"x": FLAT, "y": FLAT.view(2, 2)}, 0, ValueError, "share a part of their memory"),
        ({"x": torch.ones(1)}, -1, ValueError, "the revision is -1"),
        ({"x": torch.ones(1)}, 1.0, TypeError, "the revision must be an int, not float"),
        ({"x": torch.ones(1)}, True, TypeError, "the revision must be an int, not bool"),
    ],
)
def test_states_that_will_not_do(tensors: Any, revision: Any, error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        pccl.SharedState(tensors, revision=revision)


# --- Joining --------------------------------------------------------------------------------------


def join_in_a_process(make_world: MakeWorld, **settings: Any) -> Found:
    environment = settings.pop("environment", {})
    world = make_world(1, environment=environment)
    world.start(_join_with, settings, setup="nothing")
    (outcome,) = world.outcomes(20)
    found: Found = outcome.value
    return found


def _join_with(settings: dict[str, Any]) -> Found:
    return work.joins(**settings)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"url": 5}, TypeError, "the URL must be a str, not int"),
        ({"min_peers": -1}, ValueError, "min_peers is -1; it must be from 1 to 128"),
        ({"min_peers": "2"}, TypeError, "min_peers must be an int, not str"),
        ({"peer_group": 2**40}, ValueError, "peer_group is 1099511627776; it must be from 0"),
        ({"timeout": 5}, TypeError, "timeout must be a datetime.timedelta, not int"),
        ({"timeout": timedelta(0)}, ValueError, "timeout is 0 s; it must be above 0"),
        ({"timeout": timedelta(seconds=-3)}, ValueError, "timeout is -3 s; it must be above 0"),
        ({"timeout": timedelta.min}, ValueError, r"timeout is -8\.64e\+13 s; it must be above 0"),
    ],
)
def test_arguments_of_join(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        pccl.join(**{"url": "pccl://nowhere.invalid/r", **arguments})


def test_tags_and_operations_that_are_none() -> None:
    five: Any = 5
    with pytest.raises(TypeError, match="a tag must be a str, not int"), pccl.tag(five):
        pass
    with pytest.raises(ValueError, match="no valid text"), pccl.tag("\udcff"):
        pass
    for op in (five, None, [], True, object(), dist.ReduceOp, dist.ReduceOp.RedOpType):
        with pytest.raises(TypeError, match=r"op must be a name or a dist\.ReduceOp, not"):
            pccl.all_reduce(torch.ones(1), op=op)
    for name in ("SUM", "premul_sum", "", "\ud800"):
        with pytest.raises(ValueError, match="known are sum, avg"):
            pccl.all_reduce(torch.ones(1), op=name)
    with pytest.raises(TypeError, match="Work of a pccl group, not int"):
        pccl.contributors(five)
    text: Any = "20"
    with pytest.raises(TypeError, match="budget must be seconds, a number, not str"):
        pccl.optimize_topology(budget=text)


def test_hooks_that_torch_does_not_call() -> None:
    five: Any = 5
    state = pccl.hooks.QuantizeState(pccl.quantization.MinMax())
    for call in (
        lambda: pccl.hooks.ddp_hook(None, five),
        lambda: pccl.hooks.quantize_hook(state, five),
    ):
        with pytest.raises(TypeError, match="torch gives it a GradBucket, not int"):
            call()
    with pytest.raises(TypeError, match="the state must be a dict, not int"):
        state.load_state_dict(five)


def test_a_rank_in_an_open_run(make_world: MakeWorld, master: Master) -> None:
    found = join_in_a_process(make_world, init_method=master.url(), rank=0, world_size=1)
    check(found, "ValueError", "the master assigns ranks", "min_peers=N")


def test_an_unknown_parameter(make_world: MakeWorld, master: Master) -> None:
    found = join_in_a_process(make_world, init_method=master.url(minpeers=2))
    check(found, "ValueError", "unknown parameter 'minpeers': did you mean min_peers? Known are")


def test_a_variable_out_of_form(make_world: MakeWorld, master: Master) -> None:
    found = join_in_a_process(
        make_world, init_method=master.url(), environment={"PCCL_ON_PEER_LOSS": "ignore"}
    )
    check(found, "ValueError", "PCCL_ON_PEER_LOSS=ignore", "expected raise")


def test_a_time_out_of_range(make_world: MakeWorld, master: Master) -> None:
    found = join_in_a_process(make_world, init_method=master.url(peer_timeout=0.01))
    check(found, "ValueError", "peer_timeout=0.01", "seconds from 0.1 to 3600")


def test_a_barrier_that_would_hang(make_world: MakeWorld, master: Master) -> None:
    found = join_in_a_process(
        make_world, init_method=master.url(), environment={"TORCH_DIST_INIT_BARRIER": "1"}
    )
    check(found, "ValueError", "TORCH_DIST_INIT_BARRIER")


def test_nobody_listens_there(make_world: MakeWorld) -> None:
    """Dialling is repeated for the peer timeout, because masters and peers start in any order."""
    url = f"pccl://127.0.0.1:{free_port()}/r?peer_timeout=1.2"
    world = make_world(1)
    world.start(_join_by, url, setup="nothing")
    (outcome,) = world.outcomes(20)
    check(outcome.value, "MasterLostError", "127.0.0.1", "pccl master")
    assert outcome.value["seconds"] > 1.1
    (process,) = world.processes
    warned = wait_until(lambda: "warning" in process.log.read_text(), timeout_s=10)
    assert warned, "no warning after a second of trying"


def test_a_host_without_an_address(make_world: MakeWorld) -> None:
    found = join_in_a_process(
        make_world, init_method="pccl://no-such-host.invalid/r?peer_timeout=1"
    )
    check(found, "MasterLostError", "no-such-host.invalid")


def test_a_master_that_starts_later(make_world: MakeWorld, tmp_path_factory: Any) -> None:
    port = free_port()
    world = make_world(2)
    world.start(_join_by, f"pccl://127.0.0.1:{port}/r?min_peers=2", setup="nothing")
    threading.Event().wait(1.0)
    late = Master(tmp_path_factory.mktemp("late") / "log.txt", port=port)
    try:
        for outcome in world.outcomes(30):
            assert outcome.value["type"] == "nothing", outcome
    finally:
        late.stop()


def test_too_few_peers(make_world: MakeWorld, master: Master) -> None:
    world = make_world(1)
    world.start(_join_briefly, master.url(min_peers=2), setup="nothing")
    (outcome,) = world.outcomes(30)
    check(outcome.value, "TooFewPeersError", "2")


def _join_briefly(url: str) -> Found:
    import datetime

    import torch.distributed as dist

    return work.error_of(
        lambda: dist.init_process_group(
            "pccl", init_method=url, timeout=datetime.timedelta(seconds=1)
        )
    )


# --- Ports and versions ---------------------------------------------------------------------------


def test_a_port_that_is_taken(master: Master) -> None:
    command = [sys.executable, "-m", "pccl_backend.cli", "master", "--no-journal"]
    done = run_program([*command, "--port", str(master.port)])
    assert done.returncode != 0
    assert str(master.port) in done.stderr
    assert "in use" in done.stderr


def test_a_port_range_that_is_taken(make_world: MakeWorld, master: Master) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = join_in_a_process(make_world, init_method=master.url(port_range=f"{port}-{port}"))
    check(found, "OSError", str(port))


# A control message has: u32 length of the rest, u16 type, fields; little-endian.
HELLO, REJECT = 1, 2
MAGIC = b"PCCL"


@contextmanager
def a_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve each connection with `answer`; yield the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def receive(connection: socket.socket) -> bytes:
    """Return one message without its length."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack("<I", data[:4])[0]:
        more = connection.recv(65536)
        if not more:
            break
        data += more
    return data[4:]


def message(kind: int, fields: bytes) -> bytes:
    return struct.pack("<IH", 2 + len(fields), kind) + fields


@plain_text
def test_a_master_of_another_version(make_world: MakeWorld) -> None:
    text = b"this master speaks version 11 of the protocol, the peer version 1"

    def reject(connection: socket.socket) -> None:
        hello = receive(connection)
        assert hello[2:6] == MAGIC
        code = 14
        connection.sendall(message(REJECT, struct.pack("<BI", code, len(text)) + text))
        connection.recv(1)

    with a_server(reject) as port:
        found = join_in_a_process(make_world, init_method=f"pccl://127.0.0.1:{port}/r")
    check(found, "PcclError", "version 11", "version 1")


@plain_text
def test_a_peer_of_another_version(master: Master) -> None:
    with socket.create_connection(("127.0.0.1", master.port), timeout=30) as connection:
        connection.sendall(message(HELLO, MAGIC + struct.pack("<HH", 77, 78) + b"whatever follows"))
        reject = receive(connection)
    assert struct.unpack("<H", reject[:2]) == (REJECT,)
    text = reject[7:].decode()
    assert "this peer speaks versions 77 to 78" in text
    assert "the master speaks version 21" in text
    assert "install a later pccl for the master" in text


@plain_text
def test_a_server_of_another_kind(make_world: MakeWorld) -> None:
    def web(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(65536)

    with a_server(web) as port:
        found = join_in_a_process(
            make_world, init_method=f"pccl://127.0.0.1:{port}/r?peer_timeout=1"
        )
    assert found["type"] in ("PcclError", "OSError"), found
    assert str(port) in found["text"], found
    assert found["seconds"] < SOON_S, found
