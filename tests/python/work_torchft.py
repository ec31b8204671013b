"""Run by test_torchft.py: replicas that lose one of them, and go on."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta

import torch
from torch.distributed import ReduceOp
from torchft.process_group import create_store_client
from world import expected

import pccl_backend as pccl

LIMIT = timedelta(seconds=20)
TOLD_S = 5.0  # a survivor knows of a loss within this time


def survive(store: str, lost: int) -> float:
    """Reduce with three replicas, lose one in a reduction, and go on with two.

    Return the sum of the two.
    """
    from world import current

    rank = current.rank
    group = pccl.torchft.ProcessGroupPccl(timeout=LIMIT)
    group.configure(f"{store}/1", f"replica{rank}", rank, 3, quorum_id=1)
    tensor = torch.full((1000,), float(rank))
    group.allreduce([tensor], ReduceOp.SUM).wait()
    assert tensor[0] == 3
    # Rank 0 has the master: the others would not learn that the sum is complete.
    meeting = create_store_client(f"{store}/meeting", LIMIT)
    meeting.set(f"{rank}", "has the sum")
    meeting.wait([f"{each}" for each in range(3)], LIMIT)
    if rank == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    with expected(pccl.PcclError) as raised:
        group.allreduce([tensor], ReduceOp.SUM).wait()
    assert time.monotonic() - began < TOLD_S
    assert (tensor == 3).all()
    assert str(group.errored()) == str(raised[0])
    left = [other for other in range(3) if other != lost]
    group.configure(f"{store}/2", f"replica{rank}", left.index(rank), 2, quorum_id=2)
    assert group.errored() is None
    tensor = torch.full((1000,), float(rank))
    group.allreduce([tensor], ReduceOp.SUM).wait()
    group.shutdown()
    return float(tensor[0])
