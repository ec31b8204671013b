"""Checkpoints of a trainer: its shared state, with the hash that lets a run resume from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from pccl_backend.trainers.engine import Engine

__all__ = ["check", "digest_of", "load", "save"]

KEYS = ("tensors", "revision", "hash", "digest")


def save(engine: Engine, *, own: bool) -> dict[str, Any]:
    """Return the shared state, and with `own` this peer's own tensors; see `Trainer.state_dict`."""
    engine.look_up()
    tensors = _full(engine.state)
    info = engine.info
    state: dict[str, Any] = {
        "tensors": tensors,
        "revision": engine.state.revision,
        "hash": None if info is None else str(info.hash),
        "digest": digest_of(tensors),
    }
    if own:
        state |= {"own": engine.copies.own(), "own_digest": digest_of(engine.copies.own())}
    return state


def check(state: Mapping[str, Any], *, own: bool) -> None:
    """Check that the tensors are unchanged since they were saved.

    Raises:
        ValueError: a key is missing, or the digest differs.
    """
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise ValueError(f"the state has no {missing[0]!r}: it is not from state_dict()")
    if own and "own_digest" not in state:
        raise ValueError(
            "the state has nothing of one peer alone: save it with state_dict(own=True), or load "
            "it without own=True"
        )
    parts = {"tensors": "digest"} | ({"own": "own_digest"} if own else {})
    for name, key in parts.items():
        digest = digest_of(state.get(name, {}))
        if digest != state[key]:
            raise ValueError(
                f"the state is damaged: its {name!r} has the digest {digest}, and {state[key]} "
                f"was saved with it, at revision {state['revision']}. Take another checkpoint"
            )


def load(engine: Engine, state: Mapping[str, Any], *, own: bool) -> None:
    """Copy a checked state into a trainer that has not started.

    Raises:
        ValueError: names, dtypes or shapes differ from the trainer's.
    """
    engine.look_up()
    _copy(_full(engine.state), state["tensors"], "the model, fragments= or outer_optimizer= differ")
    if own:
        differ = "the model, buffers= or error_feedback= differ"
        _copy(engine.copies.own(), state.get("own", {}), differ)
    engine.copies.take()
    engine.resume(state["revision"])


def _full(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with elements. Empty ones exist only so that their names are compared."""
    return {name: tensor for name, tensor in state.items() if tensor.numel()}


def _copy(
    mine: Mapping[str, torch.Tensor], theirs: Mapping[str, torch.Tensor], differ: str
) -> None:
    """Copy the values of `theirs` into `mine`: the same names, dtypes and shapes.

    Raises:
        ValueError: names, dtypes or shapes differ. `differ` is the likely reason of other names.
    """
    for name in [*mine.keys() - theirs.keys(), *theirs.keys() - mine.keys()]:
        where = "checkpoint" if name in mine else "trainer"
        raise ValueError(f"the {where} has no {name!r}: {differ}")
    for name, tensor in mine.items():
        if (tensor.shape, tensor.dtype) != (theirs[name].shape, theirs[name].dtype):
            raise ValueError(
                f"{name!r} is {theirs[name].dtype} of shape {tuple(theirs[name].shape)} in the "
                f"checkpoint, and {tensor.dtype} of shape {tuple(tensor.shape)} here"
            )
    for name, tensor in mine.items():
        tensor.copy_(theirs[name])


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of names, dtypes, shapes and bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
