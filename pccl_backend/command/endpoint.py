"""The compiled part of `pccl probe`, `doctor` and `status URL`: starts `pccl-probe`, reads it.

`pccl-probe` has the connections, in C++, as a peer has them: TLS, and the proof of a token, exist
there only. csrc/probe/main.cc shows its input and its output. Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from pccl_backend._tokens import Token
from pccl_backend.command.common import CommandError

__all__ = ["Endpoint"]

PROGRAM = Path(__file__).parents[1] / "bin" / "pccl-probe"
END_TIMEOUT_S = 5.0


class Endpoint:
    """A running `pccl-probe`, which ends with the block.

    Example:
        >>> with Endpoint({"watch": asked}, [token]) as endpoint:
        ...     snapshot = next(endpoint.lines())["snapshot"]

    Args:
        request: its task: `{"serve": ...}`, `{"measure": ...}`, `{"greet": ...}` or
            `{"watch": ...}`.
        tokens: the tokens of all clients, or the one of this client; none: plain text.

    Raises:
        CommandError: the program is missing.
        OSError: the system refuses to start it.
    """

    def __init__(self, request: Mapping[str, Any], tokens: Iterable[Token]) -> None:
        if not PROGRAM.exists():
            raise CommandError(
                f"{PROGRAM} is missing, so this installation is incomplete; build it with "
                "`make setup`, or `pip install --no-build-isolation .` in the source folder"
            )
        self._process = subprocess.Popen(
            [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        # A secret passes through the pipe alone: others can see arguments and environment.
        line = json.dumps({**request, "tokens": [token.text() for token in tokens]})
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield its output, until it ends.

        Raises:
            CommandError: it ended without a reason, or a line is nested too deeply.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                yield json.loads(line)
            except RecursionError:  # a part of the line comes from another machine
                raise CommandError("the answer is nested too deeply: who is behind it?") from None
        code = self._process.wait(END_TIMEOUT_S)
        if code not in (0, 1):
            raise CommandError(f"{PROGRAM} ended with code {code}: its errors are above")

    def close(self) -> None:
        """End it: it closes its connections when its input ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # it has ended, with a part of the request unread
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_TIMEOUT_S)
        self._process.stdout.close()
