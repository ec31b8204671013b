"""Run by test_bad_use.py: errors of the caller, on every affected rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import world

import pccl_backend as pccl
from pccl_backend.quantization import MinMax


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    """Run it; return the error and how long it took."""
    start = time.monotonic()
    try:
        call()
    except Exception as error:  # noqa: BLE001
        seconds = time.monotonic() - start
        return {"type": type(error).__name__, "text": str(error), "seconds": seconds}
    return {"type": "nothing", "text": "", "seconds": time.monotonic() - start}


def joins(**settings: Any) -> dict[str, Any]:
    """Only join; return the result."""

    def join() -> None:
        dist.init_process_group("pccl", timeout=timedelta(seconds=20), **settings)
        dist.destroy_process_group()

    return error_of(join)


# --- Mismatches -----------------------------------------------------------------------------------


def sizes_differ() -> dict[str, Any]:
    tensor = torch.ones(10 + dist.get_rank())
    found = error_of(lambda: dist.all_reduce(tensor))
    assert (tensor == 1).all(), "a failed all-reduce has touched its tensor"
    dist.all_reduce(tensor[:10])  # the group still works
    return found


def dtypes_differ() -> dict[str, Any]:
    tensor = torch.ones(10).to(torch.float64 if dist.get_rank() else torch.float32)
    return error_of(lambda: dist.all_reduce(tensor))


def reductions_differ() -> dict[str, Any]:
    op = "max" if dist.get_rank() else "sum"
    return error_of(lambda: pccl.all_reduce(torch.ones(10), op=op, tag="layer.3"))


def collectives_differ() -> dict[str, Any]:
    if dist.get_rank():
        return error_of(lambda: dist.broadcast(torch.ones(10), src=0))
    return error_of(lambda: dist.all_reduce(torch.ones(10)))


def roots_differ() -> dict[str, Any]:
    return error_of(lambda: dist.broadcast(torch.ones(10), src=dist.get_rank()))


def messages_differ() -> dict[str, Any]:
    if dist.get_rank():
        return error_of(lambda: dist.send(torch.ones(3), 0))
    return error_of(lambda: dist.recv(torch.ones(4), 1))


def joint_calls_differ() -> dict[str, Any]:
    if dist.get_rank():
        state = pccl.SharedState({"x": torch.ones(3)}, revision=0)
        return error_of(lambda: pccl.sync_shared_state(state))
    return error_of(pccl.update_topology)


def a_second_joint_call() -> dict[str, Any]:
    """Call it while one is in progress; the first one then ends normally."""
    if dist.get_rank():
        time.sleep(0.5)
        pccl.update_topology()
        return {}
    first = threading.Thread(target=pccl.update_topology)
    first.start()
    time.sleep(0.2)
    found = error_of(pccl.are_peers_pending)
    first.join()
    return found


# --- Arguments ------------------------------------------------------------------------------------


def wrong_arguments() -> dict[str, dict[str, Any]]:
    """Each is refused at once, before anything is sent, and no other rank notices."""
    world_size, rank = dist.get_world_size(), dist.get_rank()
    one = torch.ones(4)
    group = dist.group.WORLD
    options = dist.BroadcastOptions()
    options.rootRank = 7
    calls: dict[str, Callable[[], Any]] = {
        "float8": lambda: dist.all_reduce(torch.ones(4).to(torch.float8_e4m3fn)),
        "average of bools": lambda: pccl.all_reduce(torch.ones(4, dtype=torch.bool), "avg"),
        "bits of floats": lambda: pccl.all_reduce(one, op="bxor"),
        "bits of complex": lambda: dist.all_reduce(torch.ones(2) * 1j, dist.ReduceOp.MAX),
        "unknown op": lambda: pccl.all_reduce(one, op="median"),
        "meta": lambda: group._get_backend(torch.device("cpu")).allreduce(
            [torch.ones(2, device="meta")]
        ),
        "meta to pccl": lambda: pccl.all_reduce(torch.ones(2, device="meta")),
        "conjugated": lambda: pccl.all_reduce((one * 1j).conj()),
        "negated": lambda: pccl.all_reduce((one * 1j).conj().imag),
        "expanded": lambda: dist.all_reduce(torch.ones(1).expand(4)),
        "root": lambda: group.broadcast([one], options),
        "to itself": lambda: dist.send(one, rank),
        "too few outputs": lambda: dist.all_gather([one] * (world_size - 1), one),
        "output dtype": lambda: group.allgather([[one.double()] * world_size], [one]),
        "output size": lambda: dist.all_gather_into_tensor(torch.ones(4 * world_size + 1), one),
        "long tag": lambda: pccl.all_reduce(one, tag="x" * 257),
        "tag of another type": lambda: pccl.all_reduce(one, tag=-1),  # type: ignore[call-overload]
        "tag of surrogates": lambda: pccl.all_reduce(one, tag="\ud800"),
        "op is a class": lambda: pccl.all_reduce(one, dist.ReduceOp),  # type: ignore[call-overload]
        "op without its factor": lambda: pccl.all_reduce(one, dist.ReduceOp.PREMUL_SUM),
        "state": lambda: pccl.sync_shared_state({"x": one}),  # type: ignore[arg-type]
        "strategy": lambda: pccl.sync_shared_state(pccl.SharedState({"x": one}), "majority"),
    }
    found = {name: error_of(call) for name, call in calls.items()}
    dist.barrier()
    return found


def unstored_tensors() -> dict[str, dict[str, Any]]:
    """The memory of a tensor is gone, or is too short: each call refuses it before it reads it."""
    world_size, root = dist.get_world_size(), dist.get_rank() == 0
    one, many = torch.ones(4), [torch.ones(4) for _ in range(world_size)]
    state = pccl.SharedState({"x": (kept := torch.ones(4))})
    _shrink(kept, 0)
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 2]]), torch.ones(2), (4,), is_coalesced=True, check_invariants=False
    )
    _shrink(sparse._values(), 0)
    group = dist.group.WORLD
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "all_reduce": dist.all_reduce,
        "all_reduce of pccl": pccl.all_reduce,
        "all_reduce quantized": lambda bad: pccl.all_reduce(bad, quantize=MinMax()),
        "all_reduce scaled": lambda bad: dist.all_reduce(bad, dist._make_nccl_premul_sum(2.0)),
        "all_reduce complex": lambda bad: dist.all_reduce(torch.view_as_complex(bad.view(2, 2))),
        "all_reduce coalesced": lambda bad: group.allreduce_coalesced([one, bad]),
        "all_reduce sparse": lambda _: dist.all_reduce(sparse),
        "reduce": lambda bad: dist.reduce(bad, 0),
        "broadcast": lambda bad: dist.broadcast(bad, 0),
        "all_gather of it": lambda bad: dist.all_gather(many, bad),
        "all_gather to it": lambda bad: dist.all_gather([bad, *many[1:]], one),
        "all_gather coalesced": lambda bad: group.allgather_into_tensor_coalesced(
            [bad, torch.ones(4)], [torch.ones(4 // world_size)] * 2
        ),
        "gather": lambda bad: dist.gather(bad, many if root else None, 0),
        "gather to it": lambda bad: dist.gather(
            *((one, [one, bad], 0) if root else (bad, None, 0))
        ),
        "scatter": lambda bad: dist.scatter(bad, many if root else None, 0),
        "scatter of it": lambda bad: dist.scatter(
            *((one, [torch.ones(4), bad], 0) if root else (bad, None, 0))
        ),
        "reduce_scatter": lambda bad: dist.reduce_scatter(bad, many),
        "reduce_scatter of it": lambda bad: dist.reduce_scatter(one, [*many[1:], bad]),
        "reduce_scatter_tensor": lambda bad: dist.reduce_scatter_tensor(
            torch.ones(4 // world_size), bad
        ),
        "all_to_all": lambda bad: dist.all_to_all([torch.ones(4), bad], many),
        "all_to_all_single": lambda bad: dist.all_to_all_single(torch.ones(4), bad),
        "send": lambda bad: dist.send(bad, 1 - dist.get_rank()),
        "recv": lambda bad: dist.recv(bad, 1 - dist.get_rank()),
        "recv from any": dist.recv,
        "quantize_dequantize": lambda bad: pccl.quantization.quantize_dequantize(bad, MinMax()),
        "error feedback": lambda bad: pccl.quantization.ErrorFeedback(MinMax()).compensate(bad),
        "shared state": lambda bad: pccl.SharedState({"x": bad}),
        "shared state, freed later": lambda _: pccl.sync_shared_state(state),
    }
    found = {}
    for name, call in calls.items():
        for kept_bytes in (0, 8):
            bad = torch.ones(4)
            _shrink(bad, kept_bytes)
            has = 0 if name in ("all_reduce sparse", "shared state, freed later") else kept_bytes
            found[f"{name}, {kept_bytes} bytes"] = {**error_of(partial(call, bad)), "has": has}
    for name in ("all_reduce", "quantize_dequantize", "shared state"):
        columns = torch.ones(2, 2).t()  # torch refuses to make a view of freed memory
        _shrink(columns, 0)
        found[f"{name}, strided"] = {**error_of(partial(calls[name], columns)), "has": 0}
    dist.barrier()
    return found


def _shrink(tensor: torch.Tensor, kept_bytes: int) -> None:
    tensor.untyped_storage().resize_(kept_bytes)


def group_of_another_backend() -> dict[str, Any]:
    job = world.current
    dist.init_process_group("gloo", init_method=job.init_method, rank=job.rank, world_size=job.size)
    found = error_of(pccl.update_topology)
    dist.destroy_process_group()
    return found


def open_run_takes_no_subgroups() -> dict[str, Any]:
    return error_of(lambda: dist.new_group([0]))
