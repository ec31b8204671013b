"""Many groups in a process: their cost, their end, and the lack of descriptors."""

from __future__ import annotations

import socket

import pytest
import work_groups as work
from conftest import MakeWorld
from world import Lost

from pccl_backend import _C
from pccl_backend._tokens import Token

# One thread of a process reports the ends of all calls to torch's recorder, if there is one. It may
# begin at any time.
UNRECORDED = {"TORCH_FR_BUFFER_SIZE": "0"}


def test_a_hundred_groups(make_world: MakeWorld) -> None:
    """A further group costs no thread, and at most 6 files where it is hosted, else 4."""
    (at_0, at_1) = make_world(2, environment=UNRECORDED).run(work.hundred_groups)
    assert at_0[0] == at_1[0] == 0
    assert at_0[1] <= 600
    assert at_1[1] <= 400


def test_large_tensors_need_no_further_thread(make_world: MakeWorld) -> None:
    assert make_world(2, environment=UNRECORDED).run(work.threads_of_large_tensors) == [0, 0]


def test_a_process_has_one_master_and_one_loop(make_world: MakeWorld) -> None:
    for threads in make_world(3, environment=UNRECORDED).run(work.own_threads):
        own = {name: count for name, count in threads.items() if name.startswith("pccl-")}
        assert own == {"pccl-master": 1, "pccl-peer": 1}


def host(token: Token | None = None, *, drawn: bool = False) -> _C.HostedRun:
    text = token.text() if token is not None else ""
    return _C.HostedRun(host="127.0.0.1", token=text, drawn=drawn, name="a run", patience=60)


def test_hosted_runs_share_a_master_that_admits_the_same_peers() -> None:
    first, second = host(), host()
    assert (first.name, second.name) == ("a run", "a run (2)")
    assert first.port == second.port
    one, other = Token.new(), Token.new()
    drawn, again, given = host(one, drawn=True), host(other, drawn=True), host(other)
    assert drawn.token == again.token == one.text(), "the master has one token for all its runs"
    assert given.token == other.text()
    assert drawn.port == again.port
    assert len({first.port, drawn.port, given.port}) == 3


def test_a_master_ends_with_its_last_run() -> None:
    token = Token.new()  # no other run of this process shares the master
    one, other = host(token), host(token)
    port = one.port
    del one
    socket.create_connection(("127.0.0.1", port)).close()
    del other
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_split_group(make_world: MakeWorld) -> None:
    make_world(4).run(work.splits)


def test_split_group_in_an_open_run(make_open_world: MakeWorld) -> None:
    make_open_world(1).run(work.split_of_an_open_run)


@pytest.mark.parametrize("backend", ["cpu:pccl,cuda:gloo", "cpu:gloo,cuda:pccl"])
def test_split_group_of_several_backends(make_world: MakeWorld, backend: str) -> None:
    make_world(2).run(work.split_beside_another, backend, setup="nothing")


def test_a_program_with_many_groups_ends_without_destroy(make_world: MakeWorld) -> None:
    world = make_world(2)
    world.start(work.ends_without_destroy, setup="program")
    assert world.outcomes(60, expect_success=False) == [Lost(0)] * 2, world.tails()


def test_a_forked_child_begins_anew(make_world: MakeWorld) -> None:
    make_world(2).run(work.a_forked_child_begins_anew)


@pytest.mark.parametrize("short", [0, 1])
def test_every_rank_says_that_descriptors_run_out(make_world: MakeWorld, short: int) -> None:
    needed = 18 if short == 0 else 13
    why = (
        f"too many open files: a group of 3 needs {needed} more in this process, which may have "
        "200 open: raise that limit (ulimit -n), or destroy groups that are not needed"
    )
    says = make_world(3).run(work.without_descriptors, short)
    told = "rank 0 cannot host the group: " if short == 0 else "rank 1 cannot join: "
    assert says.pop(short) == f"OSError: {why}"
    assert says == [f"PcclError: {told}{why}"] * 2
