"""Pieces: the parameters and buffers of a model, and how they are cut into fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

__all__ = ["Piece", "cut", "is_counter", "trainable"]


@dataclass(frozen=True)
class Piece:
    """One parameter or buffer of the model, and its place in the flat tensor."""

    name: str
    is_buffer: bool
    shape: torch.Size
    start: int
    stop: int


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the model's trainable parameters by name.

    Raises:
        ValueError: the model has none.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("the model has no trainable parameter")
    return named


def is_counter(buffer: torch.Tensor) -> bool:
    """Return whether it is an integer buffer, of which peers take the greatest."""
    kinds = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    return buffer.dtype in kinds


def cut(
    named: Mapping[str, torch.Tensor], buffers: Mapping[str, torch.Tensor], fragments: int
) -> list[list[Piece]]:
    """Cut the parameters into fragments of about equal size; the buffers go to the first."""
    if fragments > len(named):
        raise ValueError(
            f"fragments is {fragments}, and the model has {len(named)} trainable parameters: "
            "a fragment has at least one"
        )
    total = sum(tensor.numel() for tensor in named.values())
    parts: list[list[Piece]] = [[]]
    place, seen = 0, 0
    for left, (name, tensor) in zip(range(len(named), 0, -1), named.items(), strict=True):
        must = left <= fragments - len(parts)  # each of the rest gets one parameter
        full = seen * fragments >= total * len(parts)
        if parts[-1] and len(parts) < fragments and (must or full):
            if len(parts) == 1:
                place = _append_buffers(parts[0], buffers, place)
            parts.append([])
        parts[-1].append(Piece(name, False, tensor.shape, place, place + tensor.numel()))
        place += tensor.numel()
        seen += tensor.numel()
    if len(parts) == 1:
        _append_buffers(parts[0], buffers, place)
    return parts


def _append_buffers(pieces: list[Piece], buffers: Mapping[str, torch.Tensor], place: int) -> int:
    for name, tensor in buffers.items():
        pieces.append(Piece(name, True, tensor.shape, place, place + tensor.numel()))
        place += tensor.numel()
    return place
