"""torchft over pccl: the process group and the checkpoint transport of pccl_backend.torchft.

Most replicas are threads of this process, as in torchft's own tests. examples/recipe_torchft.py,
which test_recipes.py runs, has torchft's Manager and lighthouse.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from unittest import TestCase

import pytest
import torch
from conftest import MakeWorld
from torch.distributed import ReduceOp, TCPStore
from world import Lost, Returned, plain_text, wait_until

import pccl_backend as pccl

pytest.importorskip("torchft", reason='SKIPPED: needs torchft: pip install ".[torchft]"')

import work_torchft
from torchft.checkpointing.transport_test import make_state_dict, run_multi_recovery_test

from pccl_backend.torchft import PcclTransport, ProcessGroupPccl, nested

pytestmark = plain_text

HERE = "127.0.0.1"
LIMIT = timedelta(seconds=20)
AT_ONCE_S = 3.0  # far below LIMIT
SENDER = "pccl sends a checkpoint"


@pytest.fixture
def server() -> TCPStore:
    return TCPStore(HERE, 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def store(server: TCPStore) -> str:
    """Return the address of a store, as torchft writes it."""
    return f"{HERE}:{server.port}/torchft"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=8) as executor:
        yield executor


class Replicas:
    """Process groups of three replicas; a quorum is a list of their numbers."""

    def __init__(self, store: str, threads: ThreadPoolExecutor) -> None:
        self.groups = [ProcessGroupPccl(timeout=LIMIT) for _ in range(3)]
        self._store = store
        self._threads = threads
        self._quorum = 0

    def configure(self, *quorum: int) -> None:
        self._quorum += 1
        each = []
        for rank, number in enumerate(quorum):
            arguments = (f"{self._store}/{self._quorum}", f"{number}", rank, len(quorum))
            configure = self.groups[number].configure
            each.append(self._threads.submit(configure, *arguments, self._quorum))
        for done in each:
            done.result(LIMIT.total_seconds())

    def begin(self, number: int) -> Future[torch.Tensor]:
        def reduce() -> torch.Tensor:
            tensor = torch.full((5,), 2.0**number)
            try:
                self.groups[number].allreduce([tensor], ReduceOp.SUM).wait()
            except pccl.PcclError as error:
                assert (tensor == 2.0**number).all(), "a failed all-reduce leaves its tensor"
                raise error
            return tensor

        return self._threads.submit(reduce)

    def sums(self, *quorum: int) -> list[float]:
        each = [self.begin(number) for number in quorum]
        return [float(done.result(LIMIT.total_seconds())[0]) for done in each]


@pytest.fixture
def replicas(store: str, threads: ThreadPoolExecutor) -> Iterator[Replicas]:
    made = Replicas(store, threads)
    yield made
    for group in made.groups:
        group.shutdown()


# --- The process group ----------------------------------------------------------------------------


def test_replicas_come_and_go(replicas: Replicas) -> None:
    replicas.configure(0, 1, 2)
    assert replicas.sums(0, 1, 2) == [7] * 3
    replicas.configure(1, 0)
    assert replicas.sums(0, 1) == [3] * 2
    replicas.configure(2, 0, 1)
    assert replicas.sums(0, 1, 2) == [7] * 3
    assert [group.size() for group in replicas.groups] == [3] * 3
    assert [group.errored() for group in replicas.groups] == [None] * 3


def test_a_loss_is_the_error_of_the_step(replicas: Replicas) -> None:
    replicas.configure(0, 1, 2)
    waiting = [replicas.begin(0), replicas.begin(1)]
    assert wait_until(lambda: all(each.running() for each in waiting), timeout_s=5)
    replicas.groups[2].abort()
    for number, each in enumerate(waiting):
        error = each.exception(AT_ONCE_S)
        assert isinstance(error, pccl.PeerLostError), error
        assert "rank 2" in str(error)
        assert str(replicas.groups[number].errored()) == str(error)
    replicas.configure(0, 1)
    assert [replicas.groups[number].errored() for number in (0, 1)] == [None] * 2
    assert replicas.sums(0, 1) == [3] * 2


@pytest.mark.parametrize("lost", [0, 2])
def test_a_replica_is_killed(lost: int, store: str, make_world: MakeWorld) -> None:
    """Rank 0 hosts the run, and is lost like any other."""
    world = make_world(3)
    world.start(work_torchft.survive, store, lost, setup="nothing")
    outcomes = world.outcomes(60, expect_success=False)
    assert isinstance(outcomes.pop(lost), Lost)
    assert [o.value for o in outcomes if isinstance(o, Returned)] == [3 - lost] * 2, world.tails()


def test_a_loss_is_an_error_under_retry(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchft divides by the size of the quorum: a sum over fewer would be wrong."""
    monkeypatch.setenv("PCCL_ON_PEER_LOSS", "retry")
    replicas.configure(0, 1, 2)
    waiting = replicas.begin(0)
    replicas.groups[2].abort()
    replicas.begin(1)
    assert isinstance(waiting.exception(AT_ONCE_S), pccl.PeerLostError)


def test_abort_ends_the_own_call_and_a_second_one_does_nothing(replicas: Replicas) -> None:
    replicas.configure(0, 1, 2)
    group, waiting = replicas.groups[0], replicas.begin(0)
    assert wait_until(waiting.running, timeout_s=5)
    group.abort()
    assert isinstance(waiting.exception(AT_ONCE_S), pccl.PcclError)
    first = group.errored()
    assert isinstance(first, pccl.InvalidStateError)
    assert "aborted" in str(first)
    group.abort()
    assert group.errored() is first
    with pytest.raises(pccl.InvalidStateError, match=r"aborted.* configure\(\)"):
        group.allreduce([torch.ones(1)], ReduceOp.SUM)
    replicas.configure(0, 1, 2)
    assert replicas.sums(0, 1, 2) == [7] * 3


def test_configure_does_not_wait_for_the_old_group(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.configure(0)
    old, hold = replicas.groups[0]._pg, threading.Event()

    class Slow:
        def shutdown(self) -> None:
            hold.wait(AT_ONCE_S)
            old.shutdown()

    replicas.groups[0]._pg = Slow()
    began = time.monotonic()
    replicas.configure(0)
    assert replicas.sums(0) == [1]
    assert time.monotonic() - began < AT_ONCE_S / 2
    hold.set()


def test_a_group_that_is_not_configured(replicas: Replicas) -> None:
    group = replicas.groups[0]
    assert group.errored() is None
    with pytest.raises(pccl.InvalidStateError, match=r"Manager calls configure\(\) first"):
        group.allreduce([torch.ones(1)], ReduceOp.SUM)
    replicas.configure(0)
    group.shutdown()
    assert group.errored() is None
    with pytest.raises(pccl.InvalidStateError, match="it was shut down"):
        group.size()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_replica_that_does_not_come(rank: int, store: str) -> None:
    group = ProcessGroupPccl(timeout=timedelta(seconds=0.3))
    began = time.monotonic()
    with pytest.raises(pccl.PcclError) as raised:
        group.configure(store, "0", rank, 2)
    assert time.monotonic() - began < AT_ONCE_S
    assert group.errored() is raised.value
    with pytest.raises(pccl.InvalidStateError, match=r"configure\(\) failed: "):
        group.size()


@pytest.mark.skipif(
    not hasattr(torch.distributed.ProcessGroup, "set_timeout"), reason="SKIPPED: needs torch 2.15"
)
def test_set_timeout(replicas: Replicas) -> None:
    replicas.configure(0, 1, 2)
    replicas.groups[0].set_timeout(timedelta(seconds=0.3))
    error = replicas.begin(0).exception(AT_ONCE_S)
    assert isinstance(error, pccl.OperationTimeoutError)
    assert isinstance(replicas.groups[0].errored(), pccl.OperationTimeoutError)


@pytest.mark.parametrize("seconds", [0, -1])
def test_timeouts_that_are_none(seconds: int, replicas: Replicas) -> None:
    with pytest.raises(ValueError, match="timeout"):
        ProcessGroupPccl(timeout=timedelta(seconds=seconds))
    with pytest.raises(ValueError, match="timeout"):
        replicas.groups[0].set_timeout(timedelta(seconds=seconds))


def test_the_name() -> None:
    assert ProcessGroupPccl().getBackendName() == "torchft-pccl"


# --- A state as tensors and a text ----------------------------------------------------------------


def nan_with_payload() -> torch.Tensor:
    return torch.tensor([0x7FC01234, -0x80000000], dtype=torch.int32).view(torch.float32)


def same(one: Any, other: Any) -> bool:
    """Return whether two states have the same types, structure and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        first, second = (t.resolve_conj().contiguous().view(-1) for t in (one, other))
        same_bits = torch.equal(first.view(torch.uint8), second.view(torch.uint8))
        return one.dtype == other.dtype and one.shape == other.shape and same_bits
    if isinstance(one, dict):
        metadata = [getattr(state, "_metadata", None) for state in (one, other)]
        return list(one) == list(other) and same(*metadata) and all(
            same(value, other[key]) for key, value in one.items()
        )  # fmt: skip
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one.hex() == other.hex()
    return bool(one == other)


def odd_state() -> dict[Any, Any]:
    """Return a state of everything that the transport takes."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    base = torch.arange(24.0).view(4, 6)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scalars": [0, -1, 2**70, True, None, -0.0, math.inf, 1e-320, 1 + 2j, "", "ü\udc80", b"\0"],
        "containers": [[], (), {}, set(), {1, 2}, frozenset({"a"}), OrderedDict(b=1, a=2)],
        "kinds": [torch.bfloat16, torch.device("cuda:3"), torch.Size([2, 0])],
        ("a", 1): {3: {None: {2.5: torch.tensor(7)}}},
        "dtypes": [
            torch.ones(3, dtype=dtype)
            for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.uint16)
        ],
        "complex": torch.randn(2, dtype=torch.complex64),
        "nan": nan_with_payload(),
        "empty": [torch.empty(0), torch.empty(3, 0, dtype=torch.int64), torch.empty(0)],
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "views": [base.t(), base[:, 1:3], base[1], base.expand(2, 4, 6), base],
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
    }


def round_trip(state: object, **options: Any) -> Any:
    text, tensors = nested.encode(state, allow_pickle=options.get("allow_pickle", False))
    pccl.SharedState({f"{number}": tensor for number, tensor in enumerate(tensors)})
    return nested.decode(text, tensors, **{"allow_pickle": False, **options})


def test_an_odd_state() -> None:
    state = odd_state()
    for key, value in state.items():
        assert same(round_trip(value), value), key
    assert same(round_trip(state), state)


def test_tied_tensors_stay_tied() -> None:
    weight = torch.nn.Parameter(torch.randn(3))
    text, tensors = nested.encode([weight, weight.detach(), weight[:2]], allow_pickle=False)
    assert len(tensors) == 2
    assert tensors[0].data_ptr() == weight.data_ptr()
    first, second, third = nested.decode(text, tensors, allow_pickle=False)
    assert first is second
    assert not first.requires_grad
    assert torch.equal(third, weight[:2])


class Stranger:
    """An object that no state has."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stranger)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (Stranger, TypeError, r"state_dict\['a'\]\[0\] is of the type test_torchft.Stranger"),
        (lambda: torch.eye(2).to_sparse(), ValueError, r"\['a'\]\[0\] is no dense tensor"),
        (lambda: torch.ones(2, device="meta"), ValueError, r"\['a'\]\[0\] is on meta"),
    ],
)
def test_an_unfit_object_is_named(
    make: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        nested.encode({"a": [make()]}, allow_pickle=False)


def test_a_state_that_contains_itself() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(ValueError, match="contains itself"):
        nested.encode(state, allow_pickle=False)


def test_pickle_is_for_those_who_allow_it() -> None:
    text, tensors = nested.encode({"a": Stranger()}, allow_pickle=True)
    assert nested.decode(text, tensors, allow_pickle=True) == {"a": Stranger()}
    with pytest.raises(ValueError, match="allow_pickle=True"):
        nested.decode(text, tensors, allow_pickle=False)


@pytest.mark.parametrize("text", ['["unknown"]', '["tensor",3]', '["dtype","nn"]', "[]", '["list"'])
def test_a_damaged_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"has another form|as a dtype"):
        nested.decode(text, [], allow_pickle=False)


# --- The checkpoint transport ---------------------------------------------------------------------


@pytest.fixture
def transports() -> Iterator[list[PcclTransport]]:
    made = [PcclTransport(host=HERE) for _ in range(3)]
    yield made
    for transport in made:
        transport.shutdown()
    assert [thread for thread in threading.enumerate() if thread.name == SENDER] == []


def test_torchft_s_own_test() -> None:
    cpu = torch.device("cpu")

    def make(rank: int, size: int) -> PcclTransport:
        return PcclTransport(host=HERE, state_dict=lambda: make_state_dict(cpu))

    run_multi_recovery_test(TestCase(), make, cpu)


def test_a_state_arrives_bit_by_bit(
    transports: list[PcclTransport], threads: ThreadPoolExecutor
) -> None:
    source, *receivers = transports
    state = {**odd_state(), "large": torch.randn(3 << 20)}
    receive = [
        threads.submit(each.recv_checkpoint, 0, source.metadata(), 7, LIMIT) for each in receivers
    ]
    source.send_checkpoint([1, 2], 7, state, LIMIT)
    for each in receive:
        assert same(each.result(LIMIT.total_seconds()), state)
    source.disallow_checkpoint()


def test_tensors_may_change_after_disallow(
    transports: list[PcclTransport], threads: ThreadPoolExecutor
) -> None:
    """It waits for a transfer that has begun."""
    source, receiver, _ = transports
    before = torch.randn(16 << 20)
    state = {"weight": before.clone()}
    source.send_checkpoint([1], 3, state, LIMIT)
    receive = threads.submit(receiver.recv_checkpoint, 0, source.metadata(), 3, LIMIT)
    assert wait_until(lambda: source._sending._group is not None, timeout_s=10)
    source.disallow_checkpoint()
    state["weight"].zero_()
    assert torch.equal(receive.result(LIMIT.total_seconds())["weight"], before)


def test_a_receiver_that_does_not_come(
    transports: list[PcclTransport], threads: ThreadPoolExecutor
) -> None:
    """The end of the step ends the offer; the next quorum repeats the transfer."""
    source, receiver, _ = transports
    state = {"weight": torch.randn(4)}
    source.send_checkpoint([1, 2], 3, state, LIMIT)
    receive = threads.submit(receiver.recv_checkpoint, 0, source.metadata(), 3, LIMIT)
    assert wait_until(lambda: source._sending._run is not None, timeout_s=10)
    began = time.monotonic()
    source.disallow_checkpoint()
    error = receive.exception(AT_ONCE_S)
    assert isinstance(error, pccl.PcclError), error
    assert "recv_checkpoint of step 3 from replica 0 has failed" in str(error)
    assert "ended its offer" in str(error) or "given the group up" in str(error)
    assert time.monotonic() - began < AT_ONCE_S
    source.send_checkpoint([1], 3, state, LIMIT)
    receive = threads.submit(receiver.recv_checkpoint, 0, source.metadata(), 3, LIMIT)
    assert same(receive.result(LIMIT.total_seconds()), state)


def test_a_send_ends_at_its_timeout(transports: list[PcclTransport]) -> None:
    source, *_ = transports
    source.send_checkpoint([1], 3, {}, timedelta(seconds=0.3))
    thread = source._sending._thread
    thread.join(AT_ONCE_S)
    assert not thread.is_alive()


def test_nothing_is_offered(transports: list[PcclTransport]) -> None:
    source, receiver, _ = transports
    source.send_checkpoint([1], 3, {}, LIMIT)  # of another step
    began = time.monotonic()
    with pytest.raises(pccl.OperationTimeoutError, match=r"step 4 from replica 0 timed out after"):
        receiver.recv_checkpoint(0, source.metadata(), 4, timedelta(seconds=0.2))
    assert time.monotonic() - began < AT_ONCE_S


def test_the_source_is_gone(transports: list[PcclTransport]) -> None:
    source, receiver, _ = transports
    place = source.metadata()
    source.shutdown()
    began = time.monotonic()
    with pytest.raises(pccl.PcclError, match=r"recv_checkpoint of step 4 .* refuses"):
        receiver.recv_checkpoint(0, place, 4, LIMIT)
    assert time.monotonic() - began < AT_ONCE_S


def test_another_transport(transports: list[PcclTransport]) -> None:
    with pytest.raises(ValueError, match="same checkpoint_transport"):
        transports[0].recv_checkpoint(0, "http://host:1234/checkpoint/", 4, LIMIT)


@pytest.mark.parametrize("wait", [True, False])
def test_shutdown_ends_its_threads(wait: bool, transports: list[PcclTransport]) -> None:
    source, *_ = transports
    source.send_checkpoint([1], 3, {"weight": torch.randn(4)}, LIMIT)
    thread = source._sending._thread
    source.shutdown(wait=wait)
    thread.join(0.0 if wait else AT_ONCE_S)
    assert not thread.is_alive()
    for call in (
        source.metadata,
        lambda: source.send_checkpoint([1], 3, {}, LIMIT),
        lambda: source.recv_checkpoint(1, "", 3, LIMIT),
    ):
        with pytest.raises(pccl.InvalidStateError, match="shut down"):
            call()
    source.shutdown()  # again


def test_bad_arguments_are_refused_at_once(transports: list[PcclTransport]) -> None:
    source, *_ = transports
    with pytest.raises(ValueError, match="timeout"):
        source.send_checkpoint([1], 3, {}, timedelta(0))
    with pytest.raises(TypeError, match="Stranger"):
        source.send_checkpoint([1], 3, {"a": Stranger()}, LIMIT)
    assert source._sending is None
