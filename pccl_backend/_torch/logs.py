"""The log of the compiled part goes to Python's logging, logger "pccl", once that is configured.

The threads of pccl put records into a bounded queue (csrc/base/log_queue.h), and never call Python.
One daemon thread takes them. While neither this logger nor one above it has a handler, the lines go
to stderr instead, without Python: a process that hangs with the GIL held still writes them. They
also do so in a forked child until it joins a run, and at the end of the process.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import threading

from pccl_backend import _C

__all__ = ["watch"]

LOOK_S = 1.0  # between two looks at whether logging is configured
END_S = 1.0  # the wait for a slow handler at the end of the process
LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

_logger = logging.getLogger("pccl")
_bridge: Bridge | None = None


class Bridge:
    """Takes the records of this process to `logging`."""

    def __init__(self) -> None:
        self.pid = os.getpid()  # a forked child has another one, and no thread
        self._stops = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="pccl-logging", daemon=True)

    def start(self) -> None:
        self.look()
        self._thread.start()

    def look(self) -> bool:
        """Open the queue if logging is configured, otherwise close it; return whether it is."""
        with self._lock:
            configured = _logger.hasHandlers() and not self._stops.is_set()
            _C.route_logs(configured)
        return configured

    def stop(self) -> None:
        """Deliver what waits. Later lines go to stderr."""
        if self.pid != os.getpid() or self._stops.is_set():
            return
        with self._lock:
            self._stops.set()
            rest = _C.close_logs()
        self._thread.join(END_S)
        for record in rest:
            deliver(record)

    def _run(self) -> None:
        while not self._stops.is_set():
            if self.look():
                for record in _C.take_logs(LOOK_S):
                    deliver(record)
            else:
                self._stops.wait(LOOK_S)


def deliver(record: _C.LogRecord) -> None:
    """Pass a record to the handlers, or to stderr if there are none or one of them raises."""
    level = LEVELS[record.level]
    if not _logger.hasHandlers():
        return _C.write_log(record)
    if not _logger.isEnabledFor(level):
        return None
    extra = {
        name: getattr(record, name) for name in ("event", "run", "group", "peer", "rank", "epoch")
    }
    made = _logger.makeRecord(_logger.name, level, "pccl", 0, record.message, (), None, extra=extra)
    made.created = record.created
    made.msecs = round(1000 * (record.created % 1))
    try:
        _logger.handle(made)
    except Exception:  # noqa: BLE001
        _C.write_log(record)
    return None


def watch() -> None:
    """Let the log of this process go to `logging` from now on, if that is configured."""
    global _bridge  # noqa: PLW0603
    if _bridge is not None and _bridge.pid == os.getpid():
        _bridge.look()
        return
    _bridge = Bridge()
    _bridge.start()
    atexit.register(_bridge.stop)
    # After pccl_backend._torch.exits, whose lines are part of the log.
    multiprocessing.util.Finalize(None, _bridge.stop, exitpriority=-1)
