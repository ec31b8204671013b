"""The dialogue over torch's store that announces rank 0's master to the others.

Each rank asks with a random number of its own, and rank 0 answers under that number. If another
rank fails before all have joined, it reports the reason to rank 0. Rank 0 then informs the other
ranks, and all fail with that reason, instead of waiting for a rank that will not come. A rank 0
that cannot host the run announces that in the same way.
"""

from __future__ import annotations

import _thread
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from pccl_backend.errors import PcclError, TooFewPeersError

__all__ = ["Asker", "Run", "Teller", "look", "pauses", "tell_failure", "to_words"]

POLL_FIRST_S, POLL_S = 0.00005, 0.02  # seconds between looks into the store: first, most
TELL_S = 5.0  # seconds that a rank that fails at once waits for rank 0, to report that

# The first word of a complaint and of a failure.
_WRONG_SETTINGS = "settings"  # a ValueError
_OTHER_ERROR = "error"
_FAILED = "! "  # the reply has no place: rank 0 has failed, and the reason follows
_NOTHING = "nothing"  # no question and no reply is like this


class Run(Protocol):
    """The hosted run whose ranks wait for each other."""

    def give_up(self) -> None:
        """End the wait for ranks that will not come."""


def to_words(error: BaseException, what: str = "") -> str:
    kind = _WRONG_SETTINGS if isinstance(error, ValueError) else _OTHER_ERROR
    return f"{kind} {what}{error}"


def _from_words(words: str, what: str = "") -> Exception:
    kind, _, text = words.partition(" ")
    error_type = ValueError if kind == _WRONG_SETTINGS else PcclError
    return error_type(what + text)


def look(store: Store, key: str) -> str | None:
    """Return the value of a key, or None if there is none: one round trip to the store."""
    value = str(store.compare_set(key, _NOTHING, _NOTHING).decode())
    return None if value == _NOTHING else value


def tell_failure(store: Store, size: int, words: str, told: dict[int, str]) -> None:
    """Tell the other ranks that rank 0 has failed, until all have failed or TELL_S has passed.

    Args:
        store, size: the store and the size of the group.
        words: the reason, as text.
        told: the numbers of ranks that know it already.
    """
    waiting = set(range(1, size))
    deadline = time.monotonic() + TELL_S
    with contextlib.suppress(dist.DistError):
        for pause in pauses():
            if not waiting or time.monotonic() > deadline:
                return
            time.sleep(pause)  # between looks: Store.wait() prints a warning for each missing key
            for rank in list(waiting):
                asked = look(store, _question(rank))
                if asked is None:
                    continue
                number, complains, _ = asked.partition(" ")
                if told.get(rank) != number:
                    told[rank] = "" if complains else number  # a complaint of an earlier group
                    store.set(_reply(rank, number), _FAILED + words)
                elif complains:
                    waiting.remove(rank)


class Teller:
    """Gives every other rank the address of the run, until all have joined.

    A store may still hold entries of an earlier group with the same name, for example after destroy
    and init, or after torchrun restarted workers. Therefore each rank asks with a random number of
    its own, and the answer is stored under that number.

    A rank that cannot join adds the reason (a complaint) to its question, after it has its answer.
    A complaint that was there before the answer belongs to an earlier group. If rank 0 fails after
    its answer, it writes the reason in place of the answer.

    Attributes:
        complaint: the error to raise here, because a rank cannot join; the join was stopped. None:
            no rank has complained.
        answered: the number of each rank that has its answer. After a complaint, these ranks also
            have the complaint.
    """

    def __init__(self, store: Store, size: int, place: str, run: Run) -> None:
        self.complaint: Exception | None = None
        self._store = store
        self._size = size
        self._place = place
        self._run = run
        self.answered: dict[int, str] = {}
        self._outdated: set[str] = set()  # numbers of an earlier group
        self._stop = threading.Event()
        self._ended = threading.Event()
        if size > 1:
            # Thread.start() would wait until the thread runs, and the join would begin later.
            _thread.start_new_thread(self._run_thread, ())

    def stop(self) -> None:
        self._stop.set()
        if self._size > 1:
            self._ended.wait()

    def _run_thread(self) -> None:
        try:
            self._serve()
        finally:
            self._ended.set()

    def _serve(self) -> None:
        for pause in pauses():
            if self.complaint is not None or self._stop.wait(pause):
                break
            try:
                for rank in range(1, self._size):
                    asked = look(self._store, _question(rank))
                    if asked is not None:
                        self._answer(rank, *asked.partition(" ")[::2])
            except dist.DistError:  # the store is gone: a rank without an answer reports it
                return
        if self.complaint is not None:
            with contextlib.suppress(dist.DistError):
                for rank, number in self.answered.items():
                    self._store.set(_reply(rank, number), _FAILED + to_words(self.complaint))
            self._run.give_up()

    def _answer(self, rank: int, number: str, complaint: str) -> None:
        if self.answered.get(rank) != number:
            if complaint:
                self._outdated.add(number)
            self._store.set(_reply(rank, number), self._place)
            self.answered[rank] = number
        elif complaint and number not in self._outdated:
            self.complaint = _from_words(complaint, f"rank {rank} cannot join: ")


class Asker:
    """Asks rank 0 where the master is. An error inside the `with` block is reported to rank 0."""

    def __init__(
        self, store: Store, rank: int, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._store = store
        self._rank = rank
        self._is_over = is_over  # rank 0 will not answer any more
        self._number = secrets.token_hex(8)
        self._answer = ""

    def ask(self, timeout_s: float) -> str:
        """Return the answer of rank 0."""
        self._ask_within(timeout_s)
        if not self._answer and self._is_over():
            raise TooFewPeersError("rank 0 has given the group up before it began")
        if not self._answer:
            raise TooFewPeersError(
                f"rank {self._rank} asked in the store where rank 0 hosts the master and had no "
                f"answer within {timeout_s:g} s: did rank 0 call init_process_group?"
            )
        if self._answer.startswith(_FAILED):
            raise _from_words(self._answer.removeprefix(_FAILED))
        return self._answer

    def failure(self) -> Exception | None:
        """Return the error of rank 0, if rank 0 reported a failure after its answer; else None."""
        with contextlib.suppress(dist.DistError):  # the store is gone, and so is rank 0
            reply = look(self._store, _reply(self._rank, self._number)) or ""
            if reply.startswith(_FAILED):
                return _from_words(reply.removeprefix(_FAILED))
        return None

    def _ask_within(self, timeout_s: float) -> None:
        reply = _reply(self._rank, self._number)
        deadline = time.monotonic() + timeout_s
        self._store.set(_question(self._rank), self._number)
        for pause in pauses():
            time.sleep(pause)  # between looks, up to the deadline: Store.wait() ignores Ctrl-C
            answer = look(self._store, reply)
            if answer is not None:
                self._answer = answer
            if answer is not None or time.monotonic() > deadline or self._is_over():
                return

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        asked_in_vain = kind is TooFewPeersError and not self._answer
        if not isinstance(error, Exception) or asked_in_vain:
            return
        with contextlib.suppress(dist.DistError):  # the store is gone, and so is rank 0
            if not self._answer:
                self._ask_within(TELL_S)
            if self._answer:
                self._store.set(_question(self._rank), f"{self._number} {to_words(error)}")


def pauses() -> Iterator[float]:
    """Yield the pause before each look: short at first, because ranks often come together."""
    yield 0.0
    pause = POLL_FIRST_S
    while True:
        yield pause
        pause = min(1.5 * pause, POLL_S)


def _question(rank: int) -> str:
    return f"pccl/where_is_the_master/{rank}"


def _reply(rank: int, number: str) -> str:
    return f"pccl/the_master_is_at/{rank}/{number}"
