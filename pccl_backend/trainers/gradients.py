"""Gradients: the message of DDP in an outer step, and the model itself as shared state.

An outer step serves one step of this peer's loop. The step has a number, which shows whether peers
are at different steps. The message consists of

- the gradients of all optimizers, with zeros where the step needs none;
- the changes of the model's float buffers;
- a flag for each parameter: whether it has a gradient. A parameter that no peer has used keeps
  none;
- for a sparse gradient, which travels dense, a flag for each of its rows;
- a flag for each optimizer: whether its gradients were left out, because one of them is not finite
  and the optimizer does not step now.

A peer whose loop is not at this step contributes nothing (weight 0): a newcomer within a step, a
peer that came back, a peer with a gradient that is not finite. It takes the mean of the others. If
the outer step was not for its own next step, it takes their steps here, in `apply`. The others
might have stepped differently, so its state is then in doubt: in the next sync it receives the
tensors that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import torch

from pccl_backend.trainers.core import Core
from pccl_backend.trainers.exchange import HEAD, Outcome, Share
from pccl_backend.trainers.layout import Layout, difference, reals, views_of
from pccl_backend.trainers.optimizer_state import OptimizerState
from pccl_backend.trainers.optimizers import members_of, names_of

__all__ = ["Gradients", "Step"]

NUMBER_MAX = (1 << 24) - 1  # a float32 holds it exactly


@dataclass(frozen=True)
class Step:
    """The step that an outer step serves.

    Attributes:
        number: for one optimizer its index plus 1; for a set of optimizers a number above the count
            of optimizers.
        covers: the optimizers with new gradients, as a sum of 1 << index; includes the stepping
            one.
        scale: the factor of a GradScaler in the gradients; None: they are unscaled.
        scaled: the optimizers whose gradients keep the factor after the outer step.
        steps: the optimizers that are certain to step. If another optimizer has an infinity, only
            its own gradients are dropped.
    """

    number: int
    covers: int
    scale: torch.Tensor | None = None
    scaled: int = 0
    steps: int = 0

    @staticmethod
    def of_one(index: int, *, covers: int, scale: torch.Tensor | None) -> Step:
        """Return the step of one optimizer."""
        own = 1 << index
        scaled = (covers & ~own) if scale is not None else 0
        return Step(index + 1, covers | own, scale, scaled, steps=own)

    @staticmethod
    def of_set(covers: int, count: int) -> Step:
        """Return the steps of several of `count` optimizers."""
        return Step(min(count + 1 + covers, NUMBER_MAX), covers, steps=covers)


class Gradients:
    """The message of DDP, and its view of the model; see `Copies`.

    Attributes:
        step: the next step of this peer's loop.
        counts: whether the gradients belong to that step, and to the parameters that all peers have
            now.
        unsure: whether the others may be at another step, because this peer is new.
        given: whether the parameters have the mean gradients, and the peers have not met since.
        stepped: optimizers that have stepped since; like `expected` a sum of 1 << index.
        expected: optimizers that received a gradient in the last outer step.
        sick: whether this peer's gradients of the last outer step were not finite.
        steps_itself: whether this class calls the optimizers, not the program.
        doubtful: the number of contributors that must still be members, so that at least one of
            them has taken the step; 0 if this peer has taken it.
    """

    strict = True

    def __init__(
        self,
        layout: Layout,
        optimizers: Sequence[torch.optim.Optimizer],
        core: Core,
    ) -> None:
        self._layout = layout
        self._optimizers = optimizers
        self._core = core
        sparse = [layout.tensor(name) for name in layout.sparse]
        shapes = layout.parameters
        moved = {id(layout.tensor(name)): name for name in shapes}
        self._states = [
            OptimizerState(
                optimizer,
                moved,
                title=names_of(optimizers, 1 << index),
                prefix=f"optimizer/{index}",
                sparse=sparse,
            )
            for index, optimizer in enumerate(optimizers)
        ]
        rows = {f"rows of {n}": torch.Size(shapes[n][:1]) for n in layout.sparse}
        bad = {"bad": torch.Size([len(optimizers)])}
        flags = {"flags": torch.Size([len(shapes)]), **rows, **bad}
        parts = {**shapes, **layout.floats, **flags}
        size = sum(shape.numel() for shape in parts.values())
        self._storage = torch.zeros(HEAD + size, dtype=layout.dtype, device="cpu")
        views = dict(views_of(self._storage[HEAD:], parts))
        self._gradients = {name: views[name] for name in shapes}
        self._changes = {name: views[name] for name in layout.floats}
        self._flags, self._bad = views["flags"], views["bad"]
        self._rows = {name: views[f"rows of {name}"] for name in layout.sparse}
        self._agreed = {
            n: layout.local(n).to("cpu", layout.dtype, copy=True) for n in layout.floats
        }
        integers = sum(shape.numel() for shape in layout.counters.values())
        self.counters = torch.zeros(integers, dtype=torch.int64, device="cpu")
        self.read_counters(out=self.counters)
        self.outcome = Outcome()
        self.inner_steps = 0
        self.step = Step(0, 0)
        self.counts = self.unsure = self.given = self.steps_itself = False
        self.doubtful = 0
        self.stepped = self.expected = 0
        self._posted = 0  # the number that this peer has sent
        self._brought = self.sick = False  # `_brought`: whether this peer's gradients count
        self._own_bad = [0.0] * len(optimizers)
        self._used: frozenset[str] = frozenset()  # parameters that have a mean gradient

    def shared(self) -> dict[str, torch.Tensor]:
        """Return the shared state, by name."""
        named = self._layout.named_parameters()
        state = {f"model/{name}": parameter.detach() for name, parameter in named.items()}
        # With these empty entries, the first sync of a peer with another layout names a tensor.
        frozen = named.keys() - self._gradients.keys()
        state |= {f"frozen/{name}": torch.empty(0, device="cpu") for name in sorted(frozen)}
        state |= {f"buffer/{name}": tensor for name, tensor in self._agreed.items()}
        if len(self.counters):
            state["buffer/counters"] = self.counters
        names = self._names()
        for own in self._states:
            state |= own.shared(names)
        return state

    def _names(self) -> dict[int, str]:
        """Return the names of the parameters, by id."""
        return {id(tensor): name for name, tensor in self._layout.named_parameters().items()}

    # --- The message ------------------------------------------------------------------------------

    @property
    def message(self) -> Gradients:
        return self

    def body(self, fragment: int, *, head: int) -> torch.Tensor:
        """Return the message, with `head` elements before it."""
        return self._storage[HEAD - head :]

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy the model's integer buffers."""
        self._layout.read_counters(out=out)

    def flip_counters(self, flat: torch.Tensor) -> None:
        self._layout.flip_counters(flat)

    def settings(self) -> str:
        """Return an empty text: the settings of this trainer may differ."""
        return ""

    def number(self) -> int:
        """Return the number of the measured step; see `Exchange.post`."""
        return -self._posted if self.unsure else self._posted

    def difference(self, outcome: Outcome) -> str:
        """Return the text of an error about peers at other steps."""
        mine, theirs = self._name(self._posted), self._name(outcome.setting)
        if outcome.refused:
            return (
                f"this peer steps {mine}, and the other peers (most, or the lowest rank) step "
                f"{theirs}: all peers take the same steps, in one order. A loop that does not step "
                "each optimizer once in an iteration takes its place from `revision`. The "
                "gradients were not averaged"
            )
        names = ", ".join(outcome.unlike)
        return f"{names}: another step than {theirs}; its gradients do not count in this one"

    def follows(self, outcome: Outcome) -> bool:
        """Return whether this peer can send again, after an outer step that no peer uses.

        A newcomer then sends nothing until the others are at the step of its loop.
        """
        if outcome.refused and self.unsure:
            self.counts = self.unsure = False
            return True
        return not outcome.refused

    def _name(self, number: int) -> str:
        """Return the names of a step's optimizers."""
        count = len(self._optimizers)
        return names_of(
            self._optimizers, 1 << (number - 1) if number <= count else number - count - 1
        )

    # --- The actions ------------------------------------------------------------------------------

    def own(self) -> dict[str, torch.Tensor]:
        return {}

    def begin(self) -> None:
        """Check the model at the beginning of a call: it may have changed since the last one."""
        if not self.given:
            self._layout.check()

    def measure(self) -> Share:
        """Copy the gradients; see the head of this file for peers that contribute none."""
        body = self._storage[HEAD:]
        self._posted, self._brought, self.sick = 0, False, False
        self._own_bad = [0.0] * len(self._optimizers)
        if self._core.blank or not self.counts:
            body.zero_()
            return Share(0.0, False, 1)
        self._flags.zero_()
        self._bad.zero_()
        owners, named = self._owners(), self._layout.named_parameters()
        for place, (name, view) in enumerate(self._gradients.items()):
            parameter = named[name]
            theirs = owners.get(id(parameter), 0) & self.step.covers
            if not theirs or parameter.grad is None:
                view.zero_()
                if name in self._rows:
                    self._rows[name].zero_()
                continue
            self._flags[place] = 1
            self._read(name, parameter.grad, out=view)
            if self.step.scale is not None:
                view.div_(self.step.scale.to(view.device))
        for name, view in self._changes.items():
            difference(self._agreed[name], self._layout.local(name), out=view)
        if not _is_finite(body) and not self._drop_bad(owners, named):
            body.zero_()
            self.sick = True
            return Share(0.0, True, 1)
        self._own_bad = self._bad.tolist()
        # A GradScaler leaves out the steps of optimizers with an infinity, so another optimizer may
        # step first.
        self._posted, self._brought = 0 if any(self._own_bad) else self.step.number, True
        return Share(1.0, False, 1)

    def _drop_bad(self, owners: Mapping[int, int], named: Mapping[str, torch.nn.Parameter]) -> bool:
        """Drop all gradients of each optimizer that has a gradient that is not finite.

        Returns:
            Whether the rest is useful: neither a stepping optimizer nor a buffer is affected.
        """
        bad = 0
        for name, view in self._gradients.items():
            bad |= 0 if _is_finite(view) else owners.get(id(named[name]), 0)
        if bad & self.step.steps or not all(map(_is_finite, self._changes.values())):
            return False
        for place, (name, view) in enumerate(self._gradients.items()):
            if owners.get(id(named[name]), 0) & bad:
                view.zero_()
                self._flags[place] = 0
                if name in self._rows:
                    self._rows[name].zero_()
        for index in range(len(self._optimizers)):
            self._bad[index] = bad >> index & 1
        return True

    def _owners(self) -> dict[int, int]:
        """Return the optimizers of each parameter, by its id."""
        owners: dict[int, int] = {}
        for index, parameter in members_of(self._optimizers):
            owners[id(parameter)] = owners.get(id(parameter), 0) | 1 << index
        return owners

    def _read(self, name: str, gradient: torch.Tensor, *, out: torch.Tensor) -> None:
        rows = self._rows.get(name)
        if gradient.layout is torch.strided:
            out.copy_(reals(gradient))
            if rows is not None:
                rows.fill_(1)
        elif rows is not None:
            gradient = gradient.coalesce()
            (touched,) = gradient.indices()
            out.zero_()
            out[touched] = reals(gradient.values()).to(out)
            rows.zero_()[touched] = 1
        else:
            raise ValueError(
                f"parameter {name!r} has a gradient in the layout {gradient.layout}. A sparse one "
                "is averaged for a module with sparse=True, such as torch.nn.Embedding: make this "
                "gradient dense by to_dense()"
            )

    def turn(self) -> Share:
        raise AssertionError("DDP does not overlap")

    def landed(self, outcome: Outcome) -> None:
        """The means have arrived."""
        self.outcome = outcome
        named, owners = self._layout.named_parameters(), self._owners()
        self.doubtful = int(not self._brought and outcome.contributors > 0)
        for index, (part, mine) in enumerate(zip(self._bad.tolist(), self._own_bad, strict=True)):
            if not 0 < part < 1 - 1e-6:
                continue  # no contributor has left out this optimizer, or all have
            for name, view in self._gradients.items():
                if owners.get(id(named[name]), 0) >> index & 1:
                    view.div_(1 - part)
            if mine:
                self.doubtful = max(self.doubtful, 1 + round(part * outcome.contributors))
        self.given, self.stepped = False, 0
        flags = (self._flags > 0).tolist()
        self._used = frozenset(
            name for name, used in zip(self._gradients, flags, strict=True) if used
        )
        self.expected = 0
        for name in self._used:
            self.expected |= owners.get(id(named[name]), 0)
        count = len(self._optimizers)
        if 0 < outcome.setting <= count:
            self.expected |= 1 << (outcome.setting - 1)
        elif outcome.setting > count:
            self.expected |= outcome.setting - count - 1

    @property
    def is_own_step(self) -> bool:
        """Whether the outer step that has landed is for the step of this peer's loop."""
        theirs = self.outcome.setting
        if theirs == self.step.number:
            return True
        # A GradScaler may have skipped the first optimizer because of an infinity.
        bad = self.sick or any(self._own_bad)
        return bad and (theirs == 0 or bool(self.step.covers & self.expected))

    def give(self, *, own: bool) -> Iterator[torch.Tensor]:
        """Give the parameters their mean gradients, and the buffers their means.

        Args:
            own: whether the program steps next, with gradients of its own loop.

        Yields:
            The parameters of the step. Those that no peer has used have `grad = None`.
        """
        covers = self.expected | (self.step.covers if own else 0)
        scale = self.step.scale if own else None
        owners, named = self._owners(), self._layout.named_parameters()
        spared = [state for state in self._states if state.has_spares]
        names = self._names() if spared else {}
        for name, view in self._gradients.items():
            parameter = named[name]
            theirs = owners.get(id(parameter), 0)
            if not theirs & covers:
                continue
            gradient = self._mean_for(name, parameter, view) if name in self._used else None
            if gradient is not None and scale is not None and theirs & self.step.scaled:
                gradient.mul_(scale.to(gradient.device))
            parameter.grad = gradient
            for state in spared if gradient is not None else ():
                state.release(parameter, names)
            yield parameter
        for name, change in self._changes.items():
            self._agreed[name].sub_(change)
        self._write_buffers()
        self.given, self.stepped = True, 0

    def are_means(self, index: int, *, changed: Callable[[torch.Tensor], bool]) -> bool:
        """Return whether an optimizer's gradients still are the means of the last outer step.

        If the factor of the gradients was changed, a few elements show it. So only the gradients
        with the fewest elements are compared.

        Args:
            index: the index of the optimizer.
            changed: returns whether the program has changed a parameter's gradient on purpose.
        """
        owners, named = self._owners(), self._layout.named_parameters()
        given = [
            (gradient.numel(), name, gradient)
            for name in sorted(self._used)
            if owners.get(id(named[name]), 0) & 1 << index and not changed(named[name])
            if (gradient := named[name].grad) is not None and gradient.layout is torch.strided
        ]
        for _, name, gradient in sorted(given, key=itemgetter(0))[:4]:
            got = reals(gradient)
            mean = self._gradients[name].to(got.device, got.dtype)  # as it was written
            if not torch.allclose(got.to(torch.float64), mean.to(torch.float64), rtol=0.1, atol=0):
                return False
        return True

    def _mean_for(
        self, name: str, parameter: torch.nn.Parameter, mean: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean gradient of a parameter, in the memory of its present one if possible."""
        gradient, rows = parameter.grad, self._rows.get(name)
        if rows is not None and (gradient is None or gradient.layout is not torch.strided):
            touched = (rows > 0).nonzero().view(1, -1)
            values = mean[touched[0]].to(parameter.device, parameter.dtype)
            return torch.sparse_coo_tensor(
                touched.to(parameter.device),
                values,
                parameter.shape,
                is_coalesced=True,
                check_invariants=False,
            )
        if gradient is None or gradient.is_conj() or 0 in gradient.stride():
            gradient = torch.empty_like(parameter)
        reals(gradient).copy_(mean)
        return gradient

    def apply(self) -> None:
        """Take the others' step, unless the program has taken it."""
        if not self.given:
            self.steps_itself = True
            try:
                for _ in self.give(own=False):
                    pass
                for index, optimizer in enumerate(self._optimizers):
                    if self.expected & 1 << index:
                        optimizer.step()
                        optimizer.zero_grad()
            finally:
                self.steps_itself = False
        self.given = False

    def load(self) -> None:
        """Do nothing: `give` has written the model's buffers."""

    def _write_buffers(self) -> None:
        for name, agreed in self._agreed.items():
            self._layout.local(name).copy_(agreed)
        self._layout.write_counters(self.counters)

    def adopt(self) -> Share | None:
        """Continue from the received state; the sync has written it into the model itself."""
        self.take()
        self._write_buffers()
        return None

    def take(self) -> None:
        """Give the optimizers the received state: numbers, and tensors that they had not made."""
        names = self._names()
        for state in self._states:
            state.adopt(names)

    def interrupted(self) -> None:
        """Do nothing: the next attempt measures the gradients again."""

    failed = hold = interrupted

    def restart(self) -> None:
        """Drop the means of the last outer step, because this peer is out of the run."""
        self.given, self.doubtful = False, 0


def _is_finite(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0:
        return True
    low, high = tensor.aminmax()
    return bool(low.isfinite() & high.isfinite())
