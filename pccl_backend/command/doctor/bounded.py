"""Calls that end in time, and that raise nothing.

A system call can block without a bound, for example a look-up of a name, or a look at a folder of a
server that is gone. So each call has a thread of its own. A thread that misses its time is left
behind, and ends with the process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

__all__ = ["gathered", "last_of"]

T = TypeVar("T")


def gathered(calls: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """Make all calls at the same time; return the results that arrive within `seconds`, by name.

    A call that raises has no result.

    Example:
        >>> gathered({"one": lambda: 1, "none": lambda: 1 / 0}, 1.0)
        {'one': 1}
    """
    results: dict[str, Any] = {}

    def run(name: str, call: Callable[[], Any]) -> None:
        with contextlib.suppress(Exception):  # whatever it is, the other results are needed
            results[name] = call()

    threads = [
        threading.Thread(target=run, args=(name, call), daemon=True) for name, call in calls.items()
    ]
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {name: results[name] for name in calls if name in results}


def last_of(values: Callable[[], Iterator[T]], seconds: float) -> T | None:
    """Return the last value that an iterator yields within `seconds`; None if there is none.

    If the iterator raises, this is the last value before.

    Example:
        >>> last_of(lambda: iter([1, 2]), 1.0)
        2
    """
    last: list[T] = []

    def run() -> None:
        for value in values():
            last[:] = [value]

    gathered({"": run}, seconds)
    return last[0] if last else None
