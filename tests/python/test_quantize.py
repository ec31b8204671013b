"""Quantized all-reduces over real connections, compared with numpy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import work_quantize as work
from conftest import MakeWorld
from fleet import Fleet
from world import Lost, Returned, wait_until

import pccl_backend as pccl
from pccl_backend import quantization
from pccl_backend.quantization import BFloat16, MinMax, quantize_dequantize
from pccl_backend.trainers import DiLoCo

DIRECT = {"PCCL_PATTERN": "direct"}
RING = {"PCCL_PATTERN": "ring"}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_results_are_those_of_the_reference(make_world: MakeWorld, size: int) -> None:
    world = make_world(size)
    hashes = world.run(work.equals_the_reference, [0, 1, 77, 60_001], timeout=90)
    assert len(set(hashes)) == 1
    flushed = world.run(work.equals_the_reference, [0, 1, 77, 60_001], True, timeout=90)
    assert set(flushed) == set(hashes), "set_flush_denormal does not matter"


def test_the_choice_of_the_master_does_not_matter(make_world: MakeWorld) -> None:
    hashes = [
        make_world(3, environment=environment).run(work.equals_the_reference, [40_000], timeout=90)
        for environment in ({}, DIRECT, {"PCCL_LANES": "3"})
    ]
    assert len({digest for one in hashes for digest in one}) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_no_error_is_above_the_bound(make_world: MakeWorld, size: int) -> None:
    for highest in make_world(size).run(work.errors_are_within_the_bound, 1 << 17, timeout=60):
        assert 0.5 < highest <= 1


def test_errors_do_not_grow_with_the_world(make_world: MakeWorld) -> None:
    two = make_world(2).run(work.relative_error_of_normal_numbers, 1 << 17, timeout=60)[0]
    five = make_world(5).run(work.relative_error_of_normal_numbers, 1 << 17, timeout=60)[0]
    assert two[0] <= 0.01
    assert five[0] <= 0.0105
    assert five[1] <= 1.2 * two[1]
    assert max(two[2], five[2]) <= 0.003


@pytest.mark.parametrize("size", [3, 5])
def test_hops_of_a_ring_keep_to_their_bound(make_world: MakeWorld, size: int) -> None:
    world = make_world(size, environment=RING)
    found = world.run(work.sums_around_a_ring, 300_007, timeout=90)
    assert len({digest for digest, _ in found}) == 1, "other bits"
    for ratio in found[0][1]:
        assert 0.1 < ratio <= 1, found[0][1]


def test_four_bits_are_refused_around_a_ring(make_world: MakeWorld) -> None:
    texts = make_world(3, environment=RING).run(work.four_bits_around_a_ring, 60_000, timeout=60)
    assert set(texts) == {
        "all_reduce: quantize=MinMax(bits=4, block=64, result_bits=8) does not go around a ring of "
        "3 members (PCCL_PATTERN=ring): each of its 2 hops would round the sum to 4 bits once "
        "more; use bits=8 or BFloat16(), or set another PCCL_PATTERN on all peers"
    }


def test_two_members_exchange_four_bits_whatever_the_pattern(make_world: MakeWorld) -> None:
    make_world(2, environment=RING).run(work.equals_the_reference, [40_000], timeout=60)


@pytest.mark.parametrize(("size", "environment"), [(2, {}), (3, {}), (3, RING)])
def test_special_values(make_world: MakeWorld, size: int, environment: dict[str, str]) -> None:
    make_world(size, environment=environment).run(work.special_values, timeout=60)


@pytest.mark.parametrize(("size", "environment"), [(2, {}), (3, {}), (3, RING)])
def test_run_info_counts_what_was_on_the_wire(
    make_world: MakeWorld, size: int, environment: dict[str, str]
) -> None:
    count, world = 1 << 22, make_world(size, environment=environment)
    for wire, tensors in world.run(work.bytes_are_counted, count):
        assert tensors == pytest.approx((1 if size == 2 else 4 / 3) * 4 * count, rel=0.01)
        assert tensors / wire == pytest.approx(4, rel=0.02)


def test_a_block_of_standard_calls(make_world: MakeWorld) -> None:
    make_world(3).run(work.a_block_quantizes_what_can_be)


def test_strided_tensors(make_world: MakeWorld) -> None:
    make_world(2).run(work.strided_tensors)


def test_formats_that_differ(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.formats_differ):
        assert found["type"] == "CollectiveMismatchError", found
        for part in (
            "quantize=MinMax(bits=4, block=64, result_bits=8)",
            "all_reduce(sum, float32, 10 elements, world size 2)",
        ):
            assert part in found["text"], found


def test_error_feedback(make_world: MakeWorld) -> None:
    world = make_world(3)
    for without, with_feedback in world.run(work.feedback_keeps_errors_from_adding_up, 20):
        assert with_feedback < without / 3
    world.run(work.small_tensors_lose_nothing)


@pytest.mark.parametrize("size", [2, 3])
def test_stochastic_rounding_has_no_bias(make_world: MakeWorld, size: int) -> None:
    results = make_world(size).run(work.means_of_many_rounds, 400, timeout=90)
    assert len({digest for digest, *_ in results}) == 1, "other bits"
    for _, nearest, stochastic in results:
        assert nearest > 0.03, "the same error in each round: a test that can fail"
        assert stochastic < nearest / 5


def test_ddp_goes_on_with_its_own_residual(make_world: MakeWorld, tmp_path: Path) -> None:
    whole = make_world(3).run(partial(work.ddp_saves_its_residual, 6, None), timeout=60)
    assert len(set(whole)) == 1
    folder = str(tmp_path)
    make_world(3).run(partial(work.ddp_saves_its_residual, 3, folder), timeout=60)
    resumed = make_world(3).run(partial(work.ddp_resumes, 3, 6, folder, True), timeout=60)
    assert resumed == whole, "as if nothing had been interrupted"
    assert make_world(3).run(partial(work.ddp_resumes, 3, 6, folder, False), timeout=60) != whole


@pytest.mark.parametrize("hook", [True, False])
def test_ddp(make_world: MakeWorld, hook: bool) -> None:
    results = make_world(3).run(work.ddp_trains_nearly_alike, hook)
    assert len({digest for digest, _ in results}) == 1
    assert results[0][1] < 0.05


@pytest.mark.parametrize(
    ("q", "options", "most"),
    [
        (MinMax(bits=8), {}, 0.02),
        (MinMax(bits=8), {"overlap": "auto"}, 0.02),
        (MinMax(bits=4), {"error_feedback": True}, 0.15),
        (MinMax(bits=4), {"error_feedback": True, "overlap": "auto", "fragments": 2}, 0.15),
        (BFloat16(), {}, 0.01),
    ],
)
def test_diloco(
    make_world: MakeWorld, q: quantization.Format, options: dict[str, Any], most: float
) -> None:
    plain = make_world(3).run(partial(work.diloco, None, **options), timeout=60)[0][1]
    results = make_world(3).run(partial(work.diloco, q, **options), timeout=60)
    assert len({digest for digest, _ in results}) == 1
    difference = ((results[0][1] - plain).norm() / plain.norm()).item()
    assert difference < most


@pytest.mark.parametrize("options", [{}, {"fragments": 2, "overlap": "auto", "mix": "carry"}])
def test_feedback_of_diloco_keeps_errors_from_adding_up(
    make_world: MakeWorld, options: dict[str, Any]
) -> None:
    found = {}
    for feedback in (False, True):
        run = partial(work.sum_of_rounds, feedback, 20, **options)
        results = make_world(3).run(run, timeout=60)
        assert len(set(results)) == 1, "other bits"
        found[feedback] = results[0][1]
    assert found[True] < found[False] / 3, found
    assert found[True] < 0.01, "after 20 rounds it is below that of a single one"


@pytest.mark.parametrize("options", [{}, {"fragments": 2, "overlap": "auto", "mix": "carry"}])
def test_a_peer_goes_on_with_its_own_residual(
    make_world: MakeWorld, tmp_path: Path, options: dict[str, Any]
) -> None:
    whole = make_world(3).run(partial(work.sum_of_rounds, True, 9, **options), timeout=60)[0][0]
    save = partial(work.saves_its_residual, 5, str(tmp_path), **options)
    make_world(3).run(save, timeout=60)
    digests = {}
    for own in (False, True):
        resume = partial(work.resumes_with_its_residual, range(5, 9), str(tmp_path), own, **options)
        results = make_world(3).run(resume, timeout=60)
        assert len(set(results)) == 1
        digests[own] = results[0]
    if not options:  # otherwise the end of the first life has applied the data in flight
        assert digests[True] == whole, "as if nothing had been interrupted"
    assert digests[False] != digests[True]
    resume = partial(work.resumes_with_its_residual, range(2), str(tmp_path), True, **options)
    assert len(set(make_world(2).run(resume, timeout=60))) == 1, "in a world of another size"


def test_a_format_around_a_trainer_is_not_for_its_weights(make_world: MakeWorld) -> None:
    plain = make_world(3).run(partial(work.diloco, None), timeout=60)
    assert make_world(3).run(work.diloco_within_a_format, timeout=60) == [one[0] for one in plain]


def test_models_of_float64_are_refused_by_diloco(make_world: MakeWorld) -> None:
    make_world(1).run(work.wide_models_are_refused)
    with pytest.raises(ValueError, match="error_feedback=True is for a trainer that quantizes"):
        DiLoCo(torch.nn.Linear(2, 2), error_feedback=True)
    with pytest.raises(ValueError, match='quantize= needs on_loss="keep"'):
        DiLoCo(torch.nn.Linear(2, 2), quantize=MinMax(), on_loss=None)


# --- Losses ---------------------------------------------------------------------------------------

COUNT = 8 << 20  # elements: 32 MiB of float32


@pytest.fixture(params=["raise", "retry"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    fleet = Fleet(environment={"PCCL_ON_PEER_LOSS": request.param})
    yield fleet
    fleet.close()


@pytest.mark.parametrize("founders", [3, 4])
def test_whole_blocks_are_kept_at_a_loss(fleet: Fleet, founders: int) -> None:
    peers = fleet.found(founders)
    names = {peer.call("info")["peer"]: seed for seed, peer in enumerate(peers)}
    for seed, peer in enumerate(peers):
        dies: dict[str, Any] = {"dies_at": 0.5} if peer is peers[-1] else {}
        peer.tell("all_reduce", count=COUNT, seed=seed, on_loss="keep", quantize=8, **dies)
    for peer in peers:
        assert "posted" in peer.answer()
    first, *others = [peer.answer() for peer in peers[:-1]]
    assert first["ok"], first
    assert all(other["digest"] == first["digest"] for other in others)
    (start, middle, every), (_, end, survivors) = first["parts"]
    assert (start, end) == (0, COUNT)
    assert 0 < middle < COUNT
    assert middle % 256 == 0
    assert (len(every), len(survivors)) == (founders, founders - 1)
    for sample, value in enumerate(first["values"]):
        element = sample * (COUNT // 1000)
        over = every if element < middle else survivors
        total = sum(element % 64 + names[peer] for peer in over)
        assert value == pytest.approx(total, abs=0.02 * 66 * len(over))


@pytest.mark.parametrize(
    "options",
    [{"quantize": MinMax()}, {"quantize": MinMax(bits=4), "error_feedback": True}],
    ids=["8 bits", "4 bits, feedback"],
)
def test_peers_have_the_same_bits_after_a_kill_and_a_return(
    make_open_world: MakeWorld, options: dict[str, Any]
) -> None:
    world = make_open_world(3, min_peers=1, parameters={"founders": 3})
    for dies in (False, False, True):
        world.spawn(work.trains_over_a_loss, dies, False, options, setup="nothing")
    assert wait_until(lambda: world.processes[2].poll() is not None, timeout_s=60), world.tails()
    assert isinstance(world.processes[2].outcome, Lost), world.tails()
    world.spawn(work.trains_over_a_loss, False, True, options, setup="nothing")
    *outcomes, newcomer = world.outcomes(60, expect_success=False)
    hashes = [one.value for one in (*outcomes[:2], newcomer) if isinstance(one, Returned)]
    assert len(hashes) == 3, world.tails()
    assert hashes[0] == hashes[1]
    assert len(hashes[2]) >= 3
    assert hashes[2].items() <= hashes[0].items(), "the newcomer has other bits"


# --- Arguments ------------------------------------------------------------------------------------


def refused(error: type[Exception], says: str, **arguments: Any) -> None:
    with pytest.raises(error) as caught:
        MinMax(**arguments)
    assert says in str(caught.value)


def test_formats_that_are_none() -> None:
    refused(ValueError, "bits is 2; it can be 8 or 4", bits=2)
    refused(ValueError, "block is 100; it can be a power of two from 32 to 1024", block=100)
    refused(ValueError, "block is 2048", block=2048)
    says = 'rounding is \'up\'; it can be "nearest" or "stochastic"'
    refused(ValueError, says, rounding="up")
    refused(ValueError, "result_bits is 4; it can be 8 or 16", result_bits=4)


def test_what_random_bits_do_not_go_with() -> None:
    q = MinMax(bits=4, rounding="stochastic")
    for make in (
        lambda: pccl.quantization.ErrorFeedback(q),
        lambda: pccl.hooks.QuantizeState(q),
        lambda: DiLoCo(torch.nn.Linear(2, 2), quantize=q, error_feedback=True),
    ):
        with pytest.raises(ValueError, match=r"error feedback is not for MinMax\(bits=4.*nearest"):
            make()
    assert pccl.hooks.QuantizeState(q, error_feedback=False).state_dict()["buckets"] == []


def test_seeds_of_random_bits() -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    q = MinMax(bits=4, rounding="stochastic")
    one = quantize_dequantize(x, q, seed=2**64 - 1)
    assert torch.equal(one, quantize_dequantize(x, q, seed=2**64 - 1))
    assert not torch.equal(one, quantize_dequantize(x, q))
    for wrong, error in ((-1, ValueError), (2**64, ValueError), (1.0, TypeError)):
        with pytest.raises(error, match="seed"):
            quantize_dequantize(x, q, seed=wrong)  # type: ignore[arg-type]


def test_formats_are_values() -> None:
    assert MinMax() == MinMax(bits=8, block=256)
    assert MinMax(bits=4).block == 64
    assert len({MinMax(), MinMax(), BFloat16(), BFloat16()}) == 2


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.bool, torch.float64, torch.complex64, torch.uint8]
)
def test_tensors_that_cannot_be_quantized(dtype: torch.dtype) -> None:
    tensor = torch.ones(10).to(dtype)
    for call in (pccl.all_reduce, quantize_dequantize):
        arguments = {"quantize": MinMax()} if call is pccl.all_reduce else {"format": MinMax()}
        with pytest.raises(ValueError, match="float32, float16 and bfloat16, not for torch"):
            call(tensor, **arguments)


def test_reductions_that_cannot_be_quantized() -> None:
    for op, name in (("max", "max"), (dist.ReduceOp.PRODUCT, "product")):
        with pytest.raises(ValueError, match=f"is for op sum and avg, not for {name}"):
            pccl.all_reduce(torch.ones(10), op=op, quantize=MinMax())
    for wrong in ("minmax", 8, MinMax):
        with pytest.raises(TypeError, match=r"quantize must be MinMax\("):
            pccl.all_reduce(torch.ones(10), quantize=wrong)  # type: ignore[call-overload]


def test_what_others_decode() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(1))
    from reference_quantized import decoded

    for q in (MinMax(bits=8, block=128), MinMax(bits=4)):
        got = quantize_dequantize(x, q)
        want = torch.from_numpy(decoded(x.numpy(), q.bits, q.block or 0))
        assert torch.equal(got, want)
        columns = x.view(100, 100).t()
        strided = quantize_dequantize(columns, q)
        assert torch.equal(strided, quantize_dequantize(columns.contiguous(), q))
    assert torch.equal(quantize_dequantize(x, BFloat16()), x.bfloat16().float())
    half = quantize_dequantize(x.half(), MinMax())
    assert half.dtype == torch.float16
