"""The `pccl probe` command: what a way to another host carries, with how many TCP streams.

    wire        what the two ends say to each other, and every maximum
    flow        moves bytes over streams, counts those that arrive
    server      the other end: `pccl probe --serve`
    client      measures against it
    settings    what a host's system is set to, for TCP
    advice      what the figures mean, and which settings would help (pure)
    report      the same as text (pure)
    picture     the same as a picture: alone in needing matplotlib
    command     options, signals, exit codes

Nothing here imports torch.
"""

from __future__ import annotations

from pccl_backend.probe.command import main

__all__ = ["main"]
