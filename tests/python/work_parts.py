"""Run by test_parts.py in every process of a world: the collectives whose tensors have parts.

A value encodes its origin: the rank that it comes from, the rank that it goes to, and its place. So
every rank knows the values that it must receive.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Found = tuple[str, str]
# One small, one of several chunks, and none at all. The one-shot form ends at 64 KiB.
SIZES = (1, 33, 300_007, 0)


def block(source: int, target: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return what `source` has for `target`. The sums of all sources are exact in each dtype."""
    values = (torch.arange(count) + 3 * source + 5 * target) % 7
    return values.to(dtype)


def blocks(source: int, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [block(source, target, count, dtype) for target in range(dist.get_world_size())]


def total(target: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    parts = [block(source, target, count, dtype) for source in range(dist.get_world_size())]
    return torch.stack(parts).sum(0).to(dtype)


def same(got: torch.Tensor, want: torch.Tensor, about: object) -> None:
    assert torch.equal(got, want), f"{about}: got {got.flatten()[:8]}, want {want.flatten()[:8]}"


def reduces() -> None:
    """Only the root's tensor changes."""
    world, rank = dist.get_world_size(), dist.get_rank()
    for count in SIZES:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            for root in range(world):
                tensor = block(rank, root, count, dtype)
                dist.reduce(tensor, root)
                want = (
                    total(root, count, dtype) if rank == root else block(rank, root, count, dtype)
                )
                same(tensor, want, ("reduce", count, dtype, root))
    average = torch.full((5,), float(rank))
    dist.reduce(average, world - 1, dist.ReduceOp.AVG)
    if rank == world - 1:
        same(average, torch.full((5,), (world - 1) / 2), "reduce avg")


def reduce_scatters() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for count in SIZES:
        for dtype in (torch.float32, torch.bfloat16, torch.int32):
            inputs = blocks(rank, count, dtype)
            want = total(rank, count, dtype)
            output = torch.full((count,), 9).to(dtype)
            dist.reduce_scatter(output, inputs)
            same(output, want, ("reduce_scatter", count, dtype))
            output.fill_(9)
            dist.reduce_scatter_tensor(output, torch.cat(inputs))
            same(output, want, ("reduce_scatter_tensor", count, dtype))
            for target, tensor in enumerate(inputs):
                same(tensor, block(rank, target, count, dtype), "the input")
    output, whole = torch.zeros(3), torch.full((3 * world,), float(rank))
    dist.reduce_scatter_tensor(output, whole, dist.ReduceOp.AVG)
    same(output, torch.full((3,), (world - 1) / 2), "reduce_scatter avg")
    dist.reduce_scatter_tensor(output, whole, dist.ReduceOp.MAX)
    same(output, torch.full((3,), float(world - 1)), "reduce_scatter max")
    complex_output = torch.zeros(2, dtype=torch.complex64)
    dist.reduce_scatter_tensor(complex_output, torch.full((2 * world,), 1 + 2j))
    same(complex_output, torch.full((2,), world * (1 + 2j)), "complex")
    with dist._coalescing_manager():
        first, second = torch.zeros(2), torch.zeros(5)
        dist.reduce_scatter_tensor(first, torch.arange(2.0 * world))
        dist.reduce_scatter_tensor(second, torch.arange(5.0 * world))
    same(first, world * torch.arange(2.0 * world).chunk(world)[rank], "coalesced")
    same(second, world * torch.arange(5.0 * world).chunk(world)[rank], "coalesced")


def gathers_and_scatters() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for count in SIZES:
        for dtype in (torch.float64, torch.complex64, torch.bool):
            for root in range(world):
                mine = block(rank, root, count, dtype)
                outputs = [torch.zeros_like(mine) for _ in range(world)] if rank == root else None
                dist.gather(mine, outputs, root)
                for source, output in enumerate(outputs or []):
                    same(output, block(source, root, count, dtype), ("gather", count, dtype, root))
                inputs = blocks(rank, count, dtype) if rank == root else None
                output = torch.zeros_like(mine)
                dist.scatter(output, inputs, root)
                same(output, block(root, rank, count, dtype), ("scatter", count, dtype, root))
    if hasattr(dist, "gather_single"):
        output = torch.zeros(2 * world)
        dist.gather_single(torch.full((2,), float(rank)), output if rank == 0 else None, 0)
        if rank == 0:
            same(output, torch.arange(float(world)).repeat_interleave(2), "gather_single")


def all_to_alls() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    for count in SIZES:
        for dtype in (torch.float32, torch.uint8, torch.complex128):
            want = torch.cat([block(source, rank, count, dtype) for source in range(world)])
            output = torch.zeros_like(want)
            dist.all_to_all_single(output, torch.cat(blocks(rank, count, dtype)))
            same(output, want, ("all_to_all_single", count, dtype))
            outputs = [torch.zeros(count, dtype=dtype) for _ in range(world)]
            dist.all_to_all(outputs, blocks(rank, count, dtype))
            same(torch.cat(outputs), want, ("all_to_all", count, dtype))


def part(source: int, target: int) -> int:
    """Rows that go from one rank to another: some are none, some need several chunks."""
    return (0, 3, 40_000, 1)[(source + 2 * target) % 4]


def uneven_parts() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    sent = [part(rank, target) for target in range(world)]
    received = [part(source, rank) for source in range(world)]
    rows = [block(rank, t, 2 * part(rank, t), torch.float32).view(-1, 2) for t in range(world)]
    want = [block(s, rank, 2 * part(s, rank), torch.float32).view(-1, 2) for s in range(world)]
    output = torch.zeros(sum(received), 2)
    dist.all_to_all_single(output, torch.cat(rows), received, sent)
    same(output, torch.cat(want), "all_to_all_single")
    outputs = [torch.zeros_like(one) for one in want]
    dist.all_to_all(outputs, rows)
    same(torch.cat(outputs), torch.cat(want), "all_to_all")
    gathered = [torch.zeros(part(source, 0)) for source in range(world)]
    dist.all_gather(gathered, block(rank, 0, part(rank, 0), torch.float32))
    for source, one in enumerate(gathered):
        same(one, block(source, 0, part(source, 0), torch.float32), "all_gather")


def layouts() -> None:
    """Strided, channels-last and sliced tensors; what lies beside a slice stays."""
    world, rank = dist.get_world_size(), dist.get_rank()
    beside = torch.full((4, 10), 9.0)
    piece = beside[:, 2:5]
    piece.copy_(torch.full((4, 3), float(rank)))
    dist.reduce(piece, 0)
    assert (beside[:, :2] == 9).all()
    assert (beside[:, 5:] == 9).all()
    same(piece, torch.full((4, 3), float(sum(range(world)) if rank == 0 else rank)), "a slice")
    output = torch.zeros(3, 4).t()
    dist.reduce_scatter(output, [torch.full((3, 4), float(t)).t() for t in range(world)])
    same(output, torch.full((4, 3), float(world * rank)), "strided")
    picture = torch.zeros(1, 2, 3, 3).to(memory_format=torch.channels_last)
    inputs = [torch.full((1, 2, 3, 3), float(t)) for t in range(world)] if rank == 0 else None
    dist.scatter(picture, inputs, 0)
    same(picture, torch.full((1, 2, 3, 3), float(rank)), "channels last")
    mine = torch.arange(12.0).view(3, 4)[:, ::2] if rank % 2 else torch.arange(12.0).view(2, 6).t()
    mine = mine.reshape(-1)[:6]
    outputs = [torch.zeros(2, 3).t() for _ in range(world)] if rank == 0 else None
    dist.gather(mine.view(3, 2), outputs, 0)
    output = torch.zeros(2, 2 * world).t()
    dist.all_to_all_single(output, torch.full((2, 2 * world), float(rank)).t())
    same(output[:, 0], torch.arange(float(world)).repeat_interleave(2), "all_to_all_single")


def premultiplied() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    half = dist._make_nccl_premul_sum(0.5)
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor, half)
    same(tensor, torch.full((4,), sum(range(world)) / 2), "all_reduce")
    output, whole = torch.zeros(3), torch.full((3 * world,), float(rank))
    dist.reduce_scatter_tensor(output, whole, half)
    same(output, torch.full((3,), sum(range(world)) / 2), "reduce_scatter")
    same(whole, torch.full((3 * world,), float(rank)), "the input")
    tensor = torch.full((4,), float(rank))
    dist.reduce(tensor, 0, dist._make_nccl_premul_sum(torch.tensor([2.0])))
    same(tensor, torch.full((4,), float(2 * sum(range(world)) if rank == 0 else rank)), "reduce")


def averages_of_integers() -> None:
    """The sum divided by the number of the ranks, towards zero, in each collective that reduces."""
    world, rank = dist.get_world_size(), dist.get_rank()
    avg = dist.ReduceOp.AVG
    for count in (3, 40_000):
        given = torch.full((count,), rank - 4)  # the sum of four ranks is -10
        total = sum(range(world)) - 4 * world
        want = torch.full((count,), -(-total // world))
        tensor = given.clone()
        dist.reduce(tensor, world - 1, avg)
        same(tensor, want if rank == world - 1 else given, "reduce")
        output = torch.zeros_like(given)
        dist.reduce_scatter(output, [given] * world, avg)
        same(output, want, "reduce_scatter")
        output = torch.zeros_like(given)
        dist.reduce_scatter_tensor(output, given.repeat(world), avg)
        same(output, want, "reduce_scatter_tensor")
        outputs = [torch.zeros_like(given), torch.zeros(1, dtype=torch.int64)]
        with dist._coalescing_manager():
            dist.reduce_scatter_tensor(outputs[0], given.repeat(world), avg)
            dist.reduce_scatter_tensor(outputs[1], given[:1].repeat(world), avg)
        same(outputs[0], want, "reduce_scatter_tensor, coalesced")
        same(outputs[1], want[:1], "reduce_scatter_tensor, coalesced")
        tensors = [given.clone(), given[:1].clone()]
        with dist._coalescing_manager():
            for one in tensors:
                dist.all_reduce(one, avg)
        same(tensors[0], want, "all_reduce, coalesced")
        same(tensors[1], want[:1], "all_reduce, coalesced")


def functional() -> None:
    import torch.distributed._functional_collectives as funcol

    world, rank = dist.get_world_size(), dist.get_rank()
    group = dist.group.WORLD
    assert group is not None
    whole = torch.arange(2.0 * world)
    same(
        funcol.reduce_scatter_tensor(whole, "sum", 0, group) + 0,
        world * whole.chunk(world)[rank],
        0,
    )
    exchanged = funcol.all_to_all_single(whole, None, None, group)
    same(exchanged + 0, whole.chunk(world)[rank].repeat(world), 0)
    objects: list[Any] = [None]
    dist.scatter_object_list(objects, [{"for": r} for r in range(world)] if rank == 0 else None, 0)
    assert objects == [{"for": rank}]
    found: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object({"from": rank}, found, 0)
    assert rank != 0 or found == [{"from": r} for r in range(world)]
    dist.monitored_barrier()


def many_in_flight() -> None:
    """Operations of all kinds at once, waited for in another order than the calls."""
    world, rank = dist.get_world_size(), dist.get_rank()
    works, checks = [], []
    for step in range(20):
        count = (5, 20_000)[step % 2]
        reduced = block(rank, step % world, count, torch.float32)
        works.append(dist.reduce(reduced, step % world, async_op=True))
        mine, outputs = torch.full((count,), float(rank + step)), torch.zeros(count * world)
        works.append(dist.all_to_all_single(outputs, mine.repeat(world), async_op=True))
        part_of_sum = torch.zeros(count)
        works.append(dist.reduce_scatter_tensor(part_of_sum, mine.repeat(world), async_op=True))
        checks.append((step, count, outputs, part_of_sum))
    for work in reversed(works):
        work.wait()
    for step, count, outputs, part_of_sum in checks:
        want = torch.cat([torch.full((count,), float(source + step)) for source in range(world)])
        same(outputs, want, ("all_to_all_single", step))
        same(part_of_sum, torch.full((count,), float(sum(range(world)) + world * step)), step)


def everything() -> None:
    for check in (
        reduces,
        reduce_scatters,
        gathers_and_scatters,
        all_to_alls,
        uneven_parts,
        layouts,
        premultiplied,
        averages_of_integers,
        functional,
        many_in_flight,
    ):
        check()


# --- Bad calls ------------------------------------------------------------------------------------


def refusals() -> dict[str, Found]:
    """Each of these is refused at the call, on the rank that makes it."""
    world, rank = dist.get_world_size(), dist.get_rank()
    one, whole = torch.ones(2), torch.ones(2 * world)
    many = [torch.ones(2) for _ in range(world)]
    group = dist.group.WORLD
    assert group is not None
    cpu = torch.device("cpu")
    backend = group._get_backend(cpu)
    other = (rank + 1) % world
    calls: dict[str, Callable[[], object]] = {
        "reduce_scatter of few": lambda: backend.reduce_scatter([one], [many[1:]]),
        "reduce_scatter sizes": lambda: dist.reduce_scatter(torch.ones(3), many),
        "reduce_scatter_tensor size": lambda: dist.reduce_scatter_tensor(torch.ones(3), whole),
        "reduce_scatter dtypes": lambda: dist.reduce_scatter_tensor(one.double(), whole),
        "reduce_scatter of bits": lambda: dist.reduce_scatter(one, many, dist.ReduceOp.BXOR),
        "reduce of bytes": lambda: dist.reduce(one.to(torch.float8_e5m2), 0),
        "gather of few": lambda: backend.gather([many[1:]], [one], _root(rank)),
        "gather to another": lambda: backend.gather([many], [one], _root(other)),
        "gather dtypes": lambda: backend.gather([[m.double() for m in many]], [one], _root(rank)),
        "gather into one": lambda: backend.gather([[one] * world], [torch.ones(2)], _root(rank)),
        "scatter of few": lambda: backend.scatter([one], [many[1:]], _from(rank)),
        "scatter from another": lambda: backend.scatter([one], [many], _from(other)),
        "scatter sizes": lambda: backend.scatter([torch.ones(3)], [many], _from(rank)),
        "all_to_all of few": lambda: dist.all_to_all(many[1:], many[1:]),
        "all_to_all into one": lambda: dist.all_to_all([one] * world, many),
        "all_to_all own part": lambda: dist.all_to_all([torch.ones(3)] * world, many),
        "no equal parts": lambda: dist.all_to_all_single(torch.ones(2 * world + 1), whole),
        "splits of others": lambda: dist.all_to_all_single(whole, whole, [2], [2]),
        "splits too long": lambda: dist.all_to_all_single(whole, whole, [3] * world, [2] * world),
        "splits too short": lambda: dist.all_to_all_single(whole, whole, [1] * world, [2] * world),
        "negative splits": lambda: dist.all_to_all_single(
            whole, whole, [-1, 5] + [2] * (world - 2), [2] * world
        ),
        "factor for integers": lambda: dist.all_reduce(one.int(), dist._make_nccl_premul_sum(2.0)),
    }
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = ("nothing", "")
        except Exception as error:  # noqa: BLE001
            found[name] = (type(error).__name__, str(error))
    dist.barrier()
    return found


def _root(rank: int) -> Any:
    options = dist.GatherOptions()
    options.rootRank = rank
    return options


def _from(rank: int) -> Any:
    options = dist.ScatterOptions()
    options.rootRank = rank
    return options


def splits_that_do_not_fit() -> Found:
    """Rank 1 expects fewer rows than rank 0 sends: nothing is written, and the group goes on."""
    world, rank = dist.get_world_size(), dist.get_rank()
    sent, received = [2] * world, [2] * world
    if rank == 0:
        sent[1] = 3
    output = torch.full((sum(received),), 9.0)
    try:
        dist.all_to_all_single(output, torch.ones(sum(sent)), received, sent)
        found = ("nothing", "")
    except Exception as error:  # noqa: BLE001
        found = (type(error).__name__, str(error))
    assert (output == 9).all()
    dist.all_to_all_single(torch.zeros(world), torch.ones(world))
    return found


# --- Losses ---------------------------------------------------------------------------------------

KINDS = (
    "reduce",
    "reduce_scatter",
    "gather",
    "scatter",
    "all_to_all",
    "uneven all_to_all",
    "all_gather",
    "uneven all_gather",
    "broadcast",
)


def _call(kind: str, count: int, fill: float) -> tuple[Any, list[torch.Tensor]]:
    """Post the collective; return its work and every tensor that it may write."""
    world, rank = dist.get_world_size(), dist.get_rank()
    many = [torch.full((count,), fill) for _ in range(world)]
    outputs = [torch.full((count,), -1.0) for _ in range(world)]
    whole, uneven = torch.cat(outputs), [torch.full((count + r,), -1.0) for r in range(world)]
    mine = torch.full((count + rank,), fill)
    of_root = outputs if rank == 0 else None
    from_root = many if rank == 0 else None
    calls: dict[str, tuple[Callable[[], Any], list[torch.Tensor]]] = {
        "reduce": (lambda: dist.reduce(many[0], 0, async_op=True), many[:1]),
        "broadcast": (lambda: dist.broadcast(many[0], 0, async_op=True), many[:1]),
        "reduce_scatter": (
            lambda: dist.reduce_scatter(outputs[0], many, async_op=True),
            outputs[:1],
        ),
        "gather": (lambda: dist.gather(many[0], of_root, 0, async_op=True), of_root or []),
        "scatter": (lambda: dist.scatter(outputs[0], from_root, 0, async_op=True), outputs[:1]),
        "all_to_all": (
            lambda: dist.all_to_all_single(whole, torch.cat(many), async_op=True),
            [whole],
        ),
        "uneven all_to_all": (lambda: dist.all_to_all(outputs, many, async_op=True), outputs),
        "all_gather": (lambda: dist.all_gather(outputs, many[0], async_op=True), outputs),
        "uneven all_gather": (lambda: dist.all_gather(uneven, mine, async_op=True), uneven),
    }
    call, written = calls[kind]
    return call(), written


def until_the_loss(kind: str, count: int, folder: Path) -> tuple[str, int]:
    """Call one collective again and again; return the outcome of the first that fails.

    A file in `folder` shows that four ranks have begun.
    """
    import pccl_backend as pccl

    while dist.get_world_size() < 4:
        pccl.update_topology()
    (folder / f"rank-{dist.get_rank()}").touch()
    step = 0
    while True:
        work, written = _call(kind, count, float(step))
        try:
            work.wait()
        except pccl.PeerLostError as error:
            for tensor in written:
                untouched = -1.0 if kind not in ("reduce", "broadcast") else float(step)
                assert (tensor == untouched).all(), (kind, step, tensor)
            pccl.update_topology()
            work, written = _call(kind, count, 7.0)
            work.wait()
            return type(error).__name__, step
        step += 1
