"""Foreign: notices an optimizer that moves a model and is unknown to the model's trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

__all__ = ["untraced", "watch"]


def untraced(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that runs as it is within a compiled step."""
    result: Callable[..., Any] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return result


def watch(
    model: torch.nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    found: Callable[[torch.optim.Optimizer, str], None],
) -> list[Any]:
    """Call `found` when another optimizer steps over a parameter of the model.

    A step within the step of one of the optimizers belongs to it: some optimizers wrap others.

    Args:
        model: the model.
        optimizers: those that its trainer knows.
        found: receives the other optimizer, and the name of the parameter, before the step.

    Returns:
        The handles of the hooks.
    """
    known = {id(optimizer) for optimizer in optimizers}
    inside = False

    def before(optimizer: torch.optim.Optimizer, *_: object) -> None:
        nonlocal inside
        if id(optimizer) in known:
            inside = True
        elif not inside:
            theirs = {id(p) for group in optimizer.param_groups for p in group["params"]}
            for name, parameter in model.named_parameters():
                if id(parameter) in theirs:
                    found(optimizer, name)
                    return

    def after(optimizer: torch.optim.Optimizer, *_: object) -> None:
        nonlocal inside
        if id(optimizer) in known:
            inside = False

    return [
        register_optimizer_step_pre_hook(untraced(before)),
        register_optimizer_step_post_hook(untraced(after)),
    ]
