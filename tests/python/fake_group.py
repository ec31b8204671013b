"""A group of trainers' cores in one thread, with faults from a seed.

Each peer has the core that ships. Instead of tensors it holds sets: an inner step adds a new token
to the peer's own set, a pseudo-gradient is the set of tokens that it sends, and the global
parameters are the set of all tokens that were ever applied. So a token that is applied twice, or
never, shows.

The group behaves as a real one with PCCL_ON_PEER_LOSS=raise: an all-reduce ends alike for all;
joint calls are made by all in the same order; a loss breaks the epoch until update_topology. While
newcomers download the shared state, the others go on, if their cores say so; a loss meanwhile makes
that sync fail for all, and the group does not record it. A member that is removed comes back with
its data, as a newcomer. A peer is a generator that yields whenever it waits, and the seed chooses
the peer that continues.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from pccl_backend.trainers.core import Core
from pccl_backend.trainers.stages import Action, Delta, Goal

Token = tuple[str, int]
Tokens = frozenset[Token]
Wait = Generator[None, None, Any]


class LostError(Exception):
    """A member was lost, or membership has changed."""


class FailedError(Exception):
    """The call failed for all members, for another reason."""


class StoppedError(Exception):
    """This peer alone was interrupted."""


class KickedError(Exception):
    """This peer was removed from the group."""


@dataclass
class Reduce:
    """An all-reduce; it commits when all members have posted."""

    posted: dict[str, Tokens] = field(default_factory=dict)
    result: Tokens | None = None
    error: type[Exception] | None = None

    @property
    def ended(self) -> bool:
        return self.result is not None or self.error is not None


@dataclass
class Joint:
    """A joint call; it ends when all members have made it."""

    kind: Action
    offers: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    then: dict[str, Action | None] = field(default_factory=dict)  # the next action of each peer
    error: type[Exception] | None = None
    joined: bool = False  # UPDATE: whether it has admitted somebody
    downloading: set[str] = field(default_factory=set)  # SYNC: members that have yet to receive it
    record: tuple[int, Any] = (0, None)  # SYNC: the content agreed before
    trained: frozenset[str] = frozenset()  # SYNC: members that had agreed on it


class Group:
    """The members, their operations and the record of the shared state."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.members: list[str] = []
        self.pending: list[str] = []
        self.dead: set[str] = set()
        self.kicked: set[str] = set()
        self.trained: set[str] = set()  # members that have agreed on a state
        self.broken: set[str] = set()  # members that have to call update_topology
        self.reduces: list[Reduce] = []
        self.posted: Counter[str] = Counter()
        self.joint: Joint | None = None
        self.record: tuple[int, Any] = (0, None)
        self.stalls = 0
        self.syncs: list[Joint] = []

    # --- What peers call --------------------------------------------------------------------------

    def post(self, name: str, tokens: Tokens) -> tuple[Reduce, bool]:
        """Return the operation, and whether it had ended before."""
        self.require(name)
        if name in self.broken:
            raise LostError
        number = self.posted[name]
        self.posted[name] += 1
        while len(self.reduces) <= number:
            self.reduces.append(Reduce())
        reduce = self.reduces[number]
        over = reduce.ended
        reduce.posted[name] = tokens
        self._settle(reduce)
        return reduce, over

    def require(self, name: str) -> None:
        """Raise KickedError if this member was removed."""
        if name in self.kicked:
            raise KickedError

    def error_of(self, name: str, error: type[Exception]) -> type[Exception]:
        """Return the error of a failed action of this member."""
        return KickedError if name in self.kicked else error

    def call(self, name: str, kind: Action, offer: Any) -> Joint:
        self.require(name)
        if name in self.broken and kind is Action.SYNC:
            raise LostError
        if self.joint is None:
            self.joint = Joint(kind)
        joint = self.joint
        if joint.kind is not kind:
            self._fail(FailedError)
            raise FailedError
        joint.offers[name] = offer
        self._end_joint()
        return joint

    def give_up(self, joint: Joint) -> None:
        """A caller was interrupted: the call fails for all."""
        if self.joint is joint:
            self._fail(FailedError)

    # --- What happens to the group ----------------------------------------------------------------

    def kick(self, name: str) -> None:
        self.kicked.add(name)
        self.lose(name)

    def lose(self, name: str) -> None:
        self.dead.add(name)
        if name in self.pending:
            self.pending.remove(name)
        if name not in self.members:
            return
        self._fail_sync()
        self.broken |= set(self.alive)
        for reduce in self.reduces:
            if reduce.ended:
                continue
            # on_loss="keep" finishes the operations that the lost member had begun. A removed
            # member does not hear of it, so it would bring its contribution again.
            if name in reduce.posted and set(reduce.posted) >= set(self.alive) and self.alive:
                stays = name not in self.kicked and self.chance.random() < 0.5
                kept = [n for n in reduce.posted if n not in self.dead or (n == name and stays)]
                reduce.result = frozenset().union(*(reduce.posted[n] for n in kept))
            else:
                reduce.error = LostError
        if self.joint is not None:
            if self.joint.kind is Action.SYNC or not self.alive:
                self._fail(LostError)
            else:
                self.joint.offers.pop(name, None)
                self._end_joint()

    def _fail_sync(self) -> None:
        """End the SYNC that some still download: it has failed for all."""
        for sync in self.syncs[-1:]:
            if sync.downloading:
                sync.error, self.record = LostError, sync.record
                self.trained = set(sync.trained)
                sync.downloading.clear()

    def found(self) -> None:
        """Everybody has left, and all that were members come back."""
        self.members, self.pending = self.pending, []
        self.broken = set()
        self.reduces, self.joint = [], None
        self.posted.clear()

    def time_out(self) -> bool:
        """End what somebody waits for; return whether there was something."""
        waiting = [r for r in self.reduces if not r.ended and r.posted]
        if not waiting and self.joint is None:
            return False
        self.stalls += 1
        if waiting and (self.joint is None or self.chance.random() < 0.5):
            self.chance.choice(waiting).error = FailedError
        else:
            self._fail(FailedError)
        return True

    @property
    def holders(self) -> list[str]:
        """Members with the agreed content, also if a SYNC under way fails."""
        unfinished = bool(self.syncs) and bool(self.syncs[-1].downloading)
        trained = self.syncs[-1].trained if unfinished else self.trained
        return [name for name in self.alive if name in trained]

    @property
    def alive(self) -> list[str]:
        return [name for name in self.members if name not in self.dead]

    def _settle(self, reduce: Reduce) -> None:
        if not reduce.ended and set(reduce.posted) >= set(self.members):
            reduce.result = frozenset().union(*reduce.posted.values())

    def _fail(self, error: type[Exception]) -> None:
        assert self.joint is not None
        self.joint.error, self.joint = error, None

    def _end_joint(self) -> None:
        joint = self.joint
        assert joint is not None
        if set(joint.offers) < set(self.alive):
            return
        self.joint = None
        if joint.kind is Action.UPDATE:
            joint.joined = bool(self.pending)
            changed = bool(self.pending) or len(self.alive) < len(self.members)
            self.members = self.alive + self.pending
            self.pending = []
            self.broken = set()
            if changed:
                for reduce in self.reduces:
                    reduce.error = reduce.error or (None if reduce.ended else LostError)
                self.reduces = []
                self.posted.clear()
            joint.result = True
        else:
            if not self._may_follow(joint.offers):
                joint.error = FailedError
                return
            joint.record, joint.trained = self.record, frozenset(self.trained)
            joint.result = self._elect(joint.offers)
            joint.downloading = {
                name for name, (_, content) in joint.offers.items() if content != joint.result[1]
            }
            self.trained |= set(joint.offers)
            self.syncs.append(joint)

    def _may_follow(self, offers: dict[str, Any]) -> bool:
        """Return whether a member counts, or a newcomer holds the record or what follows it."""
        revision, content = self.record
        next_ones = [offer for offer in offers.values() if offer[0] == revision + 1]
        known = content is None or (revision, content) in offers.values()
        return bool(self.trained & set(offers)) or known or bool(next_ones)

    def _elect(self, offers: dict[str, Any]) -> Any:
        """The highest revision wins; then what most members offer. Newcomers do not count."""
        counted = [offers[name] for name in offers if name in self.trained] or [*offers.values()]
        top = max(revision for revision, _ in counted)
        assert top <= self.record[0] + 1, "a member went on without a sync"
        later = [name for name, (revision, _) in offers.items() if revision > top]
        assert not later, f"{later} would be removed: they bring a later revision"
        best = Counter(content for revision, content in counted if revision == top)
        winner = best.most_common(1)[0][0]
        parameters = {content[1] for revision, content in counted if revision == top}
        if top == self.record[0] and self.record[1] is not None:
            assert winner == self.record[1], "the content changed, the revision did not"
        elif self.record[1] is not None:
            assert len(parameters) == 1, "hashes differ after an outer step"
        self.record = (top, winner)
        return self.record


class Peer:
    """One trainer: the core that ships, sets in place of tensors, and a user.

    Args:
        name: its name.
        group: the group.
        settings: of the core; with `carry`, nothing learned is dropped.
        faults: chance of an exception at each call.
    """

    def __init__(
        self, name: str, group: Group, settings: dict[str, Any], *, carry: bool, faults: float
    ) -> None:
        self.name = name
        self.member = name  # of its present membership
        self._group = group
        self._chance = group.chance
        self._fragments = settings["fragments"]
        self._carry = carry
        self._faults = faults
        self.core = Core(**settings)
        self.theta: list[Tokens] = [frozenset()] * self._fragments
        self.learned: list[set[Token]] = [set() for _ in range(self._fragments)]
        self.taken = 0
        self.delta: Tokens = frozenset()
        self.mean: Tokens = frozenset()
        self._work: Reduce | None = None
        self._lent: Joint | None = None  # a SYNC that goes on in the background
        self._over = False
        self.raised = 0
        self.applied: list[int] = []  # rounds, as they were applied
        self.sent = 0  # rounds that were applied or fly, when the last call returned

    def live(self, rounds: int) -> Wait:
        """Join, train until the run has had this number of rounds, end."""
        yield from self._until_done(Goal.START)
        goal: Goal | None = Goal.STEP
        # All decide alike only at a boundary: a round in flight lands at each peer's own time.
        while goal is not Goal.STEP or self.core.progress.outer_steps < rounds:
            goal = self._inner_step()
            if goal is not None:
                yield from self._until_done(goal)
            yield
        if not self.core.blocking:
            yield from self._until_done(Goal.MEET)

    def check(self) -> None:
        """Each token is applied once, or still here."""
        assert self.applied == sorted(set(self.applied)), "a round was applied twice"
        for fragment in range(self._fragments):
            mine = {token for token in self.theta[fragment] if token[0] == self.name}
            here = set(self.learned[fragment])
            # Until LOAD, the pseudo-gradient of a blocking trainer also lies in the local copy.
            if self.core.delta in (Delta.OWN, Delta.FLYING) and fragment == self.core.fragment:
                here |= self.delta
            assert not mine & here or self.core.delta is Delta.APPLIED
            if self._carry and self.core.delta is not Delta.MEAN:
                assert len(mine | here) == self.taken, "a token was lost"

    def _inner_step(self) -> Goal | None:
        self.taken += 1
        for learned in self.learned:
            learned.add((self.name, self.taken))
        landed = self._work is not None and self._work.ended
        due = self.core.late and self._chance.random() < 0.5
        return self.core.inner_step(due=due, landed=landed)

    def _until_done(self, goal: Goal) -> Wait:
        """Make a call, and repeat it as long as it raises, as a user would."""
        while True:
            try:
                yield from self._run(goal)
                self._end_call(goal)
            except (LostError, FailedError, StoppedError):
                self.raised += 1
            except KickedError:
                self.raised += 1
                yield from self._come_back()
                goal = Goal.START
            else:
                return
            if goal is not Goal.START and self._chance.random() < 0.5:
                next_goal = self._inner_step()
                goal = next_goal if next_goal is not None else goal
            yield

    def _come_back(self) -> Wait:
        """Leave as the trainer does, and join again."""
        core = self.core
        core.end_call()
        try:
            while core.delta in (Delta.FLYING, Delta.MEAN, Delta.APPLIED):
                core.want(Goal.RECEIVE)
                action = core.next()
                assert action is not None
                yield from self._carry_out(action)
            if self.core.lent:
                yield from self._settle()
        except (KickedError, LostError, FailedError, StoppedError):
            pass
        if core.delta in (Delta.OWN, Delta.FLYING) and not core.blocking:
            self.learned[core.fragment] |= self.delta  # it is still in the local copy
        self._work = self._lent = None
        core.leave()
        self.member += "'"
        self._group.pending.append(self.member)
        yield

    def _end_call(self, goal: Goal) -> None:
        stepped = goal is Goal.STEP
        self.core.end_call()
        sent = self.core.progress.outer_steps + (self.core.delta is Delta.FLYING)
        if goal is not Goal.START:
            assert sent == self.sent + stepped, "each call of step is one round"
        self.sent = sent

    def _run(self, goal: Goal) -> Wait:
        self.core.want(goal)
        while (action := self.core.next()) is not None:
            self._maybe_raise()
            yield from self._carry_out(action)
            self.check()
            self._maybe_raise()

    def _maybe_raise(self) -> None:
        if self._chance.random() < self._faults:
            raise StoppedError

    def _carry_out(self, action: Action) -> Wait:
        match action:
            case Action.TURN:
                self._turn()
            case Action.POST:
                self._post()
            case Action.AWAIT:
                yield from self._await()
            case Action.APPLY:
                self._apply()
                self.core.applied(inner_steps=0)
            case Action.LOAD:
                self._load()
            case Action.UPDATE | Action.SYNC:
                yield from self._meet(action)
            case Action.SETTLE:
                yield from self._settle()

    def _turn(self) -> None:
        fused = self.core.fused
        if fused:
            self._apply()
        fragment = (self.core.progress.outer_steps + fused) % self._fragments
        self.delta = frozenset(self.learned[fragment])
        self.learned[fragment] = set()
        self.core.turned(inner_steps=0 if fused else None)

    def _post(self) -> None:
        if self.core.blocking:
            self.delta = frozenset(self.learned[self.core.fragment])
        elif self.core.blank:
            self.delta = frozenset()
        self.core.posting()
        try:
            self._work, self._over = self._group.post(self.member, self.delta)
        except (LostError, KickedError) as error:
            self._reduce_failed(type(error))
        else:
            self.core.did(Action.POST)

    def _await(self) -> Wait:
        work = self._work
        assert work is not None
        while not work.ended:
            self._maybe_raise()
            yield
        if work.error is not None:
            self._reduce_failed(self._group.error_of(self.member, work.error))
            return
        assert work.result is not None
        self.mean, self._work = work.result, None
        self.core.did(Action.AWAIT)

    def _reduce_failed(self, error: type[Exception]) -> None:
        self._work = None
        if self.core.reduce_failed(members_changed=error is LostError, was_over=self._over):
            raise error

    def _apply(self) -> None:
        fragment = self.core.fragment
        assert self._lent is None, "what is lent was written"
        assert not self.mean & self.theta[fragment], "a token was applied twice"
        self.theta[fragment] |= self.mean
        self.applied.append(self.core.progress.outer_steps)

    def _load(self) -> None:
        fragment = (self.core.progress.outer_steps - 1) % self._fragments
        if self.core.blocking:
            self.learned[fragment] -= self.delta
        elif not self._carry:
            self.learned[fragment] = set()
        self.core.did(Action.LOAD)

    def _meet(self, action: Action) -> Wait:
        assert self.core.delta in (Delta.FREE, Delta.OWN), "something flies during a meeting"
        offer: Any = None
        if action is Action.SYNC:
            revision, progress = self.core.offer()
            offer = (revision, (progress, tuple(self.theta)))
        joint = None
        try:
            joint = self._group.call(self.member, action, offer)
            while joint.result is None and joint.error is None:
                self._maybe_raise()
                self._group.require(self.member)
                yield
            if joint.error is not None:
                raise self._group.error_of(self.member, joint.error)
            if action is Action.SYNC:
                yield from self._receive(joint)
        except LostError:
            if self.core.call_failed(members_changed=True):
                raise
        except (FailedError, StoppedError, KickedError) as error:
            alone = isinstance(error, StoppedError)
            if alone and joint is not None and joint.result is None:
                self._group.give_up(joint)
            self.core.call_failed(members_changed=False)
            raise
        else:
            self._met(action, joint)

    def _receive(self, joint: Joint) -> Wait:
        """Wait until this peer has the state; without `may_go_on`, until all have it."""
        while self.member in joint.downloading:
            if self._chance.random() < 0.1:
                joint.downloading.discard(self.member)
            yield
        if joint.error is None and self.core.may_go_on:
            self._lent = joint
            return
        while joint.downloading:
            yield
        if joint.error is not None:
            raise self._group.error_of(self.member, joint.error)

    def _settle(self) -> Wait:
        joint = self._lent
        assert joint is not None
        while joint.downloading:
            self._maybe_raise()
            yield
        self._lent = None
        if joint.error is None:
            self.core.did(Action.SETTLE)
            return
        error = self._group.error_of(self.member, joint.error)
        if self.core.call_failed(members_changed=error is LostError):
            raise error

    def _met(self, action: Action, joint: Joint) -> None:
        if action is Action.UPDATE:
            self.core.updated(joined=joint.joined)
            return
        revision, (progress, theta) = joint.result
        assert not self.core.started or tuple(self.theta) == theta, "hashes differ"
        self.theta = list(theta)
        goes_on = self._lent is joint
        self.core.synced(revision, progress, goes_on=goes_on)
        if self.core.blank:
            self.delta = frozenset()
        joint.then[self.member] = self.core.next()


class Run:
    """One seed: peers that train, and what happens to them."""

    def __init__(self, seed: int, make: Callable[[random.Random], dict[str, Any]]) -> None:
        self._chance = random.Random(seed)
        self._options = make(self._chance)
        self.group = Group(self._chance)
        self.peers: dict[str, Peer] = {}
        self._running: dict[str, Wait] = {}
        self._idle = 0
        # Whether a peer has ended, so that no other peer may hold the last agreed content.
        self._over = False
        for _ in range(self._options["founders"]):
            self._add()
        self.group.members = list(self.peers)

    def to_its_end(self) -> None:
        for _ in range(200_000):
            everybody_left = not self.group.alive and len(self.group.pending) == len(self._running)
            if everybody_left and self.group.pending and not self._over:
                self.group.found()
            if not self._active or (self._over and not self.group.holders):
                return
            self._disturb()
            if self._active:
                self._go_on(self._chance.choice(self._active))
        raise AssertionError("the run has not come to its end")

    @property
    def _active(self) -> list[str]:
        """Names of the peers that do not wait to be admitted."""
        pending = self.group.pending
        return [name for name in self._running if self.peers[name].member not in pending]

    def _add(self) -> str:
        name = f"peer {len(self.peers)}"
        arguments = {key: self._options[key] for key in ("settings", "carry", "faults")}
        self.peers[name] = Peer(name, self.group, **arguments)
        self._running[name] = self.peers[name].live(self._options["rounds"])
        return name

    def _happens(self, event: str) -> bool:
        return self._chance.random() < self._options[event]

    def _disturb(self) -> None:
        group, chance = self.group, self._chance
        if self._happens("joins") and len(self.peers) < 8 and group.alive:
            group.pending.append(self._add())
        if self._happens("losses") and len(group.holders) > 1:
            lost = chance.choice(group.alive)
            group.lose(lost)
            del self._running[next(n for n in self._running if self.peers[n].member == lost)]
        if self._happens("kicks") and group.record[0] > 0:  # no peer begins with revision 0 again
            alone = group.alive and chance.random() < 0.9
            kicked = [chance.choice(group.alive)] if alone else group.alive
            for member in kicked:
                group.kick(member)
        if self._happens("timeouts"):
            group.time_out()

    def _go_on(self, name: str) -> None:
        before = self._state()
        try:
            next(self._running[name])
        except StopIteration:
            del self._running[name]
            self._over = True
            self.group.lose(self.peers[name].member)
        self._idle = self._idle + 1 if self._state() == before else 0
        if self._running and self._idle > 200 * len(self._running):
            assert self.group.time_out(), f"nobody goes on: {self._describe()}"
            raised = sum(peer.raised for peer in self.peers.values())
            assert raised or self._options["timeouts"], "they wait for each other"
            self._idle = 0

    def check(self) -> None:
        """After a SYNC, newcomers act as the members do."""
        if self._options["faults"] or self._options["timeouts"]:
            return
        for joint in self.group.syncs:
            members = {then for name, then in joint.then.items() if name in joint.trained}
            newcomers = {then for name, then in joint.then.items() if name not in joint.trained}
            held_up = members and not newcomers <= members
            assert not held_up, f"a newcomer holds the others up: {joint}"

    def _describe(self) -> str:
        texts = [
            f"{name}: {vars(self.peers[name].core)} work {self.peers[name]._work}"
            for name in self._active
        ]
        return "\n".join([*texts, f"members {self.group.members}, broken {self.group.broken}"])

    def _state(self) -> object:
        group, peers = self.group, self.peers.values()
        cores = tuple((p.core.delta, p.core.steps, p.raised, p.core.next()) for p in peers)
        return cores, len(group.members), len(group.pending), group.joint is None, group.stalls


def simulate(seed: int, make: Callable[[random.Random], dict[str, Any]]) -> list[Peer]:
    """Run one seed; return the peers that are left."""
    run = Run(seed, make)
    run.to_its_end()
    run.check()
    return [peer for peer in run.peers.values() if peer.member not in run.group.pending]
