"""DDP: average the gradients at each optimizer step, with peers that come and go.

In the optimizer's step, before it moves the parameters, the peers average their gradients. After
it, they meet: newcomers are admitted, lost peers removed, and all hold the same bits of parameters,
optimizer state and buffers. A newcomer receives all of these from the others.

If a peer is lost while the gradients travel, the survivors meet and average them again. A newcomer
that is admitted at that moment brings no gradient, takes the same step as the others, and holds
nobody up.

A peer that was too late for the others, in a run with `call_timeout` in its URL, comes back in its
optimizer's step. It takes the others' state, and their next step without a gradient of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from pccl_backend.trainers.core import Core
from pccl_backend.trainers.exchange import HEAD, Outcome, Share
from pccl_backend.trainers.layout import Layout, difference, reals, views_of
from pccl_backend.trainers.observer import Observer
from pccl_backend.trainers.outer import make_state
from pccl_backend.trainers.settings import owned_optimizers
from pccl_backend.trainers.shards import check_whole
from pccl_backend.trainers.stages import Action, Goal
from pccl_backend.trainers.trainer import Trainer

__all__ = ["DDP"]


class DDP(Trainer):
    """Data-parallel training of one model in one peer group. Use it from one thread.

    Put the training loop into its `with` block. All peers take the same steps. A peer that came
    back has missed some, so end the loop by `revision`, the number of steps that the run has taken,
    and not by a count of your own. The optimizers' settings belong to each peer: take a learning
    rate's schedule from `revision`.

    Args:
        model: the model; its parameters, buffers and optimizer state are shared.
        optimizer: the optimizer, or several in the order in which they step.
        url: joins this run when the `with` block begins, leaves it at the end, and comes back to it
            if the others have removed this peer meanwhile, for example because it was too late
            (`call_timeout=60` in the URL).
        tag: the tag of its all-reduces.
        group: the process group; the default one unless given.
        observer: receives the trainer's events.

    Raises:
        ValueError: no trainable parameter, or one that no optimizer moves, or a dtype that cannot
            be averaged; an optimizer of another model, a model that has a trainer already, or one
            that is cut between processes. Also in a step, if the model's layout (docs/recipes.md,
            section 6) differs from that of the start.

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
        layout = partial(Layout, model, optimizers, buffers=True, frozen=True)
        layout()  # raises now rather than in start()
        super().__init__(
            model,
            optimizers,
            # The next optimizer step, soon after a SYNC, writes what would be lent.
            core=lambda: Core(overlap=0, every=None, fragments=1, lends=False),
            copies=lambda core: Gradients(layout(), optimizers, core),
            url=url,
            tag=tag,
            group=group,
            observer=observer,
        )

    def _watch(self) -> list[Any]:
        return [
            self._optimizers[0].register_step_pre_hook(self._before),
            self._optimizers[-1].register_step_post_hook(self._after),
        ]

    def _before(self, *_: object) -> None:
        """The optimizer is going to step: it gets the mean gradients."""
        engine = self._engine()
        gradients = self._gradients
        if gradients.steps_itself:
            return
        with self._signals, torch.no_grad():
            # If `closing`, the meeting of the step before has raised.
            if engine.core.closing:
                if self._run(Goal.STEP):
                    self._observer.stepped(self, self._end_step(engine))
                else:  # it came back: its gradients are those of older parameters
                    engine.core.blank = True
            while not self._run(Goal.STEP, until=Action.APPLY):
                engine.core.blank = True
            gradients.give()

    def _after(self, *_: object) -> None:
        """The optimizer has stepped: meet."""
        engine = self._engine()
        gradients = self._gradients
        if gradients.steps_itself:
            return
        with self._signals, torch.no_grad():
            gradients.has_stepped = True
            if self._run(Goal.STEP):
                self._observer.stepped(self, self._end_step(engine))

    @property
    def _gradients(self) -> Gradients:
        copies = self._engine().copies
        assert isinstance(copies, Gradients)
        return copies


class Gradients:
    """The gradients as one flat tensor, and the model itself as shared state.

    Behind the gradients travel the changes of the model's float buffers, whose mean all peers take.

    Attributes:
        steps_itself: whether this class calls the optimizers, not the user.
        has_stepped: whether the user's call has moved the parameters.
    """

    def __init__(
        self,
        layout: Layout,
        optimizers: Sequence[torch.optim.Optimizer],
        core: Core,
    ) -> None:
        self._layout = layout
        self._optimizers = optimizers
        self._core = core
        for optimizer in optimizers:
            make_state(optimizer)
        shapes = {**layout.parameters, **layout.floats}
        size = sum(shape.numel() for shape in shapes.values())
        self._storage = torch.zeros(HEAD + size, dtype=layout.dtype)
        views = dict(views_of(self._storage[HEAD:], shapes))
        self._gradients = {name: views[name] for name in layout.parameters}
        self._changes = {name: views[name] for name in layout.floats}
        self._agreed = {
            n: layout.local(n).to("cpu", layout.dtype, copy=True) for n in layout.floats
        }
        integers = sum(shape.numel() for shape in layout.counters.values())
        self.counters = torch.zeros(integers, dtype=torch.int64)
        self.read_counters(out=self.counters)
        self.outcome = Outcome()
        self.inner_steps = 0
        self.steps_itself = self.has_stepped = False

    def shared(self) -> dict[str, torch.Tensor]:
        """Return what all peers hold alike, by name."""
        named = self._layout.named_parameters()
        state = {f"model/{name}": parameter.detach() for name, parameter in named.items()}
        state |= {f"buffer/{name}": tensor for name, tensor in self._agreed.items()}
        if len(self.counters):
            state["buffer/counters"] = self.counters
        names = {id(parameter): name for name, parameter in named.items()}
        for number, optimizer in enumerate(self._optimizers):
            for parameter, values in optimizer.state.items():
                name = names.get(id(parameter), "")
                state |= {
                    f"optimizer/{number}/{name}/{key}": value
                    for key, value in values.items()
                    if isinstance(value, torch.Tensor)
                }
        return state

    # --- What travels -----------------------------------------------------------------------------

    @property
    def message(self) -> Gradients:
        return self

    def body(self, fragment: int, *, head: int) -> torch.Tensor:
        """Return gradients and changes of buffers with `head` elements before them."""
        return self._storage[HEAD - head :]

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy the model's integer buffers."""
        self._layout.read_counters(out=out)

    def settings(self) -> str:
        """Return nothing: the settings of this trainer may differ."""
        return ""

    # --- The actions ------------------------------------------------------------------------------

    def own(self) -> dict[str, torch.Tensor]:
        return {}

    def begin(self) -> None:
        """A call begins: the model may have changed since the last one."""
        if not self.has_stepped:
            self._layout.check()

    def measure(self) -> Share:
        """Copy the gradients. A missing one is zero, and so is that of a frozen parameter.

        A newcomer within a step has none.
        """
        body = self._storage[HEAD:]
        if self._core.blank:
            body.zero_()
            return Share(0.0, False, 1)
        named = self._layout.named_parameters()
        for name, view in self._gradients.items():
            gradient = named[name].grad if named[name].requires_grad else None
            if gradient is None:
                view.zero_()
            else:
                view.copy_(reals(gradient))
        for name, view in self._changes.items():
            difference(self._agreed[name], self._layout.local(name), out=view)
        low, high = body.aminmax()
        sick = not bool(low.isfinite() & high.isfinite())
        if sick:
            body.zero_()
        return Share(0.0 if sick else 1.0, sick, 1)

    def turn(self) -> Share:
        raise AssertionError("DDP does not overlap")

    def landed(self, outcome: Outcome) -> None:
        """The means have come."""
        self.outcome = outcome

    def give(self) -> None:
        """Give the parameters their mean gradients, except for those that are frozen."""
        named = self._layout.named_parameters()
        for name, view in self._gradients.items():
            parameter = named[name]
            if not parameter.requires_grad:
                continue
            if parameter.grad is None or parameter.grad.is_conj():
                parameter.grad = torch.empty_like(parameter)
            reals(parameter.grad).copy_(view)

    def apply(self) -> None:
        """Move the parameters, unless the user's call has done it, and the buffers."""
        if not self.has_stepped:
            self.steps_itself = True
            try:
                self.give()
                for optimizer in self._optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
            finally:
                self.steps_itself = False
        self.has_stepped = False
        for name, change in self._changes.items():
            self._agreed[name].sub_(change)

    def load(self) -> None:
        """Bring the buffers into the model."""
        for name, agreed in self._agreed.items():
            self._layout.local(name).copy_(agreed)
        self._layout.write_counters(self.counters)

    def adopt(self) -> Share | None:
        """The others' state was received, into the model itself."""
        self.load()
        return None

    def interrupted(self) -> None:
        """The gradients are measured again."""

    failed = hold = restart = interrupted
