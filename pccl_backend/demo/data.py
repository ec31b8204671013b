"""Text that every machine has: the sources of Python's standard library, as small integers."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

__all__ = ["SYMBOLS", "Text", "read_standard_library"]

# Symbol 0 is the end of a line, 1 to 95 are ASCII's printable characters, 96 is any other byte.
SYMBOLS = 97
OTHER = 96
# One block in VALIDATION_EVERY is held out. The blocks are spread, because modules differ a lot.
BLOCK = 2048
VALIDATION_EVERY = 20


def read_standard_library(bytes_max: int) -> bytes:
    """Return the first bytes of the standard library's modules, in alphabetical order.

    Raises:
        FileNotFoundError: this Python has no sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= bytes_max:
            break
    if not text:
        raise FileNotFoundError(f"no .py file in {folder}: install Python's standard library")
    return bytes(text[:bytes_max])


class Text:
    """A text as symbols, with a part held out for validation.

    Args:
        text: any bytes.
        context: number of symbols that a model sees at once.

    Raises:
        ValueError: the text is too short to hold anything out, or the context is too long.
    """

    def __init__(self, text: bytes, *, context: int) -> None:
        if context >= BLOCK:
            raise ValueError(f"context is {context}; it must be below {BLOCK}")
        if len(text) < BLOCK * VALIDATION_EVERY:
            raise ValueError(
                f"{len(text)} bytes of text are too few; {BLOCK * VALIDATION_EVERY} are needed"
            )
        blocks = list(torch.split(_symbols(text), BLOCK))
        self._context = context
        self._validation = torch.cat(blocks[VALIDATION_EVERY - 1 :: VALIDATION_EVERY])
        del blocks[VALIDATION_EVERY - 1 :: VALIDATION_EVERY]
        self._training = torch.cat(blocks)

    def batches(self, size: int, *, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield (input, target) forever, from random positions that the seed determines."""
        generator = torch.Generator().manual_seed(seed)
        last = len(self._training) - self._context
        while True:
            starts = torch.randint(last, (size,), generator=generator)
            yield self._windows(self._training, starts)

    def validation(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (input, target): `count` positions spread evenly over the held-out text."""
        last = len(self._validation) - self._context - 1
        return self._windows(self._validation, torch.linspace(0, last, count).long())

    def _windows(
        self, symbols: torch.Tensor, starts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = starts[:, None] + torch.arange(self._context + 1)[None, :]
        windows = symbols[places]
        return windows[:, :-1], windows[:, 1:]


def _symbols(text: bytes) -> torch.Tensor:
    table = torch.full((256,), OTHER)
    table[ord("\n")] = 0
    table[32:127] = torch.arange(1, 96)
    return table[torch.frombuffer(bytearray(text), dtype=torch.uint8).long()]
