"""Run by test_overlap.py: tensors of one call that share memory, and tensors that only seem to."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from work_misuse import error_of

Call = Callable[[], Any]
K = 4  # elements of each rank's part


def as_floats(raw: torch.Tensor) -> torch.Tensor:
    return raw.view(torch.float32)


def pointed_at(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor that was made to point to the same memory."""
    other = torch.empty(0)
    other.data = tensor
    return other


def gather(outputs: list[torch.Tensor], tensor: torch.Tensor) -> Call:
    return lambda: dist.all_gather(outputs, tensor)


def gather_into(output: torch.Tensor, tensor: torch.Tensor) -> Call:
    return lambda: dist.all_gather_into_tensor(output, tensor)


def gather_many(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    with dist._coalescing_manager():
        for output, tensor in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output, tensor)


def reduce_many(tensors: list[torch.Tensor]) -> None:
    dist.group.WORLD.allreduce_coalesced(tensors).wait()


# --- Refused --------------------------------------------------------------------------------------


def outputs_that_share() -> dict[str, Call]:
    """Two outputs share memory, or one overlaps itself; the other outputs lie elsewhere."""
    world = dist.get_world_size()
    mine = torch.ones(K)
    square = torch.zeros(K, K)
    flat = torch.zeros(4 * K)
    array = np.zeros(K, dtype=np.float32)
    raw = torch.zeros(4 * K, dtype=torch.uint8)
    elsewhere = [torch.zeros(K) for _ in range(world - 2)]

    def pair(first: torch.Tensor, second: torch.Tensor) -> Call:
        others = [torch.zeros(first.shape) for _ in range(world - 2)]
        return gather([*others, first, second], torch.ones(first.shape))

    return {
        "repeated": gather([flat[:K]] * world, mine),
        "first and last": gather([flat[:K], *elsewhere, flat[:K]], mine),
        "shifted": pair(flat[:K], flat[K - 1 : 2 * K - 1]),
        "one array": pair(torch.from_numpy(array), torch.from_numpy(array)),
        "pointed at": pair(flat[:K], pointed_at(flat[:K])),
        "bytes": pair(as_floats(raw), as_floats(raw.view(torch.int16).view(torch.uint8))),
        "dense and strided": pair(flat[:K], flat[: 2 * K : 2]),
        "row and column": pair(square[1], square[:, 2]),
        "transposed": pair(square, square.t()),
        "wide columns": pair(square[:, :2], square[:, 1:3]),
        "other strides": pair(flat[1::3][:K], flat[::2][:K]),
        "windows": pair(torch.zeros(K, 2), flat[: K + 1].unfold(0, 2, 1)),
    }


def inputs_that_share() -> dict[str, Call]:
    """The input shares memory with an output, other than exactly its own rank's part."""
    world, rank = dist.get_world_size(), dist.get_rank()
    other = (rank + 1) % world
    whole = torch.zeros(world, K)
    flat = torch.zeros(world * K + K)
    square = torch.zeros(K, K)
    squares = [torch.zeros(K, K) for _ in range(world)]
    squares[rank] = square
    outputs = [torch.zeros(K) for _ in range(world)]
    into = flat[: world * K]
    wide = torch.zeros(world, 2 * K)
    return {
        "another's output": gather(outputs, outputs[other]),
        "another's place": gather_into(whole, whole[other]),
        "shifted by one": gather_into(into, flat[rank * K + 1 : rank * K + 1 + K]),
        "every other": gather_into(into, into[::world][:K]),
        "own in another order": gather(squares, square.t()),
        "one element of own": gather(outputs, outputs[rank][:1].expand(K)),
        "another's columns": gather_into(wide[:, :K], wide[other, :K]),
        "another output's own place": lambda: gather_many(
            [whole, torch.zeros(world, K)], [torch.ones(K), whole[rank]]
        ),
    }


def others_parts() -> dict[str, Call]:
    """An output in the input, where it is not this rank's part of it; and all_to_all in place."""
    world, rank = dist.get_world_size(), dist.get_rank()
    other = (rank + 1) % world
    whole = torch.zeros(world, K)
    flat = torch.zeros(world * K + 1)
    wholes = [torch.zeros(world, K) for _ in range(2)]

    def scatter_many(outputs: list[torch.Tensor]) -> None:
        with dist._coalescing_manager():
            for output, tensor in zip(outputs, wholes, strict=True):
                dist.reduce_scatter_tensor(output, tensor)

    return {
        "another's part": lambda: dist.reduce_scatter_tensor(whole[other], whole),
        "another's input": lambda: dist.reduce_scatter(whole[other], list(whole)),
        "beside its part": lambda: dist.reduce_scatter_tensor(
            flat[rank * K + 1 :][:K], flat[: world * K]
        ),
        "another tensor's part": lambda: scatter_many([wholes[1][rank], torch.zeros(K)]),
        "scattered to another's": lambda: dist.scatter(whole[other], list(whole), rank),
        "all_to_all in place": lambda: dist.all_to_all(list(whole), list(whole)),
        "all_to_all_single in place": lambda: dist.all_to_all_single(whole, whole),
    }


def many_that_share() -> dict[str, Call]:
    world = dist.get_world_size()
    flat = torch.zeros(2 * world * K)
    pairs = torch.zeros(K, dtype=torch.complex64)
    mine = torch.ones(K)
    whole = flat[: world * K]
    return {
        "reduced twice": lambda: reduce_many([mine, mine]),
        "reduced, overlapping": lambda: reduce_many([flat[:3], mine, flat[2:5]]),
        "reduced, complex": lambda: reduce_many([pairs[:3], pairs[2:]]),
        "reduced, windows": lambda: dist.all_reduce(flat.unfold(0, 3, 1)),
        "reduced, expanded": lambda: dist.all_reduce(mine[:1].expand(4)),
        "gathered twice": lambda: gather_many([whole, whole], [mine, mine]),
        "gathered, overlapping": lambda: gather_many(
            [whole, flat[world * K - 1 : 2 * world * K - 1]], [mine, mine]
        ),
    }


def refusals() -> dict[str, dict[str, Any]]:
    """Each is refused before anything is sent; the group then works as before."""
    calls = {**outputs_that_share(), **inputs_that_share(), **others_parts(), **many_that_share()}
    found = {name: error_of(call) for name, call in calls.items()}
    check_gather([torch.zeros(K) for _ in range(dist.get_world_size())])
    return found


# --- Allowed --------------------------------------------------------------------------------------


def values(rank: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(float(like.numel())).view(like.shape) + 100.0 * (rank + 1)


def check_gather(outputs: list[torch.Tensor]) -> None:
    dist.all_gather(outputs, values(dist.get_rank(), outputs[0]))
    for rank, output in enumerate(outputs):
        assert output.equal(values(rank, output)), (rank, output)


def side_by_side() -> None:
    """Views of one buffer without a common element, even if their ranges interleave."""
    world = dist.get_world_size()
    check_gather(list(torch.zeros(world * K).split(K)))
    check_gather(list(torch.zeros(2 * world * K).view(2 * world, K)[::2]))
    check_gather(list(torch.zeros(K, world).unbind(1)))
    check_gather(list(torch.zeros(K, 2 * world).chunk(world, 1)))
    check_gather(list(torch.zeros(2, world, 3, 2).unbind(1)))
    check_gather(list(torch.zeros(3, 2, world * K).transpose(0, 2).chunk(world, 0)))
    check_gather([torch.zeros(world * K)[rank::world] for rank in range(world)])
    check_gather([torch.zeros(0)] * world)
    grid = torch.zeros(2, 4)
    check_gather([grid[:, :2], grid[:, 2:], torch.zeros(2, 2)][:world])
    flat = torch.zeros(12)
    check_gather([flat[::3][:2], flat[1::3][:2], flat[2:9:5]][:world])
    reduce_many([grid[:, 0], grid[:, 1], grid[:, 2:], flat[:0], flat[:0]])
    reduce_many([torch.zeros(9).as_strided((2, 3), (3, 2)), flat])  # 0 2 4 and 3 5 7


def a_shared_input() -> None:
    """Inputs are only read, so one tensor may be passed several times."""
    world, rank = dist.get_world_size(), dist.get_rank()
    outputs = [torch.zeros(world * K), torch.zeros(world * K)]
    mine = torch.full((K,), float(rank))
    gather_many(outputs, [mine, mine])
    for output in outputs:
        assert output.equal(torch.arange(float(world)).repeat_interleave(K)), output


def in_place() -> None:
    """The input is exactly its own rank's part of the output."""
    world, rank = dist.get_world_size(), dist.get_rank()
    for outputs in (
        [torch.zeros(K) for _ in range(world)],
        list(torch.zeros(world, K).unbind(0)),
        list(torch.zeros(K, world).unbind(1)),
    ):
        outputs[rank].fill_(float(rank))
        dist.all_gather(outputs, outputs[rank])
        for source, output in enumerate(outputs):
            assert (output == source).all(), (source, output)

    wanted = torch.arange(float(world))
    for whole in (
        torch.zeros(world, K),
        torch.zeros(world, 2 * K)[:, :K],
        torch.zeros(K, world).t(),
        torch.zeros(1, 2 * world, 3)[:, ::2],
    ):
        rows = whole[0] if whole.dim() == 3 else whole
        rows[rank] = float(rank)
        dist.all_gather_into_tensor(whole, rows[rank])
        assert (rows == wanted[:, None]).all(), whole

    flat = torch.zeros(world * K)
    flat[rank * K : (rank + 1) * K] = float(rank)
    dist.all_gather_into_tensor(flat, flat[rank * K : (rank + 1) * K])
    assert flat.equal(wanted.repeat_interleave(K)), flat
    lanes = torch.zeros(2, world * K)
    parts = [lane[rank * K : (rank + 1) * K] for lane in lanes]
    for part in parts:
        part.fill_(float(rank))
    gather_many(list(lanes), parts)
    for lane in lanes:
        assert lane.equal(flat), lanes


Form = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
Forms = dict[str, Form]


def _scatters(op: dist.ReduceOp.RedOpType) -> Forms:
    """Return the forms of reduce-scatter; without `out` the output is in the input, `whole`."""
    rank = dist.get_rank()

    def tensor(whole: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        result = whole[rank] if out is None else out
        dist.reduce_scatter_tensor(result, whole, op)
        return result

    def of_list(whole: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        result = whole[rank] if out is None else out
        dist.reduce_scatter(result, list(whole), op)
        return result

    def coalesced(whole: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        result = whole[rank] if out is None else out
        other = whole + whole
        with dist._coalescing_manager():
            dist.reduce_scatter_tensor(result, whole, op)
            dist.reduce_scatter_tensor(other[rank] if out is None else out + out, other, op)
        return result

    return {"tensor": tensor, "list": of_list, "coalesced": coalesced}


def reduce_scatter_in_place() -> None:
    """Its output is this rank's part of the input; the other parts stay as they are."""
    world, rank = dist.get_world_size(), dist.get_rank()
    avg, product = dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT
    for count, dtype, op in itertools.product(
        (1, K, 1000, 40_000),
        (torch.float32, torch.bfloat16, torch.int64, torch.complex64),
        (dist.ReduceOp.SUM, avg, product),
    ):
        if dtype.is_complex and op == product:
            continue
        base = (torch.arange(world * count).view(world, count) * (rank + 1)).remainder(61)
        for name, call in _scatters(op).items():
            for across in (False, True):
                whole = base.to(dtype)
                if across:  # the parts are columns
                    whole = whole.t().contiguous().t()
                want = call(whole, torch.empty(count, dtype=dtype))
                rest = whole.clone()
                got = call(whole, None)
                about = (name, count, dtype, op, across)
                assert got.equal(want), (about, got, want)
                rest[rank] = want
                assert whole.equal(rest), (about, "the other parts")


def gathers_and_scatters_in_place() -> None:
    """The other collectives in place, against their results out of place."""
    world, rank = dist.get_world_size(), dist.get_rank()
    root = world - 1
    for count, across in itertools.product((1, K, 1000, 40_000), (False, True)):
        every = torch.stack([values(source, torch.empty(count)) for source in range(world)])

        def blank(rows: int = world, count: int = count, across: bool = across) -> torch.Tensor:
            shape = (count, rows) if across else (rows, count)
            return torch.full(shape, -1.0).t() if across else torch.full(shape, -1.0)

        whole = blank()
        whole[rank] = every[rank]
        dist.gather(whole[rank], list(whole) if rank == root else None, root)
        want = every if rank == root else blank()
        want = want.index_copy(0, torch.tensor([rank]), every[rank : rank + 1])
        assert whole.equal(want), ("gather", count, across)

        whole = every.clone() if rank == root else blank()
        dist.scatter(whole[rank], list(whole) if rank == root else None, root)
        want = every if rank == root else blank()
        want = want.index_copy(0, torch.tensor([rank]), every[rank : rank + 1])
        assert whole.equal(want), ("scatter", count, across)

        lists = [[blank(1)[0], blank(1)[0]] for _ in range(world)]
        lists[rank][0].copy_(every[rank])
        lists[rank][1].copy_(2 * every[rank])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.all_gather_coalesced(lists, lists[rank])
        for source, (one, two) in enumerate(lists):
            assert one.equal(every[source]), ("all_gather_coalesced", count, across)
            assert two.equal(2 * every[source]), ("all_gather_coalesced", count, across)


def parts_of_a_row() -> None:
    """A rank's part may be less than a row of an output that is not contiguous."""
    world, rank = dist.get_world_size(), dist.get_rank()
    whole = torch.zeros(2, 2 * world)[:, :world]  # its parts are half rows if the world is even
    part = whole[rank // (world // 2), (rank % (world // 2)) * 2 :][:2]
    part.fill_(float(rank))
    dist.all_gather_into_tensor(whole, part)
    assert whole.flatten().equal(torch.arange(float(world)).repeat_interleave(2)), whole


# --- Any two views --------------------------------------------------------------------------------


def any_views(count: int) -> dict[str, int]:
    """Compare the check with a list of all elements, for views of every kind; return the counts."""
    draw = random.Random(5)
    refused = 0
    for _ in range(count):
        buffer = torch.zeros(200)
        views = [a_view(draw, buffer) for _ in range(draw.choice([1, 2, 2, 3]))]
        places = [place for view in views for place in places_of(view)]
        shares = len(set(places)) < len(places)
        found = error_of(lambda views=views: reduce_many(views))
        about = [(view.storage_offset(), view.shape, view.stride()) for view in views]
        assert found["type"] == ("ValueError" if shares else "nothing"), (about, shares, found)
        refused += shares
    return {"refused": refused, "allowed": count - refused}


def a_view(draw: random.Random, buffer: torch.Tensor) -> torch.Tensor:
    dims = draw.randint(0, 3)
    sizes = [draw.choice([0, 1, 2, 2, 3, 3, 4, 5]) for _ in range(dims)]
    strides = [draw.choice([0, 1, 1, 2, 3, 4, 5, 8, 12, 20, 20]) for _ in range(dims)]
    room = 200 - 1 - sum(max(n - 1, 0) * s for n, s in zip(sizes, strides, strict=True))
    if room < 0:
        return a_view(draw, buffer)
    return buffer.as_strided(sizes, strides, draw.randint(0, min(room, 40)))


def places_of(view: torch.Tensor) -> list[int]:
    dims = zip(view.shape, view.stride(), strict=True)
    steps = [[i * stride for i in range(count)] for count, stride in dims]
    return [view.storage_offset() + sum(step) for step in itertools.product(*steps)]
