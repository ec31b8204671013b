"""The leader of a host, with the other processes played by the test."""

from __future__ import annotations

import socket
import threading

import pytest

from pccl_backend import HostLostError
from pccl_backend.trainers._signals import HeldSignals
from pccl_backend.trainers.host.channel import Channel
from pccl_backend.trainers.host.leader import Leader
from pccl_backend.trainers.host.orders import Status

LIMIT_S = 20.0


def test_the_process_that_was_lost_first_is_named() -> None:
    """After a loss the leader ends all channels, and a call that is under way finds them ended."""
    ends = {rank: socket.socketpair() for rank in (1, 2)}
    leader = Leader(
        None,  # type: ignore[arg-type]
        {},
        signals=HeldSignals(),
        status=Status,
        leave=lambda: None,
    )
    leader._channels = {
        rank: Channel(mine, other=f"local rank {rank}", limit_s=LIMIT_S)
        for rank, (mine, _) in ends.items()
    }
    watch = threading.Thread(target=leader._watch_others)
    watch.start()
    remaining, leaving = (theirs for _, theirs in ends.values())

    def choose() -> None:
        leaving.close()
        remaining.settimeout(LIMIT_S)
        assert remaining.recv(1) == b"", "the leader has ended its channel"

    with pytest.raises(HostLostError, match="local rank 2"):
        leader.choose(choose)
    watch.join(LIMIT_S)
    remaining.close()
    leader.close(orderly=False)
