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
    """Return a hook that torch.compile leaves alone when it compiles the step around it."""
    result: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return result


class Watch:
    """Calls `found` before another optimizer steps over a parameter of a model.

    A step that one of these optimizers makes inside its own step is not foreign: some optimizers
    wrap others.

    Args:
        model: the model.
        optimizers: the optimizers that its trainer knows.
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
        """Check an optimizer before its step."""
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
    """Install the hook of all watches, once and for good.

    Removing it would change torch's table of hooks, while another thread may iterate over it.
    """

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for watch in tuple(_watches):
            watch.look(optimizer)

    with _lock:
        if not _installed:
            _installed.append(register_optimizer_step_pre_hook(untraced(look)))
