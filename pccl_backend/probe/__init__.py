"""The `pccl probe` command: measures how much a path carries, by number of TCP streams.

    wire        the protocol of the two ends, and every limit
    flow        moves bytes over streams and counts the arriving ones
    server      the other end: `pccl probe --serve`
    client      measures against a server
    settings    a host's system settings for TCP
    advice      conclusions from the figures, and settings that would help (pure)
    report      the same as text (pure)
    picture     the same as a picture; only this module needs matplotlib
    command     options, signals, exit codes

Nothing here imports torch.
"""

from __future__ import annotations

from pccl_backend.probe.command import main

__all__ = ["main"]
