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

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from pccl_backend.trainers.core import Core
from pccl_backend.trainers.exchange import HEAD, Outcome, Share
from pccl_backend.trainers.observer import Observer
from pccl_backend.trainers.outer import make_state
from pccl_backend.trainers.pieces import is_counter, trainable
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
        ValueError: no trainable parameter, an optimizer of another model, a model that has a
            trainer already, or one that is cut between processes.

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
        trainable(model)  # raises now rather than in start()
        check_whole(model)
        optimizers = owned_optimizers(model, optimizer)
        if not optimizers:
            raise ValueError("optimizer is None; give the optimizer that moves the model")
        super().__init__(
            model,
            optimizers,
            # The next optimizer step, soon after a SYNC, writes what would be lent.
            core=lambda: Core(overlap=0, every=None, fragments=1, lends=False),
            copies=lambda core: Gradients(model, optimizers, core),
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
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        core: Core,
    ) -> None:
        self._model = model
        self._optimizers = optimizers
        self._core = core
        for optimizer in optimizers:
            make_state(optimizer)
        named = trainable(model)
        self._buffers = {n: b for n, b in model.named_buffers() if b.is_floating_point()}
        self._integers = {n: b for n, b in model.named_buffers() if is_counter(b)}
        dtype = torch.float32
        for tensor in [*named.values(), *self._buffers.values()]:
            dtype = torch.promote_types(dtype, tensor.dtype)
        size = sum(tensor.numel() for tensor in [*named.values(), *self._buffers.values()])
        self._storage = torch.zeros(HEAD + size, dtype=dtype)
        self._agreed = {n: b.to("cpu", dtype, copy=True) for n, b in self._buffers.items()}
        integers = sum(buffer.numel() for buffer in self._integers.values())
        self.counters = torch.zeros(integers, dtype=torch.int64)
        self.read_counters(out=self.counters)
        self.outcome = Outcome()
        self.inner_steps = 0
        self.steps_itself = self.has_stepped = False

    def shared(self) -> dict[str, torch.Tensor]:
        """Return what all peers hold alike, by name."""
        state = {f"model/{name}": p.detach() for name, p in self._model.named_parameters()}
        state |= {f"buffer/{name}": tensor for name, tensor in self._agreed.items()}
        if len(self.counters):
            state["buffer/counters"] = self.counters
        names = {id(p): name for name, p in self._model.named_parameters()}
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
        for view, buffer in self._cut(out, self._integers.values()):
            view.copy_(buffer)

    def settings(self) -> str:
        """Return nothing: the settings of this trainer may differ."""
        return ""

    # --- The actions ------------------------------------------------------------------------------

    def own(self) -> dict[str, torch.Tensor]:
        return {}

    def begin(self) -> None:
        """Nothing has to be remembered between two calls."""

    def measure(self) -> Share:
        """Copy the gradients. A missing one is zero; a newcomer within a step has none."""
        tensors = [*trainable(self._model).values(), *self._buffers.values()]
        body = self._storage[HEAD:]
        for number, (view, tensor) in enumerate(self._cut(body, tensors)):
            buffer = number - (len(tensors) - len(self._buffers))
            if self._core.blank:
                view.zero_()
            elif buffer >= 0:
                torch.sub(list(self._agreed.values())[buffer], tensor.to("cpu"), out=view)
            elif tensor.grad is None:
                view.zero_()
            else:
                view.copy_(tensor.grad)
        low, high = body.aminmax()
        sick = not bool(low.isfinite() & high.isfinite())
        if sick:
            body.zero_()
        return Share(0.0 if sick or self._core.blank else 1.0, sick, 1)

    def turn(self) -> Share:
        raise AssertionError("DDP does not overlap")

    def landed(self, outcome: Outcome) -> None:
        """The means have come."""
        self.outcome = outcome

    def give(self) -> None:
        """Give the parameters their mean gradients."""
        parameters = list(trainable(self._model).values())
        for view, parameter in self._cut(self._storage[HEAD:], parameters):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(view)

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
        buffers = list(self._buffers.values())
        start = len(self._storage) - sum(buffer.numel() for buffer in buffers)
        changes = self._cut(self._storage[start:], buffers)
        for agreed, (change, _) in zip(self._agreed.values(), changes, strict=True):
            agreed.sub_(change)

    def load(self) -> None:
        """Bring the buffers into the model."""
        for agreed, buffer in zip(self._agreed.values(), self._buffers.values(), strict=True):
            buffer.copy_(agreed)
        for view, buffer in self._cut(self.counters, self._integers.values()):
            buffer.copy_(view)

    def adopt(self) -> Share | None:
        """The others' state was received, into the model itself."""
        self.load()
        return None

    def interrupted(self) -> None:
        """The gradients are measured again."""

    failed = hold = restart = interrupted

    def _cut(
        self, flat: torch.Tensor, tensors: Iterable[torch.Tensor]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the parts of a flat tensor that belong to these tensors, one after another."""
        parts, start = [], 0
        for tensor in tensors:
            parts.append((flat[start : start + tensor.numel()].view(tensor.shape), tensor))
            start += tensor.numel()
        return parts
