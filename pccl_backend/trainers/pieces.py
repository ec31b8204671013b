"""Pieces: the parameters and buffers of a model, and how they are cut into fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

__all__ = ["Piece", "cut"]


@dataclass(frozen=True)
class Piece:
    """One parameter or buffer, its shape (of reals), and its place in the flat tensor."""

    name: str
    is_buffer: bool
    shape: torch.Size
    start: int
    stop: int


def cut(
    named: Mapping[str, torch.Size], buffers: Mapping[str, torch.Size], fragments: int
) -> list[list[Piece]]:
    """Cut the parameters into fragments of about equal size; the first one also gets the buffers.

    Raises:
        ValueError: there are more fragments than parameters.
    """
    if fragments > len(named):
        raise ValueError(
            f"fragments is {fragments}, and the model has {len(named)} trainable parameters: "
            "a fragment has at least one"
        )
    total = sum(shape.numel() for shape in named.values())
    parts: list[list[Piece]] = [[]]
    place, seen = 0, 0
    for left, (name, shape) in zip(range(len(named), 0, -1), named.items(), strict=True):
        must = left <= fragments - len(parts)  # each of the rest gets one parameter
        full = seen * fragments >= total * len(parts)
        if parts[-1] and len(parts) < fragments and (must or full):
            if len(parts) == 1:
                place = _append_buffers(parts[0], buffers, place)
            parts.append([])
        parts[-1].append(Piece(name, False, shape, place, place + shape.numel()))
        place += shape.numel()
        seen += shape.numel()
    if len(parts) == 1:
        _append_buffers(parts[0], buffers, place)
    return parts


def _append_buffers(pieces: list[Piece], buffers: Mapping[str, torch.Size], place: int) -> int:
    for name, shape in buffers.items():
        pieces.append(Piece(name, True, shape, place, place + shape.numel()))
        place += shape.numel()
    return place
