"""Signals are held back while a trainer changes its state, and heard while it waits.

A signal handler of Python may raise between any two bytecodes: KeyboardInterrupt is one that does.
Several tensors cannot be changed together in one bytecode, nor can a C++ call's result be stored
in the one that made it. So nothing may be raised in between.
"""

from __future__ import annotations

import itertools
import operator
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

__all__ = ["HeldSignals"]

T = TypeVar("T")


class HeldSignals:
    """Inside its `with` block handlers raise in `wait` alone; what came elsewhere is not lost.

    A signal that arrives outside `wait` is handled by the next `wait`, or at the end of the block.
    Handlers run on Python's main thread only: on others there is nothing to hold. It may be entered
    again and again, also while it is entered.

    Example:
        >>> with HeldSignals() as held:
        ...     work = post()  # posted and remembered, or neither
        ...     held.wait(work.wait)  # Ctrl-C ends this
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._noted: list[int] = []
        self._late: list[BaseException] = []  # of handlers, raised when a wait was over
        self._heard = False  # a call of wait() is under way
        self._ticket = itertools.repeat((), 0)  # used up when the call of the last wait() began

    def __enter__(self) -> HeldSignals:
        if self._depth == 0:
            self._handlers = {}
            if threading.current_thread() is threading.main_thread():
                self._hold()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def wait(self, call: Callable[[], T]) -> T:
        """Make a call that may take long. One exception of a handler at most comes out of it.

        The code that catches it is not interrupted by another. An exception that comes when
        the call has returned is kept for later: the result is not lost to it. That holds to the
        last bytecode of the call itself; hence pass a functools.partial rather than a lambda.
        """
        done: list[T] = []
        self._ticket = itertools.repeat((), 1)
        self._heard = True
        try:
            while self._noted:
                self._handle(self._noted.pop(0), None)
            if self._late:
                raise self._late.pop()
            # There is no bytecode between the end of the call and its result's being in the list,
            # nor between its beginning and the ticket's being used up.
            done.extend(itertools.starmap(call, self._ticket))
            self._heard = False
        except BaseException as error:
            self._heard = False
            if not done:
                raise
            self._late.append(error)
        return done[0]

    @property
    def begun(self) -> bool:
        """Whether the last `wait` came to make its call, rather than being interrupted before."""
        return operator.length_hint(self._ticket) == 0

    def _hold(self) -> None:
        for each in signal.valid_signals():
            handler = signal.getsignal(each)
            if callable(handler):
                self._handlers[each] = handler
        try:
            for number in self._handlers:
                signal.signal(number, self._handle)
        except BaseException:  # of a handler that is not held yet
            self._release()
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._heard:
            self._heard = False  # stays so if the handler raises
            self._handlers[number](number, frame)
            self._heard = True
        elif number not in self._noted:
            self._noted.append(number)

    def _release(self) -> None:
        try:
            self._restore(list(self._handlers))
        finally:
            self._drain()

    def _restore(self, numbers: list[int]) -> None:
        """Put the handlers back, all of them, though one that is back may raise meanwhile."""
        if not numbers:
            return
        try:
            signal.signal(numbers[-1], self._handlers[numbers[-1]])
            numbers.pop()
        finally:
            self._restore(numbers)

    def _drain(self) -> None:
        while self._noted:
            number = self._noted.pop(0)
            try:
                self._handlers[number](number, None)
            finally:
                self._drain()
        if self._late:
            raise self._late.pop()
