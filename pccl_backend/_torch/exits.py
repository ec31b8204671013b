"""Leaves all groups when the process ends: many scripts do not call destroy_process_group.

A process that hosts the master of a fixed world waits here for the peers that still need it. After
an exception that nothing has caught it does not wait, and the run ends at once.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import sys

from pccl_backend import _C
from pccl_backend._torch import logs

__all__ = ["watch"]

_watched = 0  # id of the process whose end is watched; a forked child has another id


def watch() -> None:
    """Make sure that this process leaves its groups at its end.

    A process that `multiprocessing` has started by a fork ends without the handlers of `atexit`.
    """
    global _watched  # noqa: PLW0603
    if _watched == os.getpid():
        logs.watch()
        return
    _watched = os.getpid()
    logs.watch()  # first, so that its end comes after this one
    atexit.register(_leave)
    multiprocessing.util.Finalize(None, _leave, exitpriority=0)


def _leave() -> None:
    _C.leave_all(_has_failed())


def _has_failed() -> bool:
    """Return whether the program ends by an exception.

    `multiprocessing` calls its finalizers while the exception passes. At the end of other programs
    the interpreter has noted the exception in `sys.last_value`, except SystemExit.
    """
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None or getattr(sys, "last_value", None) is not None
