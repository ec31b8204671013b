"""A call of the DiLoCo trainer that raised may be repeated: every round counts once.

Most tests keep books. With an outer learning rate of 1, no momentum and whole numbers, the global
parameters are exactly their start plus everything that was ever learned. An inner step that is lost
or counted twice shows as a number.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from scripted_group import LOST, ScriptedGroup, Topology, flat, same_bits, script, wander

import pccl_backend as pccl
from pccl_backend import trainers
from pccl_backend.trainers import DiLoCo, Observer, engine

pytestmark = pytest.mark.usefixtures("one_thread", "heeds_ctrl_c")

TRAINERS = str(Path(trainers.__file__).parent)
OTHERS = ("stepped", "came_back")  # of trainers with an optimizer, or with a url
EVENTS = [n for n in vars(Observer) if not n.startswith("_") and n not in OTHERS]
TIMEOUT = pccl.OperationTimeoutError("rank 1 has not called it")
DIFFER = pccl.SharedStateError("the offers differ")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


class Books:
    """A model, its trainer, and the expected parameters."""

    def __init__(self, group: ScriptedGroup, **options: Any) -> None:
        self.group = group
        self.model = torch.nn.Linear(2, 1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.zero_()
        self.observer = Observer()
        options = {"outer_lr": 1.0, "outer_momentum": 0.0, "observer": self.observer, **options}
        self.outer = DiLoCo(self.model, **options)
        self.learned = 0.0

    @property
    def started(self) -> bool:
        return self.outer._made is not None and self.outer._made.core.started

    def learn(self, amount: float) -> None:
        """Simulate inner steps."""
        self.learned += amount
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(amount)

    def check(self, *, revision: int, applied: float) -> None:
        assert self.outer.revision == revision
        assert self.group.commits == revision, "each all-reduce that committed is one round"
        for name, tensor in self.group.state.items():
            if name.startswith("global/"):
                assert tensor.unique().tolist() == [applied], name

    def check_all(self) -> None:
        """Check that the current round and one more round apply everything that was learned."""
        begun = self.outer.step()
        after = self.outer.step()
        assert after.revision == begun.revision + 1
        self.check(revision=after.revision, applied=self.learned)
        assert flat(self.model).unique().tolist() == [self.learned]

    def fail_at(self, event: str) -> None:
        """Let the observer raise at the next such event."""

        def tell(*_: object) -> None:
            delattr(self.observer, event)
            raise RuntimeError("observer")

        setattr(self.observer, event, tell)


# --- Calls of a step that can raise, and the round that inner steps in between count for ----------

NOT_COMMITTED = [
    ("post_errors", [TIMEOUT]),
    ("post_errors", [KeyboardInterrupt()]),
    ("reduce_errors", [TIMEOUT]),
    ("reduce_errors", [pccl.CollectiveMismatchError("another size")]),
    ("reduce_errors", [pccl.KickedError("silent")]),
    ("reduce_errors", [LOST] * 32),
    ("before_reduce", []),
]
COMMITTED = [
    ("reduce_errors", [KeyboardInterrupt()]),
    ("reduce_errors", [SystemExit(1)]),
    ("reduce_errors", [KeyboardInterrupt(), KeyboardInterrupt(), KeyboardInterrupt()]),
    ("topology_errors", [TIMEOUT]),
    ("topology_errors", [KeyboardInterrupt()]),
    ("topology_errors", [pccl.MasterLostError("gone")]),
    ("sync_errors", [DIFFER]),
    ("sync_errors", [KeyboardInterrupt()]),
    ("sync_errors", [LOST] * 32),
    *((event, []) for event in EVENTS if event != "before_reduce"),
]


def fault(books: Books, place: str, what: Any) -> None:
    if place in EVENTS:
        books.fail_at(place)
        if place == "reduce_failed":
            books.group.reduce_errors = [LOST]
    else:
        setattr(books.group, place, list(what))


def named(faults: list[tuple[str, Any]]) -> list[Any]:
    def name(what: Any) -> str:
        return f"{type(what[0]).__name__}x{len(what)}" if what else "observer"

    return [pytest.param(*each, id=f"{each[0]}-{name(each[1])}") for each in faults]


@pytest.mark.parametrize("between", [0.0, 100.0], ids=["at once", "later"])
@pytest.mark.parametrize(("place", "what"), named(NOT_COMMITTED))
def test_before_the_commit_inner_steps_in_between_count_in_the_same_round(
    group: ScriptedGroup, place: str, what: Any, between: float
) -> None:
    books = Books(group)
    books.outer.start()
    books.learn(1)
    fault(books, place, what)
    with pytest.raises(BaseException, match=r".*"):
        books.outer.step()
    assert books.outer.revision == 0
    assert flat(books.model).unique().tolist() == [1], "the local copy keeps what it has learned"
    books.learn(between)
    assert books.outer.step().revision == 1
    books.check(revision=1, applied=1 + between)
    books.check_all()


@pytest.mark.parametrize("between", [0.0, 100.0], ids=["at once", "later"])
@pytest.mark.parametrize(("place", "what"), named(COMMITTED))
def test_after_the_commit_inner_steps_in_between_count_in_the_next_round(
    group: ScriptedGroup, place: str, what: Any, between: float
) -> None:
    books = Books(group)
    books.outer.start()
    books.learn(1)
    fault(books, place, what)
    raised = 0
    while True:
        try:
            done = books.outer.step()
            break
        except (KeyboardInterrupt, SystemExit, RuntimeError):
            raised += 1
            books.learn(between)
    assert raised >= 1
    assert done.revision == 1
    in_this_round = 1 + (between if place == "reduce_failed" else 0)
    books.check(revision=1, applied=in_this_round)
    assert flat(books.model).unique().tolist() == [books.learned], "the local copy keeps the rest"
    books.learn(10)
    books.check_all()


def test_a_repeated_call_gives_the_bits_of_an_undisturbed_one(group: ScriptedGroup) -> None:
    """Settings and numbers that need rounding."""

    def run(place: str, what: Any) -> torch.Tensor:
        torch.manual_seed(3)
        books = Books(group, outer_lr=0.7, outer_momentum=0.9)
        books.model = books.outer._model = torch.nn.Linear(4, 3).bfloat16()
        books.outer.start()
        for seed in range(4):
            wander(books.model, seed)
            if seed == 2:
                fault(books, place, what)
            for _ in range(4):
                try:
                    books.outer.step()
                    break
                except (KeyboardInterrupt, SystemExit, RuntimeError):
                    assert seed == 2
        assert books.outer.revision == 4
        return torch.cat([tensor.flatten() for tensor in group.state.values()])

    undisturbed = run("reduce_errors", [])
    for place, what in [*NOT_COMMITTED, *COMMITTED]:
        assert same_bits(run(place, what), undisturbed), (place, what)


def test_any_sequence_of_faults_keeps_the_books(group: ScriptedGroup) -> None:
    """Random faults in all calls, meetings in between; no newcomers and no overruled syncs."""
    chance = random.Random(11)

    def maybe(*errors: BaseException) -> list[BaseException | None]:
        return [chance.choice([None, None, *errors]) for _ in range(3)]

    for _ in range(60):
        group.commits = 0
        books = Books(group)
        while books.outer.revision < 5:
            group.post_errors = maybe(LOST, TIMEOUT)
            # After it has committed, only its waiter can be interrupted.
            interrupted = group.under_way and group.running.committed
            losses = [] if interrupted else [LOST, TIMEOUT]
            group.reduce_errors = [chance.choice([None, KeyboardInterrupt(), *losses])]
            group.topology_errors = maybe(TIMEOUT, KeyboardInterrupt())
            group.sync_errors = maybe(LOST, DIFFER, KeyboardInterrupt())
            vars(books.observer).clear()
            if chance.random() < 0.5:
                books.fail_at(chance.choice(EVENTS))
            call = chance.choice([books.outer.step, books.outer.step, books.outer.meet])
            if not books.started:
                call = books.outer.start
            with contextlib.suppress(KeyboardInterrupt, RuntimeError):
                call()
            books.learn(float(chance.randrange(3)))
        for errors in (group.post_errors, group.reduce_errors, group.topology_errors):
            errors.clear()
        group.sync_errors.clear()
        vars(books.observer).clear()
        books.check_all()


def test_an_all_reduce_that_the_others_are_past_is_repeated_without_a_meeting(
    group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would wait for us in it, and we for them in the meeting, again and again."""
    books = Books(group)
    books.outer.start()
    books.learn(1)
    group.reduce_errors.append(TIMEOUT)
    with pytest.raises(pccl.OperationTimeoutError):
        books.outer.step()
    monkeypatch.setattr(engine, "ended_before_call", lambda work: True)
    group.reduce_errors.append(TIMEOUT)
    before = group.calls.count("update_topology")
    assert books.outer.step().attempts == 3
    assert group.calls.count("update_topology") == before + 2, "one before it, one at the end"
    books.check_all()


# --- Ctrl-C at any point --------------------------------------------------------------------------


def interrupted_at(number: int, call: Callable[[], object]) -> tuple[bool, bool]:
    """Call `call`; SIGINT arrives before the trainer's bytecode of that number.

    Return whether that bytecode was reached, and whether the call was interrupted.
    """
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(TRAINERS):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True, True
    finally:
        sys.settrace(before)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return seen >= number, False


STRIDE = 17  # 1 tries every bytecode and takes half a minute


def test_ctrl_c_at_any_bytecode_of_a_step(group: ScriptedGroup) -> None:
    books = Books(group)
    books.outer.start()
    interruptions = 0
    for number in itertools.count(1, STRIDE):
        before = books.outer.revision
        books.learn(1)
        # A loss in this step, so that all of the code runs.
        group.reduce_errors = [LOST]
        came, interrupted = interrupted_at(number, books.outer.step)
        interruptions += interrupted
        assert came == interrupted, "a signal is heard in the end"
        books.learn(1)
        group.reduce_errors.clear()
        assert books.outer.revision - before in {0, 1}
        books.check_all()
        if not came:
            break
    assert interruptions > 100


def test_ctrl_c_at_any_bytecode_of_a_start(group: ScriptedGroup) -> None:
    for number in itertools.count(1, STRIDE):
        group.agreed, group.revision = 5.0, 7
        books = Books(group)
        calls = len(group.calls)
        came, _ = interrupted_at(number, books.outer.start)
        books.outer.start()
        assert books.outer.revision == 7
        assert flat(books.model).unique().tolist() == [5]
        assert len(group.calls) - calls <= 3, "one sync, or a meeting after one that raised"
        if not came:
            break
    assert number > 100


# --- start(), meet(), and being first -------------------------------------------------------------


def test_weights_loaded_before_start_are_used(group: ScriptedGroup) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    outer = DiLoCo(model)
    model.load_state_dict({"weight": torch.full((1, 1), 42.0)})
    outer.start()
    assert model.weight.item() == 42
    assert group.state["global/weight"].item() == 42


@pytest.mark.parametrize("assign", [False, True])
def test_a_model_that_was_changed_before_start_is_used(group: ScriptedGroup, assign: bool) -> None:
    """Changed dtype, changed set of trained parameters, or new Parameter objects."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    outer = DiLoCo(model, outer_lr=1.0, outer_momentum=0.0)
    model.double()
    weights = {name: torch.full_like(t, 42.0) for name, t in model.state_dict().items()}
    model.load_state_dict(weights, assign=assign)
    model[0].requires_grad_(False)
    outer.start()
    names = [f"{part}/1.{name}" for part in ("global", "momentum") for name in ("bias", "weight")]
    assert sorted(group.state) == [*names, "progress"]
    assert outer.pseudo_gradient.dtype == torch.float64
    with torch.no_grad():
        model[1].weight += 1
    outer.step()
    assert group.state["global/1.weight"].item() == model[1].weight.item() == 43


def test_weights_loaded_between_steps_count_as_inner_steps(group: ScriptedGroup) -> None:
    """This holds even if they replace the Parameters: the trainer must not train the old ones."""
    books = Books(group)
    books.outer.start()
    weights = {name: torch.full_like(t, 3.0) for name, t in books.model.state_dict().items()}
    books.model.load_state_dict(weights, assign=True)
    books.outer.step()
    books.check(revision=1, applied=3)


@pytest.mark.parametrize("error", [DIFFER, TIMEOUT, KeyboardInterrupt()])
def test_a_start_that_raised_takes_the_model_as_it_is_next_time(
    group: ScriptedGroup, error: BaseException
) -> None:
    books = Books(group)
    books.learn(1)
    group.sync_errors = [error]
    with pytest.raises(type(error)):
        books.outer.start()
    books.learn(1)
    books.outer.start()
    books.check(revision=0, applied=2)
    # After a joint call that failed, members and newcomers alike start their meeting again.
    again = ["update_topology", "sync enforce_popular"]
    assert group.calls == ["sync enforce_popular", *again]
    books.check_all()


def test_a_start_that_raised_when_all_was_done_is_not_done_twice(group: ScriptedGroup) -> None:
    books = Books(group)
    books.fail_at("state_synced")
    group.agreed, group.revision = 5.0, 7
    with pytest.raises(RuntimeError, match="observer"):
        books.outer.start()
    assert books.outer.start().rx_bytes == 1000
    assert group.calls == ["sync enforce_popular"]
    assert books.outer.revision == 7
    assert flat(books.model).unique().tolist() == [5]


@pytest.mark.parametrize("call", ["step", "meet"])
def test_a_start_that_raised_when_all_was_done_may_be_left_at_that(
    group: ScriptedGroup, call: str
) -> None:
    """Its sync does not count as the meeting of the next call."""
    books = Books(group)
    books.fail_at("state_synced")
    with pytest.raises(RuntimeError, match="observer"):
        books.outer.start()
    getattr(books.outer, call)()
    assert group.calls[-2:] == ["update_topology", "sync enforce_popular"]


@pytest.mark.parametrize("call", ["step", "meet"])
def test_start_comes_first(group: ScriptedGroup, call: str) -> None:
    outer = DiLoCo(torch.nn.Linear(1, 1))
    with pytest.raises(pccl.InvalidStateError, match=r"call start\(\) first"):
        getattr(outer, call)()
    with pytest.raises(pccl.InvalidStateError, match=r"call start\(\) first"):
        outer.pseudo_gradient  # noqa: B018
    assert (group.calls, outer.revision) == ([], 0)
    group.sync_errors = [DIFFER]
    with pytest.raises(pccl.SharedStateError):
        outer.start()
    with pytest.raises(pccl.InvalidStateError, match=r"call start\(\) first"):
        getattr(outer, call)()


def test_a_meeting_that_failed_begins_anew_before_the_next_all_reduce(group: ScriptedGroup) -> None:
    """All members do so: one whose call was interrupted may be at another point."""
    books = Books(group)
    books.outer.start()
    meeting = ["update_topology", "sync enforce_popular"]
    for errors in (group.reduce_errors, group.topology_errors, group.sync_errors):
        group.calls.clear()
        errors.append(TIMEOUT)
        failed = books.outer.step if errors is group.reduce_errors else books.outer.meet
        with pytest.raises(pccl.OperationTimeoutError):
            failed()
        group.calls.clear()
        books.outer.step()
        assert group.calls == [*meeting, "all_reduce", *meeting]


def test_a_meeting_goes_on_where_its_observer_raised(group: ScriptedGroup) -> None:
    """The others are in sync_shared_state: another update_topology would make them fail."""
    books = Books(group)
    books.fail_at("topology_updated")
    books.outer.start()
    group.calls.clear()
    group.topologies = [Topology(3, joined=("c",))]
    with pytest.raises(RuntimeError, match="observer"):
        books.outer.step()
    done = books.outer.step()
    assert group.calls == ["all_reduce", "update_topology", "sync enforce_popular"]
    assert (done.joined, done.world_size, done.attempts, done.contributors) == (("c",), 3, 1, 2)


def test_meet_ends_a_step_whose_all_reduce_was_interrupted(group: ScriptedGroup) -> None:
    books = Books(group)
    books.outer.start()
    books.learn(1)
    group.reduce_errors = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        books.outer.step()
    books.outer.meet()
    books.check(revision=1, applied=1)
    books.check_all()


def test_company_of_earlier_meetings_is_none_of_a_steps(group: ScriptedGroup) -> None:
    books = Books(group)
    books.outer.start()
    group.topologies = [Topology(3, joined=("c",)), Topology(3)]
    books.outer.meet()
    assert books.outer.step().joined == ()


# --- New globals under a local copy that has learned ----------------------------------------------


@pytest.mark.parametrize("when", ["meet", "retry", "end", "repeated"])
def test_a_peer_that_is_overruled_keeps_what_it_has_learned(
    group: ScriptedGroup, when: str
) -> None:
    """Its progress is measured from the globals it started from, not from the received ones."""
    books = Books(group)
    books.outer.start()
    books.learn(1)
    if when == "meet":
        group.agreed = 50.0
        books.outer.meet()
        assert flat(books.model).unique().tolist() == [51]
    elif when == "retry":
        group.agreed, group.reduce_errors = 50.0, [LOST]
    elif when == "end":
        group.agreed = 50.0
    else:
        group.sync_errors = [DIFFER]
        with pytest.raises(pccl.SharedStateError):
            books.outer.step()
        group.agreed = 50.0
        books.learn(4)
    books.outer.step()
    learned = {"meet": 51, "retry": 51, "end": 50, "repeated": 54}[when]
    assert flat(books.model).unique().tolist() == [learned]


def test_a_peer_that_joins_anew_goes_on_with_the_same_trainer(group: ScriptedGroup) -> None:
    books = Books(group)
    books.outer.start()
    books.learn(1)
    group.reduce_errors = [pccl.KickedError("silent")]
    with pytest.raises(pccl.KickedError):
        books.outer.step()
    group.peer = "b"
    with pytest.raises(pccl.InvalidStateError, match=r"joined the run anew: call start\(\) first"):
        books.outer.step()
    group.agreed, group.revision = 50.0, 9
    group.calls.clear()
    books.outer.start(strategy="receive_only")
    assert group.calls == ["sync receive_only"], "a newcomer's first call"
    assert books.outer.revision == 9
    assert flat(books.model).unique().tolist() == [51]
    books.outer.step()
    assert group.reduced[-1].unique().tolist() == [-1]


@pytest.mark.parametrize("committed", [True, False])
def test_an_all_reduce_of_an_earlier_membership_is_ended_first(
    group: ScriptedGroup, committed: bool
) -> None:
    books = Books(group)
    books.outer.start()
    books.learn(1)
    books.fail_at("reduce_posted")
    with pytest.raises(RuntimeError, match="observer"):
        books.outer.step()
    books.learn(100)
    if not committed:
        group.reduce_errors = [pccl.InvalidStateError("this process has left the run")]
    group.peer = "b"
    books.outer.start()
    books.check(revision=int(committed), applied=float(committed))
    books.check_all()
