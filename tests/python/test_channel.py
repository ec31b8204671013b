"""The channel between processes of a host: strangers are turned away, and no wait is endless."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest

from pccl_backend import HostLostError
from pccl_backend.trainers.host.channel import Address, Channel, accept, connect, listen

LIMIT_S = 20.0


def pair(limit_s: float = LIMIT_S) -> tuple[Channel, Channel]:
    ends = socket.socketpair()
    one, other = (Channel(end, other="the other", limit_s=limit_s) for end in ends)
    return one, other


def test_messages_and_open_files_arrive() -> None:
    one, other = pair()
    text = "x" * (1 << 20)
    sender = threading.Thread(target=one.send, args=({"text": text},))
    sender.start()  # more than the socket holds
    assert other.receive() == {"text": text}
    sender.join(LIMIT_S)
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"shared")
    one.send("a file follows")
    one.send_descriptor(descriptor)
    assert other.receive() == "a file follows"
    theirs = other.receive_descriptor()
    assert os.pread(theirs, 6, 0) == b"shared"
    for each in (descriptor, theirs):
        os.close(each)
    one.close()
    with pytest.raises(HostLostError, match=r"the other \(pid \d+\) is gone \(its socket is clos"):
        other.receive()
    with pytest.raises(HostLostError, match="is gone"):
        other.send("too late")


def test_a_silent_side_is_named_at_the_limit() -> None:
    one, _other = pair(limit_s=0.1)
    with pytest.raises(HostLostError, match=r"the other .* has sent nothing for 0.1 s"):
        one.receive()


def test_who_does_not_come_is_named() -> None:
    listener, address = listen()
    with listener, pytest.raises(HostLostError, match=r"local ranks \[1, 2\] have not made"):
        accept(listener, address, count=2, limit_s=0.1)


@pytest.mark.parametrize("sends", ["another secret", "nothing"])
def test_a_stranger_is_turned_away(sends: str) -> None:
    listener, address = listen()
    found = []
    with listener:
        thread = threading.Thread(
            target=lambda: found.append(accept(listener, address, count=1, limit_s=LIMIT_S))
        )
        thread.start()
        if sends == "nothing":
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(address.name)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
        else:
            wrong = connect(replace(address, secret=bytes(32)), rank=1, limit_s=LIMIT_S)
            with pytest.raises(HostLostError, match=r"its socket is closed|reset"):
                wrong.receive()
        right = connect(address, rank=1, limit_s=LIMIT_S)
        thread.join(LIMIT_S)
    assert list(found[0]) == [1]
    found[0][1].send("welcome")
    assert right.receive() == "welcome"


def test_a_leader_that_is_gone_is_named() -> None:
    with pytest.raises(HostLostError, match="the leader of this host does not answer"):
        connect(Address(b"\0pccl-host-nobody", bytes(32)), rank=1, limit_s=LIMIT_S)


def test_a_killed_process_is_noticed_though_its_children_hold_the_socket() -> None:
    """A DataLoader forks processes, which inherit all sockets."""
    listener, address = listen()
    pid = os.fork()
    if pid == 0:
        mine = connect(address, rank=1, limit_s=LIMIT_S)
        child = os.fork()
        if child > 0:
            mine.send(child)
        time.sleep(LIMIT_S)  # stands for processes that hang; the test kills both
        os._exit(1)
    with listener:
        channel = accept(listener, address, count=1, limit_s=LIMIT_S)[1]
    child = channel.receive()
    assert child > 0
    try:
        assert not channel.is_gone
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(HostLostError, match="it has ended"):
            channel.receive()
        assert channel.is_gone
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(pid, 0)
