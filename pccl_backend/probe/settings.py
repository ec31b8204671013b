"""A host's system settings for TCP: read here, or received from the other end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Buffers", "HostSettings", "read"]

FOLDER = Path("/proc/sys/net/ipv4")
NAMES = (
    "tcp_congestion_control",
    "tcp_available_congestion_control",
    "tcp_allowed_congestion_control",
    "tcp_wmem",
    "tcp_rmem",
    "tcp_slow_start_after_idle",
)
TEXT_MAX = 200
WORD = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """tcp_wmem or tcp_rmem: a connection's least, first and largest buffer, in bytes."""

    least: int
    first: int
    most: int


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of one host; an unknown setting is None or empty."""

    congestion: str = ""
    available: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    wmem: Buffers | None = None
    rmem: Buffers | None = None
    slow_start_after_idle: bool | None = None

    @classmethod
    def from_texts(cls, texts: object) -> HostSettings:
        """Return the settings from the result of read(). An invalid text counts as unknown."""
        told = texts if isinstance(texts, Mapping) else {}
        words = {name: _words(told.get(name)) for name in NAMES}
        slow_start = words["tcp_slow_start_after_idle"]
        return cls(
            congestion=" ".join(words["tcp_congestion_control"][:1]),
            available=words["tcp_available_congestion_control"],
            allowed=words["tcp_allowed_congestion_control"],
            wmem=_buffers(words["tcp_wmem"]),
            rmem=_buffers(words["tcp_rmem"]),
            slow_start_after_idle=slow_start != ("0",) if slow_start else None,
        )


def read(folder: Path = FOLDER) -> dict[str, str]:
    """Return the text of every setting that this host exposes."""
    texts = {}
    for name in NAMES:
        try:
            texts[name] = (folder / name).read_text()[:TEXT_MAX].strip()
        except (OSError, UnicodeError):
            continue
    return texts


def _words(text: object) -> tuple[str, ...]:
    if not isinstance(text, str) or len(text) > TEXT_MAX:
        return ()
    # These words become part of commands that the user may type.
    return tuple(word for word in text.split() if WORD.fullmatch(word))


def _buffers(words: tuple[str, ...]) -> Buffers | None:
    if len(words) != 3 or not all(
        word.isascii() and word.isdigit() and len(word) < 16 for word in words
    ):
        return None
    least, first, most = map(int, words)
    return Buffers(least=least, first=first, most=most)
