"""The `pccl probe` command: measures how much a path carries, by number of TCP streams.

    client      measures against a server, and explains what fails
    settings    a host's system settings for TCP
    advice      conclusions from the figures, and settings that would help (pure)
    report      the figures and the advice as text (pure)
    picture     the figures as a picture; only this module needs matplotlib
    command     options, signals, exit codes

Nothing here imports torch.
"""

from __future__ import annotations

from pccl_backend.probe.command import main

__all__ = ["main"]
