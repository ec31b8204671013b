"""DDP: average the gradients at each optimizer step, with peers that come and go.

Before an optimizer steps, an *outer step* averages the new gradients of all optimizers of the
trainer. After all optimizers with a new gradient have stepped, the peers meet: newcomers are
admitted, lost peers removed, and all hold the same bits of parameters, optimizer state and buffers.
A newcomer receives all of these from the others.

So optimizers that step after one backward (Muon for the matrices, AdamW for the rest) have one
outer step and one meeting. Two optimizers with a backward each (a GAN) have an outer step each. If
the second backward has given both a gradient, the peers cannot know whether both step; then they
meet at the beginning of the next outer step.

If a peer is lost while the gradients travel, the survivors meet and average them again. A newcomer
that is admitted at that moment contributes no gradient, takes the same step as the others, and
delays none of them.

In a run with `call_timeout` in its URL, a peer that was removed because it was late comes back in
its optimizer's step. It takes the others' state. Then it takes their steps without a gradient of
its own, until they reach the step of its loop. A newcomer with several optimizers does the same.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend.state_sync import SyncInfo
from pccl_backend.topology import Topology
from pccl_backend.trainers import foreign
from pccl_backend.trainers.backward import Backward, within_backward
from pccl_backend.trainers.core import Core
from pccl_backend.trainers.engine import Strategy
from pccl_backend.trainers.gradients import Gradients, Step
from pccl_backend.trainers.inner import Depth
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.observer import Observer
from pccl_backend.trainers.optimizers import called_by, members_of, names_of
from pccl_backend.trainers.settings import owned_optimizers
from pccl_backend.trainers.shards import check_whole
from pccl_backend.trainers.stages import Action, Goal
from pccl_backend.trainers.trainer import Trainer, tracked

__all__ = ["DDP"]


class DDP(Trainer):
    """Data-parallel training of one model in one peer group. Use it from one thread.

    Put the training loop into its `with` block. All peers take the same steps. A peer that came
    back has missed some, so end the loop by `revision`, the number of outer steps that the run has
    had, and not by a count of your own. A GAN has two outer steps in an iteration. The optimizers'
    settings belong to each peer: compute a learning rate's schedule from `revision`.

    Gradients accumulate over several backwards as usual. An optimizer may be given a closure that
    it evaluates once. A parameter without a gradient on all peers keeps `grad = None`. If only some
    peers have used a parameter, the others count as zeros in its mean.

    With torch.amp.GradScaler, each peer may have a scale of its own. A peer that finds an infinity
    contributes its next gradient to the others' step, or with a fused optimizer takes their mean;
    only its own scale is lowered. If several optimizers share a scaler, call its `unscale_` for
    each before the first one steps, and before `average`.

    Args:
        model: the model; its parameters, buffers and optimizer state are shared. Each meeting
            looks up its tensors and their addresses by the names of the start. This takes about
            1 ms for 1,000 tensors.
        optimizer: the optimizer, or several in the order of their steps.
        url: joins this run when the `with` block begins, leaves it at the end, and joins it again
            if the others have removed this peer meanwhile, for example because it was late
            (`call_timeout=60` in the URL).
        tag: the tag of its all-reduces.
        group: the process group; the default one unless given.
        observer: receives the trainer's events.

    Raises:
        ValueError: no trainable parameter, or one that no optimizer moves, or a dtype that cannot
            be averaged; an optimizer that also moves parameters outside of the model, or needs
            several evaluations of a closure (LBFGS), or keeps state that is neither tensor nor
            number; a model that has a trainer already, or one that is cut between processes.
            Also in a step: the model's layout (docs/recipes.md, section 6) has changed since the
            start; the peers step different optimizers; an optimizer evaluates its closure twice or
            never, or steps inside a backward; an optimizer that the trainer does not know moves the
            model.

    Example:
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        >>> with DDP(model, optimizer, url="pccl://host:48148/my-run"):
        ...     for batch in data:
        ...         loss(model, batch).backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        url: str | None = None,
        tag: str = "ddp",
        group: dist.ProcessGroup | None = None,
        observer: Observer | None = None,
    ) -> None:
        check_whole(model)
        optimizers = owned_optimizers(model, optimizer)
        if not optimizers:
            raise ValueError("optimizer is None; give the optimizer that moves the model")
        _require_own(model, optimizers)
        for each in optimizers:
            _require_one_evaluation(each)
        layout = partial(Layout, model, optimizers, buffers=True, frozen=True)
        layout()  # raises now rather than in start()
        super().__init__(
            model,
            optimizers,
            # The next optimizer step comes soon after a SYNC, and writes the shared tensors.
            core=lambda: Core(overlap=0, every=None, fragments=1, lends=False),
            copies=lambda core: Gradients(layout(), optimizers, core),
            url=url,
            tag=tag,
            group=group,
            observer=observer,
        )
        self._backward = Backward(optimizers, {})
        self._asked = 0  # the optimizers of the last average(), until they have stepped
        self._once: Callable[[], Any] | None = None  # the closure of the last step
        self._unevaluated = False  # whether that closure was not evaluated yet
        self._depth = Depth()
        # The `_member` of this peer when it found the step of the others; None: it has not yet.
        self._placed: tuple[object, ...] | None = None

    @property
    def revision(self) -> int:
        """Number of outer steps that the run has had, over all peers' lives."""
        if self._made is None:
            return 0
        copies = self._made.copies
        taken = isinstance(copies, Gradients) and copies.given and copies.stepped != 0
        return super().revision + taken

    def average(self, *optimizers: torch.optim.Optimizer) -> None:
        """Average the gradients now, to clip them, to take their norm, or to add noise. Joint.

        The optimizers that step next then use the gradients as they are. All peers call it alike,
        after the last backward before these steps.

        Args:
            optimizers: the ones that step next; all of the trainer's unless given.

        Raises:
            InvalidStateError: the call is outside of the `with` block, and before `start`.
            ValueError: an optimizer that the trainer does not know; errors as in a step.
            PcclError: any error of a step.

        Example:
            >>> loss(model, batch).backward()
            >>> ddp.average()
            >>> torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            >>> optimizer.step()
        """
        self._require_open()
        if not self._handles:
            raise pccl.InvalidStateError(
                "average() is for the `with` block of its trainer, or after its start()"
            )
        covers = sum(
            1 << self._index(optimizer) for optimizer in set(optimizers or self._optimizers)
        )
        gradients = self._gradients
        if gradients.given and self._asked == covers and not self._backward.changed():
            return
        self._require_all_stepped()
        stale = not self._end_outer_step()
        self._outer_step(Step.of_set(covers, len(self._optimizers)), stale=stale)
        self._asked = covers

    def start(self, *, strategy: Strategy = "enforce_popular") -> SyncInfo:
        info = super().start(strategy=strategy)
        self._handles = self._handles or self._watch()  # also without a `with` block
        return info

    start.__doc__ = Trainer.start.__doc__

    def meet(self) -> tuple[Topology, SyncInfo]:
        self._end_taken_outer_step()
        return super().meet()

    meet.__doc__ = Trainer.meet.__doc__

    def finish(self) -> None:
        """Meet, if the peers have stepped since the last meeting. The block does it at its end."""
        self._end_taken_outer_step()
        super().finish()

    # --- The hooks --------------------------------------------------------------------------------

    def _watch(self) -> list[Any]:
        if self._handles:
            return self._handles
        self._backward = Backward(self._optimizers, dict(self._model.named_parameters()))
        handles = [*self._backward.handles]
        for index, optimizer in enumerate(self._optimizers):
            before, after = partial(self._before, index), partial(self._after, index)
            handles.append(optimizer.register_step_pre_hook(foreign.untraced(before)))
            handles.append(optimizer.register_step_post_hook(foreign.untraced(after)))
        return [*handles, foreign.Watch(self._model, self._optimizers, self._refuse_foreign)]

    def _before(
        self,
        index: int,
        optimizer: torch.optim.Optimizer,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """An optimizer's step begins: it gets the mean gradients now, or after its closure."""
        if self._gradients.steps_itself:
            return None
        if within_backward():
            raise ValueError(
                f"{self._called(index)} steps inside a backward, when other gradients are not "
                "there yet. trainers.DDP averages all of them at once: call step() after "
                "backward(), or use trainers.DiLoCo"
            )
        within = not self._depth.enter(optimizer)
        place = 1 if len(arguments) > 1 else None  # behind the optimizer itself
        closure = options.get("closure") if place is None else arguments[place]
        if within and (closure is None or closure is self._once):
            return None
        if closure is None:
            self._unevaluated = False  # left over from a step that raised
            self._average_for(index)
            return None
        once = self._once = self._evaluated_once(index, closure)
        if place is None:
            return arguments, {**options, "closure": once}
        return (arguments[0], once, *arguments[2:]), options

    def _evaluated_once(self, index: int, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that evaluates the given one, then runs an outer step."""
        self._unevaluated = True

        def once() -> Any:
            if not self._unevaluated:
                raise ValueError(
                    f"{self._called(index)} evaluates its closure twice in one step, at parameters "
                    "that the other peers do not have. trainers.DDP averages the gradients of one "
                    "evaluation: use an optimizer with one, or trainers.DiLoCo"
                )
            result = closure()
            self._unevaluated = False
            self._average_for(index)
            return result

        return once

    def _average_for(self, index: int) -> None:
        """Make the mean gradients for an optimizer's step, unless they are made already."""
        own, gradients = 1 << index, self._gradients
        with self._held():
            looks = len(self._optimizers) > 1 or gradients.given
            changed = self._backward.changed() if looks else own
            if gradients.given:
                if changed & self._asked & own:
                    raise ValueError(
                        f"a backward came between average() and the step of {self._called(index)}, "
                        "so its gradients are no mean any more: call average() after the last "
                        "backward"
                    )
                has_mean = own & (self._asked or gradients.expected) & ~gradients.stepped
                # After average(), changes of a gradient by the program are meant for the step.
                written = not self._asked and self._backward.written(self._optimizers[index])
                if has_mean and not changed and not written:
                    self._require_mean(index)
                    return
            self._require_all_stepped()
            stale = not self._end_outer_step()
            scale = _take_scale(self._optimizers[index])
            self._outer_step(Step.of_one(index, covers=changed, scale=scale), stale=stale)

    def _after(self, index: int, *_: object) -> None:
        """An optimizer has stepped: meet, if it was the last one with new gradients."""
        gradients = self._gradients
        if gradients.steps_itself:
            return
        if not self._depth.leave():
            return
        self._once = None
        if self._unevaluated:
            self._unevaluated = False
            raise ValueError(
                f"{self._called(index)} was given a closure and has not evaluated it. It has used "
                "the gradients of this peer alone: call step() without a closure, after backward()"
            )
        gradients.stepped |= 1 << index
        left = self._asked or gradients.expected
        if gradients.doubtful:  # a GradScaler may have skipped earlier optimizers for an infinity
            left &= -1 << index
        if not left & ~gradients.stepped:
            self._end_outer_step()

    # --- The outer step ---------------------------------------------------------------------------

    def _outer_step(self, step: Step, *, stale: bool) -> None:
        """Average the gradients, once the others are at this step, too.

        Args:
            step: the present step of this peer's loop.
            stale: whether the gradients belong to older parameters.
        """
        waits = False  # whether the others are at another step
        with self._held():
            while True:
                gradients = self._gradients
                gradients.step, gradients.counts = step, not stale and not waits
                gradients.unsure = not self._knows_its_place()
                if not self._run(Goal.STEP, until=Action.APPLY):
                    stale = True
                    continue
                theirs = gradients.outcome.setting
                waits, gradients.counts = theirs != 0 and not gradients.counts, False
                if gradients.is_own_step or (stale and theirs == 0):
                    break
                stale = not self._meet_after_outer_step() or stale
            self._placed = self._member
            for parameter in gradients.give(own=True):
                self._backward.averaged(parameter)

    def _knows_its_place(self) -> bool:
        """Return whether the others are at the step of this peer's loop.

        They may be at another step if there are several optimizers and this peer is new. A peer
        that has received nothing is not new: the others began with its state.
        """
        new = self._engine().received and self._placed != self._member
        return len(self._optimizers) == 1 or not new

    def _meet_after_outer_step(self) -> bool:
        """Finish the outer step. Return False if this peer was removed and came back."""
        engine = self._engine()
        if not self._run(Goal.STEP):
            return False
        self._observer.stepped(self, self._end_step(engine))
        return True

    def _end_outer_step(self) -> bool:
        """Meet, if the last outer step is open. Return whether its gradients are still valid.

        They are invalid if they belong to older parameters: this peer came back, or it has received
        a step of the others that it had skipped because of an infinity.
        """
        stays, engine = True, self._engine()
        if self._gradients.given or engine.core.closing:
            doubtful = self._gradients.doubtful
            with self._held():
                stays = self._meet_after_outer_step()
            info = self._engine().info
            stays = stays and not (doubtful and info is not None and info.rx_bytes > 0)
        self._asked = 0
        return stays

    def _end_taken_outer_step(self) -> None:
        """Meet, if the program has stepped since the last meeting."""
        if self._made is None or self._made.info is None:
            return
        if self._gradients.stepped or self._made.core.closing:
            self._end_outer_step()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with self._signals, tracked(), torch.no_grad():
            yield

    # --- Refusals ---------------------------------------------------------------------------------

    def _require_all_stepped(self) -> None:
        """Raise ValueError if only some of the optimizers of the last average() have stepped.

        A GradScaler leaves out the steps of optimizers with an infinity.
        """
        gradients = self._gradients
        left = self._asked & ~gradients.stepped
        if gradients.given and left and gradients.stepped and not gradients.sick:
            raise ValueError(
                f"the last average() was for {names_of(self._optimizers, self._asked)}, and "
                f"{names_of(self._optimizers, left)} has not stepped: give average() the "
                "optimizers that step next, as in average(optimizer)"
            )

    def _require_mean(self, index: int) -> None:
        """Raise ValueError if a GradScaler unscales a mean of gradients with different scales."""
        optimizer, gradients = self._optimizers[index], self._gradients
        scaled = bool(gradients.step.scaled & 1 << index)
        if hasattr(optimizer, "found_inf"):
            kept: torch.Tensor | None = _take_scale(optimizer)
            optimizer.grad_scale = kept  # type: ignore[attr-defined]
            wrong = (kept is not None) != scaled
        else:
            changed = self._backward.changed_by_program
            wrong = not gradients.are_means(index, changed=changed) and called_by(
                torch.amp.GradScaler
            )
        if wrong:
            raise ValueError(
                f"the gradients of {self._called(index)} were averaged before a GradScaler has "
                "unscaled them, and each peer has a scale of its own: call scaler.unscale_() for "
                "each optimizer before the first one steps, and before average()"
            )

    def _refuse_foreign(self, optimizer: torch.optim.Optimizer, name: str) -> None:
        raise ValueError(
            f"{type(optimizer).__name__}, an optimizer that the trainer does not know, is going to "
            f"move parameter {name!r} by this peer's gradient alone. The trainer knows "
            f"{names_of(self._optimizers, (1 << len(self._optimizers)) - 1)}: make the optimizers "
            "before the trainer, and give it all that move the model"
        )

    # --- Its parts --------------------------------------------------------------------------------

    @property
    def _gradients(self) -> Gradients:
        copies = self._engine().copies
        assert isinstance(copies, Gradients)
        return copies

    def _index(self, optimizer: torch.optim.Optimizer) -> int:
        for index, known in enumerate(self._optimizers):
            if known is optimizer:
                return index
        raise ValueError(
            f"{type(optimizer).__name__} is none of the trainer's optimizers: "
            f"{names_of(self._optimizers, (1 << len(self._optimizers)) - 1)}"
        )

    def _called(self, index: int) -> str:
        return names_of(self._optimizers, 1 << index)


def _take_scale(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    """Take away and return the factor that a GradScaler gave a fused optimizer."""
    scale: torch.Tensor | None = getattr(optimizer, "grad_scale", None)
    found: torch.Tensor | None = getattr(optimizer, "found_inf", None)
    if scale is not None:
        optimizer.grad_scale = torch.ones_like(scale)  # type: ignore[attr-defined]
    if found is not None:
        optimizer.found_inf = torch.zeros_like(found)  # type: ignore[attr-defined]
    return scale


def _require_own(model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Raise ValueError if an optimizer moves a parameter that the model does not have."""
    mine = {id(parameter) for parameter in model.parameters()}
    for index, parameter in members_of(optimizers):
        if id(parameter) not in mine:
            raise ValueError(
                f"{names_of(optimizers, 1 << index)} moves a parameter of shape "
                f"{tuple(parameter.shape)} that is none of the model's, so each peer would move it "
                "by its own gradient alone: make it a part of the model, as in "
                "torch.nn.ModuleList([model, criterion]), or give it an optimizer of its own"
            )


def _require_one_evaluation(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError if the optimizer cannot step without a closure."""
    options = inspect.signature(type(optimizer).step).parameters
    closure = options.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"{type(optimizer).__name__} evaluates its closure several times in one step, at "
            "parameters that the other peers do not have. trainers.DDP averages the gradients of "
            "one evaluation: use another optimizer, or trainers.DiLoCo"
        )
