"""Every collective and dtype on CUDA tensors: the same bits as on CPU tensors.

Worlds of two and three ranks share the GPU. Tensors are contiguous and strided, and the calls come
on the default stream and on another one.
"""

from __future__ import annotations

import cases
import ranks
import torch
import torch.distributed as dist
from check import end, expect, report, skip

GPU = cases.Place(put=lambda tensor: tensor.to(ranks.DEVICE), fetch=lambda tensor: tensor.to("cpu"))


def lazy_tensors() -> list[str]:
    """Lazily conjugated and negated tensors.

    torch does not let them through to any backend: its view_as_real() refuses a conjugated tensor,
    and its dispatcher gives the backend a copy of a negated one, and loses the result. So they go
    to the backend itself.
    """
    values = torch.randn(1000, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    rank, size = dist.get_rank(), dist.get_world_size()
    moved, parts = GPU.put(values * rank), GPU.put(values.clone())
    view, part = moved.conj(), parts.conj().imag
    assert view.is_conj()
    assert part.is_neg()
    options = dist.BroadcastOptions()
    options.rootRank = size - 1
    backend = world()._get_backend(torch.device(ranks.DEVICE))
    backend.broadcast([view], options).wait()
    backend.allreduce([part], dist.AllreduceOptions()).wait()
    wrong = []
    if not torch.equal(GPU.fetch(moved), values * (size - 1)):
        wrong.append("a conjugated view")
    if not torch.allclose(GPU.fetch(parts).imag, values.imag * size):
        wrong.append("a negated view")
    return wrong


def world() -> dist.ProcessGroup:
    group = dist.group.WORLD
    assert group is not None
    return group


def check(rank: int) -> tuple[int, set[str], list[str]]:
    pair = dist.new_group([0, 1])
    compared, missing, wrong = 0, set(), []
    groups = [world(), *([pair] if rank < 2 else [])]
    for group in groups:
        for side in (False, True):
            if side and ranks.DEVICE == "cuda":
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    result = cases.compare(group, GPU)
                stream.synchronize()
            else:
                result = cases.compare(group, GPU)
            compared += result[0]
            missing |= result[1]
            wrong += [f"{what} side={side}" for what in result[2]]
    dist.barrier(device_ids=[0] if ranks.DEVICE == "cuda" else None)
    wrong += lazy_tensors()
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, rank)
    if objects != [0, 1, 2]:
        wrong.append(f"all_gather_object: {objects}")
    return compared, missing, wrong


def check_bound(rank: int) -> bool:
    """Reduce and meet in a group that was made with a device_id."""
    tensor = torch.full((1000,), rank + 1.0, device=ranks.DEVICE)
    dist.all_reduce(tensor)
    dist.barrier()
    return bool((tensor == 3).all())


def main() -> None:
    if not ranks.available():
        skip("torch sees no GPU")
    results = ranks.run(check, 3, limit_s=140)
    report(calls=sum(result[0] for result in results))
    report(not_there=",".join(sorted(set().union(*(result[1] for result in results)))))
    for rank, (_, _, wrong) in enumerate(results):
        for what in wrong:
            expect(False, f"rank {rank}: {what}")
    try:
        expect(
            all(ranks.run(check_bound, 2, limit_s=30, bound=True)),
            "a sum in a group with a device_id",
        )
    except AssertionError as error:
        expect(False, f"init_process_group(device_id=...): {error}")
    end()


if __name__ == "__main__":
    main()
