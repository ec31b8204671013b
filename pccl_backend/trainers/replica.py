"""Replica: a DiLoCo peer's copies of the model, and the effect of each action on them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from pccl_backend.trainers.core import Core
from pccl_backend.trainers.exchange import Outcome, Share
from pccl_backend.trainers.flat import Buffers
from pccl_backend.trainers.outer import Nesterov, Rule, TorchRule
from pccl_backend.trainers.pieces import Piece
from pccl_backend.trainers.residuals import Residuals
from pccl_backend.trainers.settings import Settings
from pccl_backend.trainers.stages import Delta

__all__ = ["Replica"]


class Replica:
    """The buffers of one trainer and the outer rule.

    Args:
        buffers: the global parameters and the pseudo-gradient, over the model.
        settings: the settings of the trainer.
        core: decides on the next action.

    Attributes:
        message: the buffers: a part of them travels.
        outcome: the result of the last outer step that has landed.
        inner_steps: inner steps that this peer has taken.
    """

    strict = False  # peers with the settings of most peers continue
    doubtful = 0

    def __init__(self, buffers: Buffers, settings: Settings, core: Core) -> None:
        self._settings = settings
        self._core = core
        self.message = buffers
        buffers.fill()
        self._rule = self._make_rule()
        self._learned = False  # whether the buffer holds the learning of the local copy
        self._kept = (
            False  # carry: whether the local copy was kept when the last outer step was sent
        )
        # Steps and amount at the last send of each fragment, and at the last measurement.
        self._sent = [(0, 0.0)] * settings.fragments
        self._measured_at = (0, 0.0)
        # Whether the local parameters were copied, because a call raised after its all-reduce had
        # begun.
        self._interrupted = False
        self.outcome = Outcome()
        self.inner_steps = 0
        self._residuals: Residuals | None = None
        if settings.error_feedback and settings.quantize is not None:
            self._residuals = Residuals(settings.quantize, self.message.spans)

    def shared(self) -> dict[str, torch.Tensor]:
        """Return the tensors that are equal on all peers, by name."""
        state = self.message.shared()
        if isinstance(self._rule, Nesterov):
            momentum = self.message.by_parameter(self._rule.momentum)
            return state | {f"momentum/{name}": view for name, view in momentum}
        return state | self._rule.state()

    def own(self) -> dict[str, torch.Tensor]:
        """Return this peer's own tensors, by name: the residuals of its error feedback."""
        if self._residuals is None:
            return {}
        lost = self._residuals.lost
        return {
            f"residual/{piece.name}": lost[piece.start : piece.stop].view(piece.shape)
            for piece in self.message.pieces()
        }

    def settings(self) -> str:
        """Return a text with the settings that must be equal on all peers.

        `outer_lr` may be a function of the number of outer steps. So call this once all peers have
        agreed on this number.
        """
        return self._settings.shown(self._core.progress.outer_steps)

    def number(self) -> int:
        """Return a number from 1 to 2**24 - 1 that represents these settings."""
        digest = hashlib.blake2b(self.settings().encode(), digest_size=3).digest()
        return int.from_bytes(digest, "little") or 1

    def difference(self, outcome: Outcome) -> str:
        """Return the text of an error about settings that differ."""
        return (
            "the settings of this trainer differ from those of the other peers (of most, or of "
            "the lowest rank), and must be equal on all: start it anew with theirs. Here they "
            f"are {self.settings()}"
        )

    def follows(self, outcome: Outcome) -> bool:
        raise AssertionError("the mean counts for those with the settings of most")

    # --- The actions ------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a call: the program may have taken inner steps since the last one."""
        self.message.check()
        self._learned = False

    def measure(self) -> Share:
        """Measure the pseudo-gradient since the last outer step, for a blocking trainer."""
        self._learned = False
        self.message.measure(self._core.fragment)
        return self._weigh(self._core.fragment)

    def turn(self) -> Share:
        """Measure the next fragment to send. Apply a landed outer step of the same fragment."""
        fragment, alpha = self._core.fragment, self._settings.alpha
        if self._core.fused:
            self._swap(fragment)
            self.message.write_counters()
        else:
            self.message.measure(fragment)
            if alpha is None:
                self.message.keep(fragment)
            elif self._settings.mix == "delay":
                self.message.mix(fragment, 0.0)
        self._kept = alpha is None
        return self._weigh(fragment)

    def landed(self, outcome: Outcome) -> None:
        """Take note of the result of an outer step that has landed."""
        self.outcome = outcome
        if self._residuals is not None:
            self._residuals.landed(self._core.fragment, quantized=outcome.quantized)
        self._sent[self._core.fragment] = self._measured_at

    def apply(self) -> None:
        """Move the globals."""
        self._move(self.message.fragments[self._core.fragment])

    def load(self) -> None:
        """Bring the moved globals into the local copy."""
        fragment = (self._core.progress.outer_steps - 1) % self._settings.fragments
        if self._core.blocking:
            if self._interrupted:
                self.message.measure_since(fragment)
                self._interrupted = False
            else:
                self.message.delta(fragment).zero_()
            self.message.load(fragment)
            self._learned = self._settings.fragments == 1
        elif self._settings.alpha is None:
            self.message.carry(fragment)
            self._kept = False
        else:
            self.message.mix(fragment, self._settings.alpha)
        if fragment == 0:
            self.message.write_counters()

    def interrupted(self) -> None:
        """Copy the local parameters if a call raised while its all-reduce runs.

        Inner steps may follow, and the all-reduce does not include them.
        """
        flies = self._core.delta in (Delta.FLYING, Delta.MEAN)
        if self._core.blocking and flies and not self._interrupted:
            self.message.remember(self._core.fragment)
            self._interrupted = True

    def failed(self) -> None:
        """Note a failed all-reduce. The learning is still in the local copy, or in the buffer."""
        self._interrupted = False

    def hold(self) -> None:
        """Measure the learning of the local copy, so that it survives a sync with other globals."""
        holds = self._core.delta is Delta.FREE and self._settings.fragments == 1
        if holds and not self._learned:
            self.message.measure(0)
            self._learned = True

    def adopt(self) -> Share | None:
        """Continue from the received globals; return a newcomer's share of the outer step."""
        share = None
        self.take()
        if self._learned:
            self.message.load(0)
            self.message.write_counters()
        else:
            self.message.adopt()
        if self._core.blank:  # the learning stays in the local copy, and is sent later
            self.message.delta(self._core.fragment).zero_()
            if self._residuals is not None:
                self._residuals.drop()
            self._learned = False
            share = Share(0.0, False, 0)
        if self._settings.alpha is None and self._core.delta is Delta.OWN:
            self.message.keep(self._core.fragment)
            self._kept = True
        return share

    def take(self) -> None:
        """Put the written shared state into the outer rule."""
        self._rule.adopt()

    def restart(self) -> None:
        """Begin again as a newcomer with the present model."""
        self._kept = self._learned = self._interrupted = False
        if self._residuals is not None:
            self._residuals.reset()

    # --- Parts of the actions ---------------------------------------------------------------------

    def _swap(self, fragment: int) -> None:
        """Measure the next pseudo-gradient, move the globals by the present one, and load."""
        pieces, alpha = self.message.fragments[fragment], self._settings.alpha
        at_once = 1 if isinstance(self._rule, Nesterov) else len(pieces)
        for first in range(0, len(pieces), at_once):
            stop = min(first + at_once, len(pieces))
            self.message.swap_out(fragment, first, stop, kept=self._kept)
            self._move(pieces[first:stop])
            self.message.swap_in(fragment, first, stop, alpha=alpha)
        if alpha is None:
            self.message.keep(fragment)

    def _move(self, pieces: Sequence[Piece]) -> None:
        """Move the globals of some pieces of one fragment; overwrites their pseudo-gradient."""
        if self.outcome.contributors == 0:
            return
        fragment = self._core.fragment
        first = self.message.spans[fragment][0]
        theirs, delta = self.message.global_, self.message.delta(fragment)
        moved = [piece for piece in pieces if not piece.is_buffer]
        if moved:
            start, stop = moved[0].start, moved[-1].stop
            step = delta[start - first : stop - first]
            if isinstance(self._rule, Nesterov):
                outer_steps = self._core.progress.outer_steps
                self._rule.apply(theirs[start:stop], step, start=start, outer_steps=outer_steps)
            else:
                self._rule.apply_fragment(fragment, step)
        for piece in pieces:
            if piece.is_buffer:
                part = slice(piece.start - first, piece.stop - first)
                theirs[piece.start : piece.stop].sub_(delta[part])

    def _weigh(self, fragment: int) -> Share:
        """Scale the pseudo-gradient by this peer's weight."""
        by = self._settings.weight
        amount = float(by()) if callable(by) else float(self.inner_steps)
        self._measured_at = (self.inner_steps, amount)
        steps_before, amount_before = self._sent[fragment]
        steps = self.inner_steps - steps_before
        weight = 1.0 if by == "equal" else amount - amount_before
        delta = self.message.delta(fragment)
        nothing = torch.zeros((), device="cpu")
        low, high = delta.aminmax() if len(delta) else (nothing, nothing)
        sick = not bool(low.isfinite() & high.isfinite())
        if sick or (self._core.blank and not bool(low) and not bool(high)):
            weight = 0.0
        weight = torch.tensor(weight, dtype=delta.dtype, device="cpu").item()
        if weight == 0:
            delta.zero_()
        elif weight != 1:
            delta.mul_(weight)
        if self._residuals is not None:
            self._residuals.drop()
            if weight != 0:
                self._residuals.compensate(fragment, delta)
        if sick and not self._core.blocking:
            self.message.adopt(fragment=fragment)
            if self._settings.alpha is None:
                self.message.keep(fragment)
        return Share(weight, sick, steps)

    def _make_rule(self) -> Rule:
        settings, flat = self._settings, self.message.global_
        if settings.outer_optimizer is None:
            return Nesterov(
                lr=settings.outer_lr,
                momentum=settings.outer_momentum,
                count=len(flat),
                dtype=flat.dtype,
            )
        cuts = [
            flat[pieces[0].start : max(piece.stop for piece in pieces if not piece.is_buffer)]
            for pieces in self.message.fragments
        ]
        return TorchRule(settings.outer_optimizer, cuts)
