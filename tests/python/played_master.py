"""PlayedMaster: the Unix socket of a master that gives the answers of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

WAIT_S = 10.0


class PlayedMaster:
    """Answers every question with `said`, which the test may change; None: not at all.

    Args:
        journal: path of its journal, which does not exist; the socket is beside it.
        said: the answer.
    """

    def __init__(self, journal: Path, said: bytes | None) -> None:
        self.journal = journal
        self.said = said
        self.asked: list[bytes] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(f"{journal}.sock")
        self._server.listen()
        self._unanswered: list[socket.socket] = []
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._server.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        for connection in self._unanswered:
            connection.close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                if self.said is None:
                    self._unanswered.append(connection)
                    continue
                with connection, contextlib.suppress(OSError):  # the one who asks may end
                    self.asked.append(connection.recv(1 << 16))
                    connection.sendall(self.said)
