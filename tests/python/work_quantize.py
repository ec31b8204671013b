"""Run by test_quantize.py in every process of a world."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist
import world as worlds
from reference_quantized import all_reduced, bound, bound_around_a_ring
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from world import expected

import pccl_backend as pccl
from pccl_backend.hooks import QuantizeState
from pccl_backend.quantization import BFloat16, ErrorFeedback, Format, MinMax
from pccl_backend.trainers import DiLoCo, Observer, OuterStep

FORMATS = [
    MinMax(),
    MinMax(bits=8, block=1024, result_bits=16),
    MinMax(bits=4),
    MinMax(bits=4, block=32, result_bits=16),
    BFloat16(),
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def numbers(rank: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(size, generator=generator) * (1 + rank)).to(dtype)


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()


def equals_the_reference(sizes: list[int], flush: bool = False) -> str:
    """Compare all formats with numpy, bit by bit; return a digest of all results."""
    world, rank = dist.get_world_size(), dist.get_rank()
    least = pccl.run_info().one_shot_bytes // 2 + 1
    torch.set_flush_denormal(flush)
    digests = ""
    for number, q in enumerate(FORMATS):
        for dtype in DTYPES:
            for size in sizes:
                count, op = least + size, ("sum", "avg")[(number + size) % 2]
                tensor = numbers(rank, count, dtype)
                pccl.all_reduce(tensor, op=op, quantize=q)
                torch.set_flush_denormal(False)
                want = all_reduced([numbers(r, count, dtype) for r in range(world)], op, q)
                torch.set_flush_denormal(flush)
                assert torch.equal(tensor, want), (q, dtype, count, op)
                digests += digest(tensor)
    torch.set_flush_denormal(False)
    return digests


def errors_are_within_the_bound(count: int) -> float:
    """Return the largest error, as a part of the allowed error."""
    world, rank = dist.get_world_size(), dist.get_rank()
    highest = 0.0
    for q in FORMATS[:4]:
        assert isinstance(q, MinMax)
        for op in ("sum", "avg"):
            tensors = [numbers(r, count) for r in range(world)]
            tensor = tensors[rank].clone()
            pccl.all_reduce(tensor, op=op, quantize=q)
            exact = torch.stack([t.double() for t in tensors]).sum(0)
            if op == "avg":
                exact /= world
            ratio = (tensor.double() - exact).abs() / bound(tensors, op, q)
            highest = max(highest, ratio.max().item())
    return highest


class Wire:
    """Counts the bytes that this process sends from now on."""

    def __init__(self) -> None:
        self._before = pccl.run_info()

    def sent(self) -> tuple[int, int]:
        """Return the bytes on the wire, and the bytes of the tensors that they encode."""
        after, names = pccl.run_info(), ("bytes_sent", "tensor_bytes_sent")
        wire, tensors = (getattr(after, name) - getattr(self._before, name) for name in names)
        return wire, tensors

    def check(self, quantized: bool) -> None:
        """Check whether tensors were quantized: then they have more bytes than the wire."""
        wire, tensors = self.sent()
        assert (tensors > 1.5 * wire) == quantized, (wire, tensors)
        assert quantized or tensors > 0.9 * wire, (wire, tensors)


RING_FORMATS = [
    MinMax(),
    MinMax(bits=8, block=1024, result_bits=16),
    MinMax(bits=8, rounding="stochastic"),
]


def sums_around_a_ring(count: int) -> tuple[str, list[float]]:
    """Return a digest of all results, and the largest error of each as a part of the bound."""
    world, rank = dist.get_world_size(), dist.get_rank()
    digests, ratios = "", []
    tensors = [numbers(r, count) for r in range(world)]
    exact = torch.stack([t.double() for t in tensors]).sum(0)
    for q in RING_FORMATS:
        for op, divisor in (("sum", 1), ("avg", world)):
            tensor = tensors[rank].clone()
            pccl.all_reduce(tensor, op=op, quantize=q)
            error = (tensor.double() - exact / divisor).abs()
            ratios.append((error / bound_around_a_ring(tensors, op, q)).max().item())
            digests += digest(tensor)
    tensor, wire = tensors[rank].clone(), Wire()
    pccl.all_reduce(tensor, quantize=BFloat16())
    wire.check(quantized=True)
    assert (tensor.double() - exact).norm() / exact.norm() < 0.003 * world**0.5
    for dtype in (torch.bfloat16, torch.float16):
        narrow = numbers(rank, count, dtype)
        pccl.all_reduce(narrow, quantize=MinMax())
        digests += digest(narrow)
    return digests + digest(tensor), ratios


def four_bits_around_a_ring(count: int) -> str:
    """Have 4 bits refused on all ranks, at once or while one of them has yet to call.

    Return the text of the errors.
    """
    rank, texts = dist.get_rank(), set()
    for late in (False, True):
        tensor = numbers(rank, count)
        if late and rank == 1:
            dist.recv(torch.empty(1), 0)  # the others have their errors by then
        with pytest.raises(ValueError, match="4 bits") as caught:
            pccl.all_reduce(tensor, quantize=MinMax(bits=4))
        if late and rank == 0:
            dist.send(torch.ones(1), 1)
        assert torch.equal(tensor, numbers(rank, count))
        texts.add(str(caught.value))
    small = numbers(rank, 100)
    pccl.all_reduce(small, quantize=MinMax(bits=4))  # not quantized
    pccl.all_reduce(tensor, quantize=MinMax(bits=8))
    (text,) = texts
    return text


def relative_error_of_normal_numbers(count: int) -> list[float]:
    """Return the relative error of the sum: 8 bits, 4 bits, bfloat16."""
    world, rank = dist.get_world_size(), dist.get_rank()
    exact = sum(numbers(r, count).double() / (1 + r) for r in range(world))
    assert isinstance(exact, torch.Tensor)
    errors = []
    for q in (MinMax(bits=8), MinMax(bits=4), BFloat16()):
        tensor = numbers(rank, count) / (1 + rank)
        pccl.all_reduce(tensor, quantize=q)
        errors.append(((tensor.double() - exact).norm() / exact.norm()).item())
    return errors


def special_values() -> None:
    """A block with a value that is not finite becomes NaN; a zero stays +0; others are as usual.

    If the sum of finite blocks overflows, two members have an infinity in it, others a NaN block.
    """
    rank, count = dist.get_rank(), 1 << 16
    table = {
        "nan": float("nan"),
        "inf": float("inf"),
        "-inf": float("-inf"),
        "outlier": 1e30,
        "overflow": 3e38,
        "subnormal": 1e-40,
        "-0": -0.0,
        "negative": -1.0,
    }
    for number, (name, value) in enumerate(table.items()):
        tensor = torch.zeros(count)
        at = 256 * (2 * number + 1)
        if name == "negative":
            tensor[at : at + 256] = value
        elif name == "overflow" or rank == 0:
            tensor[at + 7] = value
        pccl.all_reduce(tensor, quantize=MinMax())
        block = tensor[at : at + 256]
        rest = torch.cat([tensor[:at], tensor[at + 256 :]])
        assert (rest.view(torch.int32) == 0).all(), f"{name}: +0 elsewhere"
        if name == "overflow" and dist.get_world_size() == 2:
            assert block[7].item() == float("inf")
            assert (block != 0).sum() == 1
        elif name in ("nan", "inf", "-inf", "overflow"):
            assert block.isnan().all(), (name, block)
        elif name in ("subnormal", "-0"):
            assert (block.view(torch.int32) == 0).all(), (name, block)
        elif name == "outlier":
            assert abs(block[7].item() / 1e30 - 1) < 0.01
            assert (block != 0).sum() == 1
        else:
            want = -float(dist.get_world_size())
            assert torch.allclose(block, torch.tensor(want), rtol=0.01)


def bytes_are_counted(count: int) -> tuple[int, int]:
    """Return the bytes that an all-reduce has sent: on the wire, and of tensors."""
    wire = Wire()
    pccl.all_reduce(torch.randn(count), quantize=MinMax())
    return wire.sent()


def a_block_quantizes_what_can_be() -> None:
    """Compare standard calls in a block with the reference; leave others as they are."""
    world, rank, count = dist.get_world_size(), dist.get_rank(), 40_000
    q = MinMax(bits=4)
    want = all_reduced([numbers(r, count) for r in range(world)], "sum", q)
    with pccl.quantization.quantize(q):
        tensor = numbers(rank, count)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, want)
        whole = torch.full((count,), rank + 1)
        dist.all_reduce(whole)
        assert (whole == world * (world + 1) // 2).all()
        largest = numbers(rank, count)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        exact = torch.stack([numbers(r, count) for r in range(world)]).amax(0)
        assert torch.equal(largest, exact)
        small = numbers(rank, 100)
        pccl.all_reduce(small)
        assert torch.equal(small, sum((numbers(r, 100) for r in range(1, world)), numbers(0, 100)))
        with pccl.quantization.quantize(None):
            plain, wire = numbers(rank, count), Wire()
            dist.all_reduce(plain)
            wire.check(quantized=False)
        again = numbers(rank, count)
        pccl.all_reduce(again, quantize=BFloat16())
        other = all_reduced([numbers(r, count) for r in range(world)], "sum", BFloat16())
        assert torch.equal(again, other)
    after = numbers(rank, count)
    dist.all_reduce(after)
    assert torch.equal(after, plain)


def strided_tensors() -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    q = MinMax()
    tensor = numbers(rank, 40_000).view(200, 200).t()
    flat = [numbers(r, 40_000).view(200, 200).t().flatten() for r in range(world)]
    pccl.all_reduce(tensor, quantize=q)
    assert torch.equal(tensor.flatten(), all_reduced(flat, "sum", q))


def formats_differ() -> dict[str, Any]:
    """Call it with another format on each rank; return the error."""
    q: Format | None = [MinMax(bits=4), None][dist.get_rank()]
    tensor = torch.ones(10)
    try:
        pccl.all_reduce(tensor, quantize=q)
    except pccl.PcclError as error:
        assert (tensor == 1).all()
        return {"type": type(error).__name__, "text": str(error)}
    raise AssertionError("it did not fail")


def feedback_keeps_errors_from_adding_up(rounds: int) -> tuple[float, float]:
    """Return the relative error of the sum of all rounds, without and with feedback."""
    world, rank, count = dist.get_world_size(), dist.get_rank(), 20_000
    q = MinMax(bits=4)
    feedback = ErrorFeedback(q)
    errors = []
    for with_feedback in (False, True):
        applied = torch.zeros(count, dtype=torch.float64)
        exact = torch.zeros(count, dtype=torch.float64)
        for turn in range(rounds):
            bias = numbers(1000, count)  # the same in all rounds
            tensors = [bias + numbers(r + world * turn, count) for r in range(world)]
            tensor = tensors[rank].clone()
            if with_feedback:
                feedback.compensate(tensor)
            pccl.all_reduce(tensor, op="avg", quantize=q)
            applied += tensor
            exact += torch.stack(tensors).double().mean(0)
        errors.append(((applied - exact).norm() / exact.norm()).item())
    return errors[0], errors[1]


def means_of_many_rounds(rounds: int) -> tuple[str, float, float]:
    """Return a digest of all results of stochastic rounding, and the errors of two means.

    They are relative errors of the mean result of the same tensors: rounded to nearest, and at
    random.
    """
    world, rank, count = dist.get_world_size(), dist.get_rank(), 20_000
    tensors = [numbers(r, count) for r in range(world)]
    exact = torch.stack(tensors).double().mean(0)
    digests = ""
    errors = []
    for q in (MinMax(bits=4), MinMax(bits=4, rounding="stochastic")):
        mean = torch.zeros(count, dtype=torch.float64)
        for _ in range(rounds if q.rounding == "stochastic" else 1):
            tensor = tensors[rank].clone()
            pccl.all_reduce(tensor, op="avg", quantize=q)
            digests += digest(tensor)
            mean += tensor
        mean /= rounds if q.rounding == "stochastic" else 1
        errors.append(((mean - exact).norm() / exact.norm()).item())
    return hashlib.sha256(digests.encode()).hexdigest(), errors[0], errors[1]


def small_tensors_lose_nothing() -> None:
    feedback = ErrorFeedback(MinMax(bits=4))
    for _ in range(3):
        tensor = torch.randn(100)
        before = tensor.clone()
        feedback.compensate(tensor)
        assert torch.equal(tensor, before)
    assert feedback.state_dict() == {}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 400)
        self.second = nn.Linear(400, 400)
        self.last = nn.Linear(400, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(x)))  # type: ignore[no-any-return]


def ddp_trains_nearly_alike(hook: bool) -> tuple[str, float]:
    """Train with 8 bits and without; return the digest of the weights, and how far they differ."""
    rank = dist.get_rank()
    weights = []
    for quantized in (False, True):
        torch.manual_seed(0)
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=1.0)
        if quantized and hook:
            ddp.register_comm_hook(QuantizeState(MinMax()), pccl.hooks.quantize_hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(10 + rank)
        wire = Wire()
        for _ in range(6):
            x = torch.randn(8, 20, generator=generator)
            optimizer.zero_grad()
            with pccl.quantization.quantize(MinMax() if quantized and not hook else None):
                ddp(x).square().mean().backward()
            optimizer.step()
        wire.check(quantized)
        weights.append(flat(ddp))
    plain, other = weights
    torch.manual_seed(0)
    return digest(other), ((other - plain).norm() / (plain - flat(Net())).norm()).item()


def _ddp_of_one_bucket(state: QuantizeState) -> DistributedDataParallel:
    torch.manual_seed(0)
    ddp = DistributedDataParallel(nn.Linear(200, 200, bias=False))
    ddp.register_comm_hook(state, pccl.hooks.quantize_hook)
    return ddp


def _train(ddp: DistributedDataParallel, steps: range) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in steps:
        generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        ddp(torch.randn(8, 200, generator=generator)).square().mean().backward()
        optimizer.step()


def ddp_saves_its_residual(steps: int, folder: str | None) -> str:
    """Train with error feedback, and save a checkpoint; return the digest of the weights."""
    state = QuantizeState(MinMax(bits=4))
    ddp = _ddp_of_one_bucket(state)
    _train(ddp, range(steps))
    if folder:
        own = state.state_dict()
        assert [entry["index"] for entry in own["buckets"]] == [0]
        checkpoint = {"model": ddp.module.state_dict(), "own": own}
        torch.save(checkpoint, f"{folder}/{dist.get_rank()}.pt")
    return digest(flat(ddp))


def ddp_resumes(begin: int, end: int, folder: str, with_own: bool) -> str:
    """Continue from the checkpoint, with the residuals here or without; return the digest."""
    checkpoint = torch.load(f"{folder}/{dist.get_rank()}.pt")
    state = QuantizeState(MinMax(bits=4))
    ddp = _ddp_of_one_bucket(state)
    ddp.module.load_state_dict(checkpoint["model"])
    if with_own:
        state.load_state_dict(checkpoint["own"])
        saved = state.state_dict()
        assert torch.equal(
            saved["buckets"][0]["residual"], checkpoint["own"]["buckets"][0]["residual"]
        )
    _train(ddp, range(begin, end))
    return digest(flat(ddp))


def diloco(
    q: Format | None, *, error_feedback: bool = False, steps: int = 6, **options: Any
) -> tuple[str, torch.Tensor]:
    """Train with DiLoCo; return a digest of the weights, and how far they have moved."""
    torch.manual_seed(0)
    model = Net()
    start = flat(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    outer = DiLoCo(
        model,
        optimizer,
        outer_momentum=0.5,
        quantize=q,
        error_feedback=error_feedback and q is not None,
        **options,
    )
    outer.start()
    generator = torch.Generator().manual_seed(10 + dist.get_rank())
    contributors, wire = 0, Wire()
    for _ in range(steps):
        for _ in range(2):
            optimizer.zero_grad()
            x = torch.randn(8, 20, generator=generator)
            (model(x) - x[:, :3]).square().mean().backward()
            optimizer.step()
        contributors = max(contributors, outer.step().contributors)
    outer.finish()
    wire.check(quantized=q is not None)
    assert contributors == dist.get_world_size()
    with outer.global_parameters():
        end = flat(model)
    outer.close()
    return digest(end), end - start


def adding_trainer(error_feedback: bool, **options: Any) -> tuple[nn.Module, DiLoCo]:
    """Return a model of zeros, and a trainer that adds up what its peers learn."""
    model = Net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # so that no sum is rounded to a large weight
    outer = DiLoCo(
        model,
        outer_lr=1.0,
        outer_momentum=0.0,
        quantize=MinMax(bits=4),
        error_feedback=error_feedback,
        **options,
    )
    return model, outer


def learn(model: nn.Module, turn: int) -> torch.Tensor:
    """Let this rank learn the numbers of this round; return the mean progress of all ranks."""
    size, count = dist.get_world_size(), len(flat(model))
    learned = [numbers(1000, count) + numbers(r + size * turn, count) for r in range(size)]
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            part = learned[dist.get_rank()][start : start + parameter.numel()]
            parameter.add_(part.view(parameter.shape))
            start += parameter.numel()
    return torch.stack(learned).double().mean(0)


def sum_of_rounds(error_feedback: bool, rounds: int, **options: Any) -> tuple[str, float]:
    """Let DiLoCo add up the pseudo-gradients of these rounds; return a digest, and its relative
    error.

    The gain of a rank in a round does not depend on the weights, so the sum is known. A part of it
    is the same in all rounds, and its rounding error adds up without feedback.
    """
    model, outer = adding_trainer(error_feedback, **options)
    outer.start()
    exact = torch.zeros(len(flat(model)), dtype=torch.float64)
    for turn in range(rounds):
        exact += learn(model, turn)
        outer.step()
    for _ in range(options.get("fragments", 1) - 1):
        outer.step()  # sends the progress of the other fragments in the last round
    outer.finish()
    with outer.global_parameters():
        end = flat(model)
    outer.close()
    return digest(end), ((end.double() - exact).norm() / exact.norm()).item()


def saves_its_residual(rounds: int, folder: str, **options: Any) -> None:
    """Train for some rounds; save a checkpoint of this peer."""
    model, outer = adding_trainer(True, **options)
    outer.start()
    for turn in range(rounds):
        learn(model, turn)
        outer.step()
    outer.finish()
    state = outer.state_dict(own=True)
    assert any(tensor.any() for tensor in state["own"].values()), "nothing was lost"
    torch.save(state, f"{folder}/{dist.get_rank()}")
    assert "own" not in outer.state_dict()
    outer.close()


def resumes_with_its_residual(rounds: range, folder: str, own: bool, **options: Any) -> str:
    """Load the checkpoint of this peer and train on; return a digest of the weights."""
    model, outer = adding_trainer(True, **options)
    state = torch.load(f"{folder}/{dist.get_rank()}")
    outer.load_state_dict(state, own=own)
    outer.start()
    for name, tensor in outer.state_dict(own=True)["own"].items():
        saved = state["own"][name]
        assert torch.equal(tensor, saved if own else torch.zeros_like(saved)), name
    for turn in rounds:
        learn(model, turn)
        outer.step()
    outer.finish()
    with outer.global_parameters():
        end = flat(model)
    outer.close()
    return digest(end)


class DiesInTheReduce(Observer):
    """Kills this process in the all-reduce of an outer step."""

    def __init__(self, revision: int) -> None:
        self._revision = revision

    def reduce_posted(self, trainer: Any, attempt: int) -> None:
        if trainer.revision == self._revision:
            os.kill(os.getpid(), signal.SIGKILL)


class Hashes(Observer):
    """Notes the hash after each outer step, and its contributors."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []  # revision, contributors, hash

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append((done.revision, done.contributors, done.synced.hash))

    def three_again(self, *, was_lost: bool) -> bool:
        """Return whether three peers have made three steps since one was lost."""
        latest = [contributors for _, contributors, _ in self.steps[-3:]]
        was_lost |= any(contributors == 2 for _, contributors, _ in self.steps)
        return was_lost and latest == [3, 3, 3]


def trains_over_a_loss(dies: bool, joins: bool, options: dict[str, Any]) -> dict[int, int]:
    """Train until a peer was lost, another has joined, and they have made three steps together.

    Return the hashes by the number of outer steps.
    """
    torch.manual_seed(0)
    model, seen = Net(), Hashes()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    observer = DiesInTheReduce(3) if dies else seen
    url = worlds.current.init_method
    with DiLoCo(model, optimizer, every=2, url=url, observer=observer, **options) as outer:
        while not seen.three_again(was_lost=joins):
            x = torch.randn(8, 20)
            (model(x) - x[:, :3]).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        elements = sum(parameter.numel() for parameter in model.parameters())
        assert outer.last is not None
        assert 0 < outer.last.sent_bytes < 2 * elements, "nothing was quantized"
    return {revision: hash_ for revision, _, hash_ in seen.steps}


def diloco_within_a_format() -> str:
    """Train without quantize= where the user has set a format for other calls."""
    with pccl.quantization.quantize(MinMax(bits=4)):
        return diloco(None)[0]


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def wide_models_are_refused() -> None:
    with expected(ValueError, "float32 or smaller, and 'weight' is of float64: call model.float()"):
        DiLoCo(nn.Linear(3, 3).double(), quantize=MinMax()).start()
