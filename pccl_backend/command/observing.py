"""Asks a master on any machine for snapshots of a run, as an observer.

The connection is that of a peer: TLS, and the proof of the token in PCCL_SECRET_FILE, or plain text
for a master without a keyring. The compiled program has it (endpoint.py). An observer is no peer.
Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pccl_backend._limits import SNAPSHOT_INTERVAL_MIN_S
from pccl_backend._settings import OpenRun
from pccl_backend.command.common import CommandError
from pccl_backend.command.endpoint import Endpoint

__all__ = ["snapshot", "snapshots"]


def snapshot(run: OpenRun) -> dict[str, Any]:
    """Return a snapshot of a run (master/operator/snapshot.h).

    Args:
        run: as its URL names it (`read_url`): the master's address, the run, and the token.

    Raises:
        CommandError: no master answers there, it refuses, or the run is not under way.

    Example:
        >>> snapshot(read_url("pccl://10.0.0.1/night", os.environ))["schema"]
        1
    """
    return next(_answers(run, 0))


def snapshots(run: OpenRun, *, interval: float) -> Iterator[dict[str, Any]]:
    """Yield snapshots of a run until the connection breaks, or the caller closes the generator.

    Args:
        run: as for `snapshot`.
        interval: seconds from an answer to the next question, at least SNAPSHOT_INTERVAL_MIN_S. The
            master answers later while many observe it.

    Raises:
        ValueError: the interval is too short.
        CommandError: as for `snapshot`; the caller may begin again.

    Example:
        >>> for one in snapshots(read_url("pccl://10.0.0.1/night", os.environ), interval=1):
        ...     print(one["time"])
    """
    if not interval >= SNAPSHOT_INTERVAL_MIN_S:
        raise ValueError(
            f"interval is {interval}, and must be at least {SNAPSHOT_INTERVAL_MIN_S:g} seconds"
        )
    return _answers(run, round(interval * 1000))


def _answers(run: OpenRun, milliseconds: int) -> Iterator[dict[str, Any]]:
    asked = {
        "host": run.host,
        "port": run.port,
        "run": run.run,
        "insecure": run.peer.insecure,
        "milliseconds": milliseconds,
    }
    where = f"[{run.host}]:{run.port}" if ":" in run.host else f"{run.host}:{run.port}"
    with Endpoint({"watch": asked}, [run.peer.token] if run.peer.token else []) as endpoint:
        for line in endpoint.lines():
            if "failed" in line:
                raise CommandError(_explained(where, line["failed"], line["why"]))
            answer = line.get("snapshot")
            if not isinstance(answer, dict):
                raise CommandError(
                    f"{where} did not answer as a master does: is it another program?"
                )
            yield answer
    raise CommandError(f"the connection to {where} has ended")


def _explained(where: str, kind: str, why: str) -> str:
    if kind == "no master":
        return f"{why}: does a master run there, and does a firewall let its port through?"
    if kind == "lost":
        return (
            f"the master at {where} gave no answer ({why}): it ends, is of another version, or is "
            "another program. Try again"
        )
    return why  # the text of the master, or a remedy for the token
