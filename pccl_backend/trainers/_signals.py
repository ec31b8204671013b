"""Delays signals while a trainer changes its state, and delivers them while it waits.

A Python signal handler can raise between any two bytecodes; the default handler of SIGINT does.
A change of several tensors takes many bytecodes, and so does a C++ call with the storage of its
result. An exception would leave such a change half done. Therefore signals wait until its end.
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
    """A `with` block that lets handlers raise only inside `wait`; no signal is lost.

    A signal that arrives outside `wait` is handled by the next `wait`, or at the end of the block.
    Handlers run only on Python's main thread; on other threads there is nothing to delay. The block
    may be entered repeatedly, also while it is already entered.

    Example:
        >>> with HeldSignals() as held:
        ...     work = post()  # posted and remembered, or neither
        ...     held.wait(work.wait)  # Ctrl-C ends this
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._noted: list[int] = []
        self._late: list[BaseException] = []  # handlers' exceptions, if the wait was over
        self._heard = False  # whether a call of wait() is under way
        self._ticket = itertools.repeat((), 0)  # consumed when the call of the last wait() begins

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
        """Make a call that may take long. It raises at most one exception of a handler.

        While the code that called `wait` catches this exception, no second one interrupts it. If a
        handler raises after the call has returned, its exception is kept for later, and the result
        is not lost. "After" begins with the last bytecode of the call. Therefore pass a
        functools.partial rather than a lambda.
        """
        done: list[T] = []
        self._ticket = itertools.repeat((), 1)
        self._heard = True
        try:
            while self._noted:
                self._handle(self._noted.pop(0), None)
            if self._late:
                raise self._late.pop()
            # No bytecode runs between the end of the call and the storage of its result in the
            # list, nor between the consumption of the ticket and the start of the call.
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
        """Whether the last `wait` began its call; False if it was interrupted before."""
        return operator.length_hint(self._ticket) == 0

    def _hold(self) -> None:
        for each in signal.valid_signals():
            handler = signal.getsignal(each)
            if callable(handler):
                self._handlers[each] = handler
        try:
            for number in self._handlers:
                signal.signal(number, self._handle)
        except BaseException:  # raised by a handler that is not replaced yet
            self._release()
            raise

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._heard:
            self._heard = False  # remains False if the handler raises
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
        """Put all handlers back, even if a restored one raises meanwhile."""
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
