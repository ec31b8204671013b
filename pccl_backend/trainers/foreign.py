"""Foreign: notices an optimizer that moves a model and is unknown to the model's trainer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pccl_backend.trainers.optimizers import members_of, within_step

__all__ = ["Watch", "install", "untraced"]


def untraced(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that runs as it is within a compiled step."""
    result: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return result


class Watch:
    """Calls `found` when another optimizer is going to step over a parameter of a model.

    A step within the step of one of the optimizers belongs to it: some optimizers wrap others.

    Args:
        model: the model.
        optimizers: those that its trainer knows.
        found: receives the other optimizer, and the name of the parameter, before the step.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        found: Callable[[torch.optim.Optimizer, str], None],
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._known = set(map(id, optimizers))  # there may be one for each parameter
        self._found = found
        with _lock:
            _watches.append(self)

    def remove(self) -> None:
        with _lock, contextlib.suppress(ValueError):
            _watches.remove(self)

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer is going to step."""
        if id(optimizer) in self._known:
            return
        theirs = {id(parameter) for _, parameter in members_of([optimizer])}
        for name, parameter in self._model.named_parameters():
            if id(parameter) in theirs and not any(map(within_step, self._optimizers)):
                self._found(optimizer, name)
                return


_lock = threading.Lock()
_watches: list[Watch] = []
_installed: list[Any] = []


def install() -> None:
    """Install the hook of all watches. It stays: torch iterates over the hooks of all threads."""

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for watch in tuple(_watches):
            watch.look(optimizer)

    with _lock:
        if not _installed:
            _installed.append(register_optimizer_step_pre_hook(untraced(look)))
