"""The core's decisions, one by one: the effect of a call, also after a call that raised.

`Alone` is a trainer without tensors whose group ends all calls well. Its story has a dot for each
inner step, a word for each action, and a bar where a call has returned.
"""

from __future__ import annotations

from typing import Any

import pytest

from pccl_backend.trainers.core import ATTEMPTS_MAX, Core
from pccl_backend.trainers.stages import Action, Delta, Goal, Progress, Then

WHOLE = 1 << 62
MEETS = "UPDATE SYNC"
BLOCKING = f"POST AWAIT APPLY LOAD {MEETS} |"
SENDS = f"TURN {MEETS} POST |"
RECEIVES = "AWAIT APPLY LOAD |"


class Alone:
    """A peer; `agreed` is the others' shared state when it starts."""

    def __init__(self, agreed: Progress | None = None, **settings: Any) -> None:
        self.core = Core(**{"overlap": 0, "every": None, "fragments": 1, **settings})
        self.words: list[str] = []
        self.joined = False  # whether an UPDATE admits somebody
        self.shared = Progress()  # in the last SYNC
        self.call(Goal.START, agreed=agreed)

    def story(self) -> str:
        """Return the events since the last call of this method."""
        said, self.words = " ".join(self.words), []
        return said

    def steps(self, count: int, **what: bool) -> None:
        """Take inner steps, and make the calls that they need."""
        for _ in range(count):
            self.words.append(".")
            goal = self.core.inner_step(**what)
            if goal is not None:
                self.call(goal)

    def call(
        self, goal: Goal, *, until: Action | None = None, agreed: Progress | None = None
    ) -> None:
        """Make a call; `until`: it raises before that action."""
        self.core.want(goal)
        while (action := self.core.next()) is not None:
            if action is until:
                return
            self.words.append(action.name)
            self._do(action, agreed)
        assert until is None, f"{until} did not come: {self.words}"
        self.core.end_call()
        self.words.append("|")

    def raises_after(self, goal: Goal, action: Action) -> None:
        """Make a call that raises when an action is done, as for an observer."""
        self.call(goal, until=action)
        self.words.append(action.name)
        self._do(action, None)

    def _do(self, action: Action, agreed: Progress | None) -> None:
        match action:
            case Action.TURN:
                self.core.turned(inner_steps=5 if self.core.fused else None)
            case Action.APPLY:
                self.core.applied(inner_steps=5)
            case Action.UPDATE:
                self.core.updated(joined=self.joined)
            case Action.SYNC:
                goes_on = self.core.may_go_on
                revision, offer = self.core.offer()
                self.shared = agreed or offer
                self.core.synced(revision, self.shared, goes_on=goes_on)
            case Action.POST:
                self.core.posting()
                self.core.did(action)
            case _:
                self.core.did(action)


def started(**settings: Any) -> Alone:
    peer = Alone(**settings)
    assert peer.story() == "SYNC |"
    return peer


# --- Where outer steps begin and end --------------------------------------------------------------


def test_a_blocking_trainer_waits() -> None:
    peer = started(every=2)
    peer.steps(5)
    assert peer.story() == f". . {BLOCKING} . . {BLOCKING} ."
    assert peer.core.progress == Progress(outer_steps=2, inner_steps=10)
    assert peer.core.attempts == 1, "of the second one"


def test_an_average_travels_for_so_many_inner_steps() -> None:
    peer = started(overlap=2, every=4)
    peer.steps(11)
    assert peer.story() == f". . . . {SENDS} . . {RECEIVES} . . {SENDS} . . {RECEIVES} ."
    assert peer.core.progress.outer_steps == 2
    assert peer.core.attempts == 1, "of the second one"


@pytest.mark.parametrize("overlap", [2, WHOLE])
def test_what_arrives_at_a_boundary_is_applied_after_the_next_is_measured(overlap: int) -> None:
    """Send before receive at the same step."""
    peer = started(overlap=overlap, every=2)
    peer.steps(4)
    assert peer.story() == f". . {SENDS} . . AWAIT {SENDS}"
    assert peer.core.progress == Progress(1, Then.POST, 0, 5)
    peer.call(Goal.MEET)
    assert peer.story() == f"AWAIT APPLY LOAD {MEETS} |"
    assert peer.core.progress.outer_steps == 2


def test_a_trainer_without_a_fixed_overlap_receives_what_has_landed() -> None:
    peer = started(overlap=None, every=3)
    peer.steps(4, landed=False)
    peer.steps(1, landed=True)
    peer.steps(1, landed=True)
    assert peer.story() == f". . . {SENDS} . . {RECEIVES} . {SENDS}"
    peer.steps(3, landed=False)
    assert peer.story() == f". . . AWAIT {SENDS}", "at the next boundary it waits"


def test_fragments_share_the_inner_steps_of_a_cycle() -> None:
    blocking = started(every=7, fragments=3)
    blocking.steps(14)
    cycle = f". . {BLOCKING} . . {BLOCKING} . . . {BLOCKING}"
    assert blocking.story() == f"{cycle} {cycle}"
    flying = started(overlap=1, every=7, fragments=3)
    flying.steps(7)
    first, later = f". . {SENDS}", f". {RECEIVES} . {SENDS}"
    assert flying.story() == f"{first} {later} . {RECEIVES} . . {SENDS}"
    assert flying.core.fragment == 2, "the last one travels"
    late = started(overlap=WHOLE, every=7, fragments=3)
    late.steps(7)
    arrives = f"AWAIT APPLY LOAD {SENDS}"
    assert late.story() == f". . {SENDS} . . {arrives} . . . {arrives}"


def test_another_fragment_arrives_before_the_next_is_measured() -> None:
    peer = started(overlap=WHOLE, every=4, fragments=2)
    peer.steps(4)
    assert peer.story() == f". . {SENDS} . . AWAIT APPLY LOAD {SENDS}"


def test_the_clock_may_end_an_interval() -> None:
    peer = started()
    peer.steps(3)
    peer.steps(1, due=True)
    assert peer.story() == f". . . . {BLOCKING}"
    assert peer.core.steps == 0


# --- After a call that raised ---------------------------------------------------------------------


def test_inner_steps_are_taken_after_a_boundary_only() -> None:
    peer = started(every=3)
    peer.steps(2)
    peer.core.steps += 1
    peer.call(Goal.STEP, until=Action.AWAIT)
    assert not peer.core.between
    peer.story()
    peer.steps(1)
    assert peer.story() == f". {BLOCKING.removeprefix('POST ')}", "the step goes on at once"


@pytest.mark.parametrize("after", [Action.AWAIT, Action.APPLY])
def test_a_round_whose_end_raised_is_finished_at_the_next_inner_step(after: Action) -> None:
    peer = started(overlap=2, every=9)
    peer.steps(10)
    peer.core.steps += 1
    peer.story()
    peer.raises_after(Goal.RECEIVE, after)
    peer.story()
    peer.steps(1)
    assert peer.story() == ". " + RECEIVES[RECEIVES.index(after.name) + len(after.name) + 1 :]


def test_a_round_that_failed_is_sent_again_at_the_next_inner_step() -> None:
    peer = started(overlap=3, every=9)
    peer.steps(10)
    peer.call(Goal.RECEIVE, until=Action.AWAIT)
    assert peer.core.reduce_failed(members_changed=False, was_over=False), "the caller hears of it"
    assert peer.core.offer()[1] == Progress(0, Then.POST, 3, 0), "a newcomer sends, too"
    peer.story()
    peer.steps(1)
    assert peer.story() == f". {MEETS} POST {RECEIVES}"
    peer.steps(7)
    assert peer.story() == f". . . . . . . {SENDS}", "the interval is as long as ever"


@pytest.mark.parametrize("delta", [Delta.OWN, Delta.MEAN])
def test_a_round_that_is_not_finished_does_not_change_the_interval(delta: Delta) -> None:
    """The second of three fragments is out; the interval after it has three inner steps."""
    peer = started(overlap=1, every=7, fragments=3)
    peer.steps(4)
    peer.core.steps += 1
    if delta is Delta.MEAN:
        peer.raises_after(Goal.RECEIVE, Action.AWAIT)
    else:
        peer.call(Goal.RECEIVE, until=Action.AWAIT)
        peer.core.reduce_failed(members_changed=False, was_over=False)
    assert peer.core.delta is delta
    assert peer.core.inner_step() is Goal.RECEIVE
    assert peer.core.inner_step() is Goal.STEP


def test_a_meeting_that_was_done_is_not_repeated_by_the_same_call() -> None:
    peer = started()
    peer.raises_after(Goal.MEET, Action.SYNC)
    peer.call(Goal.MEET)
    assert peer.story() == f"{MEETS} |"
    peer.call(Goal.MEET)
    assert peer.story() == f"{MEETS} |"


def test_a_meeting_is_not_that_of_a_later_call() -> None:
    """A meeting raised at its end, then a step before its all-reduce: the next meeting is anew."""
    peer = started()
    peer.raises_after(Goal.MEET, Action.SYNC)
    peer.call(Goal.STEP, until=Action.POST)
    peer.story()
    peer.call(Goal.MEET)
    assert peer.story() == f"{MEETS} |"
    peer.call(Goal.STEP)
    assert peer.story() == BLOCKING


def test_a_blocking_meeting_leaves_a_step_that_has_not_begun_its_all_reduce() -> None:
    peer = started()
    peer.call(Goal.STEP, until=Action.POST)
    peer.call(Goal.MEET)
    assert peer.story() == f"{MEETS} |"
    peer.call(Goal.STEP)
    assert peer.story() == BLOCKING


def test_a_meeting_ends_a_step_whose_all_reduce_has_begun() -> None:
    peer = started()
    peer.call(Goal.STEP, until=Action.AWAIT)
    peer.call(Goal.MEET)
    assert peer.story() == BLOCKING
    peer.call(Goal.STEP)
    assert peer.story() == BLOCKING, "the next step is another one"


# --- Failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [0, 2])
def test_a_loss_is_met_and_the_round_is_sent_again(overlap: int) -> None:
    peer = started(overlap=overlap)
    peer.call(Goal.STEP, until=Action.AWAIT if overlap == 0 else Action.POST)
    peer.core.posting() if overlap else None
    peer.story()
    assert not peer.core.reduce_failed(members_changed=True, was_over=False)
    assert peer.core.delta is (Delta.FREE if overlap == 0 else Delta.OWN)
    assert peer.core.offer()[1].then is (Then.FINISH if overlap == 0 else Then.POST)
    peer.call(Goal.STEP)
    assert peer.story() == f"{MEETS} " + (BLOCKING if overlap == 0 else "POST |")
    assert peer.core.attempts == 2


def test_after_a_loss_at_a_boundary_a_newcomer_goes_over_it_with_the_others() -> None:
    peer = started(overlap=WHOLE, every=2)
    peer.steps(3)
    peer.core.steps += 1
    peer.call(Goal.STEP, until=Action.AWAIT)
    peer.core.reduce_failed(members_changed=True, was_over=False)
    assert peer.core.offer()[1] == Progress(0, Then.FINISH)
    peer.story()
    peer.call(Goal.STEP)
    assert peer.story() == f"{MEETS} POST AWAIT {SENDS}"


def test_losses_without_end_are_told() -> None:
    peer = started()
    heard = []
    for _ in range(ATTEMPTS_MAX):
        peer.call(Goal.STEP, until=Action.AWAIT)
        heard.append(peer.core.reduce_failed(members_changed=True, was_over=False))
    assert heard == [False] * (ATTEMPTS_MAX - 1) + [True]
    peer.call(Goal.STEP, until=Action.AWAIT)
    assert not peer.core.reduce_failed(members_changed=True, was_over=False), "counted afresh"


def test_meetings_that_fail_without_end_are_told() -> None:
    peer = started()

    def fails(*, members_changed: bool = True) -> bool:
        peer.call(Goal.MEET, until=Action.UPDATE)
        return peer.core.call_failed(members_changed=members_changed)

    assert not fails()
    peer.call(Goal.MEET)  # a meeting that ended begins the count
    assert [fails() for _ in range(ATTEMPTS_MAX)] == [False] * (ATTEMPTS_MAX - 1) + [True]
    assert fails(members_changed=False), "another error is told at once"


def test_a_sync_that_failed_is_preceded_by_another_update() -> None:
    peer = started()
    peer.call(Goal.MEET, until=Action.SYNC)
    peer.core.call_failed(members_changed=True)
    peer.call(Goal.MEET)
    assert peer.story() == f"UPDATE {MEETS} |"


def test_what_the_others_are_past_is_repeated_without_a_meeting() -> None:
    """Only if this peer has met since the failure, and only if all others had ended it before."""
    for repaired, was_over in [(True, True), (True, False), (False, True)]:
        peer = started()
        if repaired:
            peer.call(Goal.STEP, until=Action.AWAIT)
            peer.core.reduce_failed(members_changed=True, was_over=False)
        peer.call(Goal.STEP, until=Action.AWAIT)
        peer.story()
        past = repaired and was_over
        told = peer.core.reduce_failed(members_changed=False, was_over=was_over)
        assert told != past
        peer.call(Goal.STEP)
        assert peer.story() == (BLOCKING if past else f"{MEETS} {BLOCKING}")


def test_a_meeting_that_failed_is_a_repair_too() -> None:
    peer = started()
    peer.call(Goal.MEET, until=Action.UPDATE)
    peer.core.call_failed(members_changed=True)
    peer.call(Goal.MEET)
    peer.call(Goal.STEP, until=Action.AWAIT)
    assert not peer.core.reduce_failed(members_changed=False, was_over=True)
    peer.story()
    peer.call(Goal.STEP)
    assert peer.story() == BLOCKING


def test_a_loss_is_met_also_if_the_round_was_over() -> None:
    peer = started()
    for _ in range(2):
        peer.call(Goal.STEP, until=Action.AWAIT)
        peer.core.reduce_failed(members_changed=True, was_over=True)
        peer.story()
    peer.call(Goal.STEP)
    assert peer.story() == f"{MEETS} {BLOCKING}"


def test_what_the_others_are_past_is_repeated_once() -> None:
    peer = started()
    peer.call(Goal.STEP, until=Action.AWAIT)
    peer.core.reduce_failed(members_changed=True, was_over=False)
    heard = []
    for _ in range(2):
        peer.call(Goal.STEP, until=Action.AWAIT)
        heard.append(peer.core.reduce_failed(members_changed=False, was_over=True))
    assert heard == [False, True]


def test_a_post_that_fails_at_once_counts_as_after_the_repair() -> None:
    peer = started()
    peer.call(Goal.STEP, until=Action.AWAIT)
    peer.core.reduce_failed(members_changed=True, was_over=False)
    peer.call(Goal.STEP, until=Action.POST)
    assert not peer.core.reduce_failed(members_changed=False, was_over=True)
    peer.story()
    peer.call(Goal.STEP)
    assert peer.story() == BLOCKING
    peer.call(Goal.STEP, until=Action.AWAIT)
    assert peer.core.reduce_failed(members_changed=False, was_over=True), "that repair is over"


# --- Newcomers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "then", "story"),
    [
        (0, Then.STEPS, "SYNC |"),
        (0, Then.FINISH, f"SYNC {BLOCKING}"),
        (2, Then.STEPS, "SYNC |"),
        (2, Then.POST, "SYNC POST |"),
        (2, Then.FINISH, f"SYNC POST AWAIT {SENDS}"),
    ],
)
def test_a_newcomer_does_what_the_others_do(overlap: int, then: Then, story: str) -> None:
    peer = Alone(Progress(7, then, 1, 70), overlap=overlap, every=4)
    assert peer.story() == story
    assert not peer.core.blank, "what it sends next is its own"
    assert peer.core.started
    if then is not Then.FINISH:
        assert peer.core.steps == (1 if then is Then.POST else 0)
        assert peer.core.progress.outer_steps == 7


def test_a_newcomer_in_the_middle_of_a_round_is_blank() -> None:
    core = Core(overlap=2, every=4, fragments=1)
    core.attempts = 3
    core.want(Goal.START)
    assert core.next() is Action.SYNC
    assert core.offer() == (0, Progress())
    core.synced(7, Progress(7, Then.POST, 1, 70))
    assert (core.blank, core.delta, core.attempts) == (True, Delta.OWN, 0)


def test_a_start_that_raised_goes_on_with_the_same_sync() -> None:
    core = Core(overlap=0, every=4, fragments=1)
    core.want(Goal.START)
    core.call_failed(members_changed=False)
    core.want(Goal.START)
    assert core.next() is Action.UPDATE


def test_a_step_after_a_start_that_raised_tells_the_others_nothing() -> None:
    """They are not at a boundary because this peer is."""
    core = Core(overlap=0, every=4, fragments=1)
    core.want(Goal.START)
    core.call_failed(members_changed=False)
    core.want(Goal.STEP)
    assert core.next() is Action.UPDATE
    assert core.offer() == (0, Progress())


def test_a_peer_that_is_out_begins_as_a_newcomer() -> None:
    peer = started(overlap=2, every=4)
    peer.steps(4)
    peer.call(Goal.MEET, until=Action.AWAIT)
    peer.core.reduce_failed(members_changed=True, was_over=False)
    peer.call(Goal.MEET, until=Action.SYNC)
    peer.core.call_failed(members_changed=True)
    peer.core.leave()
    assert (peer.core.delta, peer.core.started, peer.core.between) == (Delta.FREE, False, True)
    assert peer.core.progress == Progress(0, Then.POST, 0, 0), "the counters are kept"
    assert peer.core.offer() == (1, peer.core.progress), "what was agreed on, with its revision"
    peer.story()
    peer.call(Goal.START)
    assert peer.story() == "SYNC POST |", "nobody else is there: it does what the run did next"


def test_a_newcomer_remembers_no_failure_of_its_earlier_life() -> None:
    peer = started()
    for _ in range(ATTEMPTS_MAX - 1):
        peer.call(Goal.MEET, until=Action.SYNC)
        peer.core.call_failed(members_changed=True)
    peer.core.leave()
    peer.core.want(Goal.START)
    assert not peer.core.call_failed(members_changed=True), "its first failure"
    peer.core.leave()
    peer.call(Goal.START)
    peer.call(Goal.STEP, until=Action.AWAIT)
    assert peer.core.reduce_failed(members_changed=False, was_over=True), "it has not met since"


def test_the_sync_of_a_start_is_no_meeting() -> None:
    peer = started()
    peer.call(Goal.MEET, until=Action.SYNC)
    peer.core.leave()
    peer.raises_after(Goal.START, Action.SYNC)
    peer.story()
    peer.call(Goal.MEET)
    assert peer.story() == f"{MEETS} |"


def test_a_newcomer_counts_its_inner_steps_from_zero() -> None:
    peer = started(every=4)
    peer.steps(3)
    peer.core.leave()
    peer.call(Goal.START)
    assert peer.core.steps == 0


# --- A newcomer fetches while the others go on ----------------------------------------------------


def test_a_blocking_trainer_settles_before_it_moves_the_globals() -> None:
    peer = started(every=2)
    peer.joined = True
    peer.steps(2)
    assert peer.story() == f". . {BLOCKING}"
    assert peer.core.lent
    assert peer.shared.then is Then.STEPS_NOW
    peer.joined = False
    peer.steps(3)
    assert peer.story() == f". . POST SETTLE AWAIT APPLY LOAD {MEETS} | ."
    assert not peer.core.lent
    assert peer.shared.then is Then.STEPS


def test_an_overlapped_trainer_settles_before_the_average_lands() -> None:
    peer = started(overlap=1, every=2)
    peer.joined = True
    peer.steps(2)
    assert peer.story() == f". . {SENDS}"
    assert peer.core.lent
    assert peer.shared.then is Then.POST_NOW
    peer.joined = False
    peer.steps(3)
    assert peer.story() == f". SETTLE {RECEIVES} . {SENDS} . {RECEIVES}"


def test_a_meeting_settles_first() -> None:
    peer = started(every=2)
    peer.joined = True
    peer.steps(2)
    peer.story()
    peer.call(Goal.MEET)
    assert peer.story() == f"SETTLE {MEETS} |"
    assert not peer.core.lent, "between two boundaries all wait"
    assert peer.shared.then is Then.STEPS


def test_who_may_not_lend_waits_with_the_newcomer() -> None:
    peer = started(every=2, lends=False)
    peer.joined = True
    peer.steps(4)
    assert peer.story() == f". . {BLOCKING} . . {BLOCKING}"
    assert peer.shared.then is Then.STEPS


def test_what_fails_in_the_background_is_met_after_the_round() -> None:
    peer = started(every=2)
    peer.joined = True
    peer.steps(2)
    peer.joined = False
    for _ in range(2):
        goal = peer.core.inner_step()
    assert goal is Goal.STEP
    peer.call(goal, until=Action.SETTLE)
    assert peer.core.call_failed(members_changed=False)
    peer.story()
    peer.call(Goal.STEP)
    assert peer.story() == f"AWAIT APPLY LOAD {MEETS} |"


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_newcomer_that_fetched_while_the_others_went_on_is_late(overlap: int) -> None:
    then = Then.POST_NOW if overlap else Then.STEPS_NOW
    peer = Alone(Progress(3, then, 0, 30), every=4, overlap=overlap)
    assert peer.story() == ("SYNC POST |" if overlap else "SYNC |")
    assert peer.core.late
    peer.steps(1)
    assert peer.core.late
    peer.steps(1, due=True)
    assert not peer.core.late
    assert peer.story().endswith(f". {SENDS if overlap else BLOCKING}")
