"""The settings of a DiLoCo trainer, checked when they are given."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch

from pccl_backend.quantization import Format, check_feedback, numbers_of
from pccl_backend.trainers.optimizers import members_of
from pccl_backend.trainers.outer import OuterOptimizer, Rate

__all__ = ["Mix", "Settings", "Weight", "claim", "owned_optimizers"]

Mix = float | Literal["carry", "delay"]
Weight = Literal["equal", "steps"] | Callable[[], float]

MIX = 0.5  # the default of a trainer that overlaps
WHOLE = 1 << 62  # an overlap until the next boundary, however far it is


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The arguments of `DiLoCo`; see there.

    Raises:
        ValueError: a setting is out of range; the message shows the value and the bound.
    """

    every: int | timedelta | None
    outer_lr: Rate
    outer_momentum: float
    outer_optimizer: OuterOptimizer | None
    fragments: int
    overlap: int | Literal["auto"]
    mix: Mix | None
    weight: Weight
    buffers: Literal["average", "own"]
    counts: bool  # whether there is an optimizer that counts inner steps
    quantize: Format | None = None
    error_feedback: bool = False

    def __post_init__(self) -> None:
        self._check_every()
        if not callable(self.outer_lr) and not self.outer_lr > 0:
            raise ValueError(f"outer_lr is {self.outer_lr}; it must be above 0")
        if not 0 <= self.outer_momentum < 1:
            raise ValueError(f"outer_momentum is {self.outer_momentum}; it must be in [0, 1)")
        if not _is_int(self.fragments) or self.fragments < 1:
            raise ValueError(f"fragments is {self.fragments}; it must be an int from 1")
        if isinstance(self.every, int) and self.fragments > self.every:
            raise ValueError(
                f"fragments is {self.fragments}, and every is {self.every}: each fragment has a "
                "boundary of its own, so there are at most as many as inner steps"
            )
        self._check_mix()
        self._check_overlap()
        if self.weight not in ("equal", "steps") and not callable(self.weight):
            raise ValueError(
                f'weight is {self.weight!r}; it can be "equal", "steps", or a function that '
                "returns how much this peer has processed in all, for example tokens"
            )
        if self.weight == "steps" and not self.counts:
            raise ValueError('weight="steps" needs an optimizer, which counts them: give one')
        if self.buffers not in ("average", "own"):
            raise ValueError(f'buffers is {self.buffers!r}; it can be "average" or "own"')
        numbers_of(self.quantize)
        if not isinstance(self.error_feedback, bool):
            raise TypeError(
                f"error_feedback must be a bool, not {type(self.error_feedback).__name__}"
            )
        if self.error_feedback and self.quantize is None:
            raise ValueError(
                "error_feedback=True is for a trainer that quantizes: give quantize=, too"
            )
        if self.error_feedback and self.quantize is not None:
            check_feedback(self.quantize)

    def shown(self, outer_steps: int) -> str:
        """Return a text with the settings that must be equal on all peers.

        Args:
            outer_steps: outer steps so far, for a learning rate that is a function of them.
        """
        if self.outer_optimizer is not None:
            rule = "an outer_optimizer"
        else:
            rate = self.outer_lr(outer_steps) if callable(self.outer_lr) else self.outer_lr
            rule = f"outer_lr={rate:g}, outer_momentum={self.outer_momentum:g}"
        alpha = self.alpha
        mix = self.mix if alpha is None or self.mix == "delay" else f"{alpha:g}"
        overlap = "" if self.mix == "delay" else f"overlap={self.overlap}, "
        weight = "a function" if callable(self.weight) else self.weight
        return (
            f"every={self.every}, {rule}, fragments={self.fragments}, {overlap}mix={mix}, "
            f"weight={weight}, buffers={self.buffers}, quantize={self.quantize}, "
            f"error_feedback={self.error_feedback}"
        )

    @property
    def overlap_steps(self) -> int | None:
        """The overlap in inner steps; None for "auto"."""
        if self.mix == "delay":
            return WHOLE
        return None if self.overlap == "auto" else self.overlap

    @property
    def mix_or_default(self) -> Mix:
        return MIX if self.mix is None else self.mix

    @property
    def alpha(self) -> float | None:
        """The local copy's part in the mix; None for "carry"."""
        if self.mix == "carry":
            return None
        if self.mix == "delay":
            return 0.0
        return float(self.mix_or_default)

    @property
    def steps_every(self) -> int | None:
        return self.every if isinstance(self.every, int) else None

    @property
    def seconds_every(self) -> float | None:
        """Seconds between two boundaries, if `every` is a timedelta."""
        if not isinstance(self.every, timedelta):
            return None
        return self.every.total_seconds() / self.fragments

    def _check_every(self) -> None:
        every = self.every
        if every is None:
            return
        if isinstance(every, timedelta):
            if every <= timedelta(0):
                raise ValueError(f"every is {every}; it must be above 0")
        elif not _is_int(every) or every < 1:
            raise ValueError(
                f"every is {every!r}; it must be a number of inner steps from 1, a timedelta, or "
                "None to call step() yourself"
            )
        if not self.counts:
            raise ValueError(
                f"every is {every}, and there is no optimizer that counts inner steps: give the "
                "optimizer after the model, or leave every out and call step() yourself"
            )

    def _check_mix(self) -> None:
        mix = self.mix
        if mix is None:
            return
        if isinstance(mix, str):
            if mix not in ("carry", "delay"):
                raise ValueError(f'mix is {mix!r}; it can be from 0 to 1, "carry" or "delay"')
        elif isinstance(mix, bool) or not 0 <= mix <= 1:
            raise ValueError(f'mix is {mix}; it must be from 0 to 1, "carry" or "delay"')
        if mix != "delay" and self.overlap == 0:
            raise ValueError(f"mix={mix!r} is for a trainer that overlaps: give overlap=, too")
        if mix != "delay":
            return
        if self.fragments > 1:
            raise ValueError(f'mix="delay" has one fragment, not {self.fragments}')
        if self.overlap not in (0, "auto", self.every):
            raise ValueError(
                f'overlap is {self.overlap}; mix="delay" overlaps from one outer step to the next: '
                "leave overlap out"
            )
        if self.outer_optimizer is None and not callable(self.outer_lr):
            moves = self.outer_lr / (1 - self.outer_momentum)
            if moves > 1:
                warnings.warn(
                    'mix="delay" diverges if one pseudo-gradient moves the parameters by more than '
                    f"itself: outer_lr / (1 - outer_momentum) is {moves:.2g}, above 1. Take "
                    'mix="carry", or outer_lr=0.5 and outer_momentum=0.5',
                    stacklevel=5,
                )

    def _check_overlap(self) -> None:
        overlap = self.overlap
        if overlap == "auto" or self.mix == "delay":
            return
        if not _is_int(overlap) or overlap < 0:
            raise ValueError(
                f'overlap is {overlap!r}; it must be a number of inner steps from 0, or "auto"'
            )
        if overlap > 0 and not self.counts:
            raise ValueError(
                f"overlap is {overlap}, and there is no optimizer that counts inner steps: give "
                'the optimizer after the model, or overlap="auto"'
            )
        if not isinstance(self.every, int):
            return
        interval = self.every // self.fragments
        longest = interval if self.mix == "carry" else interval - 1
        if overlap > longest:
            raise ValueError(
                f"overlap is {overlap}; with every={self.every}, fragments={self.fragments} and "
                f"mix={self.mix_or_default!r} it is at most {longest}, so that a fragment arrives "
                'before the next one is sent (mix="carry" and mix="delay" may take the whole '
                "interval)"
            )


def owned_optimizers(
    model: torch.nn.Module,
    optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers as a tuple.

    Raises:
        TypeError: an element is no torch.optim.Optimizer.
        ValueError: an optimizer has no parameter of the model, or calls no hooks.
    """
    if optimizers is None:
        return ()
    several = tuple(optimizers) if isinstance(optimizers, Iterable) else (optimizers,)
    if not several:
        raise ValueError("there are 0 optimizers; give at least one, or None to call step()")
    mine = {id(parameter) for parameter in model.parameters()}
    for number, optimizer in enumerate(several):
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"an optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}"
            )
        if not hasattr(optimizer, "_optimizer_step_post_hooks"):
            raise ValueError(
                f"optimizer {number} ({type(optimizer).__name__}) calls no hooks at its steps, "
                "because its class does not call torch.optim.Optimizer.__init__, and a trainer "
                "works in these hooks: give the trainer the optimizer that it wraps"
            )
        theirs = [parameter for _, parameter in members_of([optimizer])]
        if not any(id(parameter) in mine for parameter in theirs):
            raise ValueError(
                f"optimizer {number} ({type(optimizer).__name__}) has {len(theirs)} parameters, "
                "and none of them is the model's: make it from model.parameters(), after "
                "whatever replaces them (to_empty, load_state_dict(assign=True))"
            )
    return several


_trainers: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[object]] = (
    weakref.WeakKeyDictionary()
)


def claim(model: torch.nn.Module, trainer: object) -> Callable[[], None]:
    """Register the trainer as the only one of the model; return a function that unregisters it.

    Raises:
        ValueError: the model has another trainer.
    """
    import gc

    def other() -> object | None:
        held = _trainers.get(model)
        return None if held is None else held()

    if other() is not None:
        gc.collect()  # a discarded trainer may be part of a reference cycle
    if (holder := other()) is not None:
        raise ValueError(
            f"the model has a trainer already ({type(holder).__name__}), and two would move it in "
            "turns: leave its `with` block or call its close() first"
        )
    _trainers[model] = weakref.ref(trainer)

    def release() -> None:
        if other() is trainer_of():
            _trainers.pop(model, None)

    trainer_of = weakref.ref(trainer)
    return release


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
