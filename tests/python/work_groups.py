"""Run by test_groups.py: many groups in a process."""

from __future__ import annotations

import itertools
import os
import resource
from collections import Counter
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import world
from world import expected

import pccl_backend as pccl


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def limit_files(count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


def use(groups: list[dist.ProcessGroup]) -> None:
    """Call a collective in all groups at once."""
    tensors = [torch.ones(100) for _ in groups]
    works = [
        dist.all_reduce(tensor, group=group, async_op=True)
        for tensor, group in zip(tensors, groups, strict=True)
    ]
    for work in works:
        work.wait()
    assert all((tensor == dist.get_world_size()).all() for tensor in tensors)


def hundred_groups() -> tuple[int, int]:
    """Return how many threads and files 100 groups cost."""
    limit_files(1024)
    use([dist.group.WORLD])
    threads_before, files_before = threads(), files()
    groups = [dist.new_group([0, 1]) for _ in range(100)]
    use(groups)
    costs = threads() - threads_before, files() - files_before
    for group in groups[::2]:
        dist.destroy_process_group(group)
    use(groups[1::2])
    dist.barrier()  # from here on, rank 1 has also left those groups
    assert files() - files_before <= 6 * 50 + 6, files()
    groups = [*groups[1::2], *(dist.new_group([0, 1]) for _ in range(50))]
    use([*groups, dist.group.WORLD])
    return costs


def threads_of_large_tensors() -> int:
    """Return how many threads more than one group further groups with large tensors cost."""
    large = torch.ones(8 << 20)
    dist.all_reduce(large)
    before = threads()
    for _ in range(3):
        dist.all_reduce(large, group=dist.new_group([0, 1]))
    return threads() - before


def own_threads() -> Counter[str]:
    """Return how many threads of each name a process has that is a member of many groups."""
    made = [
        dist.new_group([1, 2]),  # rank 1 hosts it, and rank 0 is no member
        dist.new_group([1, 2]),
        dist.new_group([0, 1, 2]),
        dist.new_group([2]),
    ]
    for group in made:
        if dist.get_rank(group) >= 0:
            dist.all_reduce(torch.ones(10), group=group)
    dist.barrier()
    names = [Path(f"/proc/self/task/{task}/comm") for task in os.listdir("/proc/self/task")]
    return Counter(name.read_text().strip() for name in names)


def without_descriptors(short: int) -> str:
    """Return the error of the rank that has too few descriptors, or of the others."""
    if dist.get_rank() == short:
        limit_files(200)
    with expected((OSError, pccl.PcclError)) as raised:
        for _ in itertools.count():
            dist.new_group([0, 1, 2])
    return f"{type(raised[0]).__name__}: {raised[0]}"


def ends_without_destroy() -> None:
    world.current.init()
    use([dist.new_group([0, 1]) for _ in range(20)])


def a_forked_child_begins_anew() -> None:
    """A child has a world of its own, with its own threads; the groups of the parent go on."""
    group = dist.new_group([0, 1])
    use([group])
    child = os.fork()
    if child == 0:
        dist.destroy_process_group()
        dist.init_process_group("pccl", store=dist.HashStore(), rank=0, world_size=1)
        use([dist.new_group([0]), dist.group.WORLD])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    use([group, dist.group.WORLD])


def splits() -> None:
    """Split the world of four, again under the same name, and a part of it."""
    rank = dist.get_rank()
    for _ in range(2):  # torch gives the second ones the names of the first ones
        part = dist.split_group(split_ranks=[[0, 2], [3, 1]])
        order = [0, 2] if rank % 2 == 0 else [3, 1]
        assert (dist.get_rank(part), dist.get_world_size(part)) == (order.index(rank), 2)
        assert dist.get_process_group_ranks(part) == order
        assert dist.get_backend(part) == "pccl"
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor, group=part)
        assert (tensor == sum(order)).all()
        dist.broadcast(tensor.fill_(rank), src=order[0], group=part)
        assert (tensor == order[0]).all()
        assert len(pccl.run_info(part).members) == 2
        assert pccl.update_topology(part).world_size == 2
        one = dist.split_group(part, split_ranks=[[1]])
        if rank == order[1]:
            dist.all_reduce(tensor, group=one)
            assert (tensor == order[0]).all()
            dist.destroy_process_group(one)
        else:
            assert one == dist.GroupMember.NON_GROUP_MEMBER
        dist.destroy_process_group(part)
    few = dist.split_group(split_ranks=[[1, 2]], timeout=timedelta(seconds=9), group_desc="few")
    if rank in (1, 2):
        assert few.group_desc == "few"
        dist.barrier(few)
    else:
        assert few == dist.GroupMember.NON_GROUP_MEMBER
    with expected(TypeError, "pccl takes no pg_options"):
        dist.split_group(split_ranks=[[0, 1, 2, 3]], pg_options=dist.ProcessGroupGloo._Options())
    use([dist.group.WORLD])
    dist.barrier()  # rank 0 hosts the master


def split_of_an_open_run() -> None:
    with expected(NotImplementedError, "split_group() names ranks"):
        dist.split_group(split_ranks=[[0]])


def split_beside_another(backend: str) -> None:
    dist.init_process_group(backend, **world.current.place())
    with expected(NotImplementedError, "use dist.new_group"):
        dist.split_group(split_ranks=[[0], [1]])
    dist.barrier()  # rank 0 hosts the master
    dist.destroy_process_group()
