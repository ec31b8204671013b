"""Checkpoints of a trainer: its shared state, with the hash by which a run resumes from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pccl_backend.trainers.engine import Engine

__all__ = ["check", "load", "save"]

KEYS = ("tensors", "revision", "hash", "digest")


def save(engine: Engine) -> dict[str, Any]:
    """Return the shared state; see `DiLoCo.state_dict`."""
    tensors = dict(engine.state)
    info = engine.info
    return {
        "tensors": tensors,
        "revision": engine.state.revision,
        "hash": None if info is None else f"{info.hash:016x}",
        "digest": digest_of(tensors),
    }


def check(state: Mapping[str, Any]) -> None:
    """Check that the tensors are those that were saved.

    Raises:
        ValueError: a key is missing, or the digest differs.
    """
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise ValueError(f"the state has no {missing[0]!r}: it is not from state_dict()")
    digest = digest_of(state["tensors"])
    if digest != state["digest"]:
        raise ValueError(
            f"the state is damaged: its tensors have the digest {digest}, and {state['digest']} "
            f"was saved with them, at revision {state['revision']}. Take another checkpoint"
        )


def load(engine: Engine, state: Mapping[str, Any]) -> None:
    """Copy a state that was checked into a trainer that has not started.

    Raises:
        ValueError: names, dtypes or shapes differ from the trainer's.
    """
    mine, theirs = dict(engine.state), state["tensors"]
    for name in [*mine.keys() - theirs.keys(), *theirs.keys() - mine.keys()]:
        where = "checkpoint" if name in mine else "trainer"
        raise ValueError(
            f"the {where} has no {name!r}: the model, fragments= or outer_optimizer= differ"
        )
    for name, tensor in mine.items():
        if (tensor.shape, tensor.dtype) != (theirs[name].shape, theirs[name].dtype):
            raise ValueError(
                f"{name!r} is {theirs[name].dtype} of shape {tuple(theirs[name].shape)} in the "
                f"checkpoint, and {tensor.dtype} of shape {tuple(tensor.shape)} here"
            )
    for name, tensor in mine.items():
        tensor.copy_(theirs[name])
    engine.resume(state["revision"])


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of names, dtypes, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
