"""DDP and loops that it cannot serve: each is refused by name, before any peer has wrong values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ddp_table as table
import pytest
import torch
from ddp_table import LOOPS, STEPS, Loop, Net, Program
from scripted_group import same_bits
from threaded_group import PeersFailedError, ThreadedGroup, threads

from pccl_backend.trainers import DDP

pytestmark = pytest.mark.usefixtures("one_thread")

SGD = partial(torch.optim.SGD, lr=0.1)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ThreadedGroup:
    return threads(monkeypatch, "ab")


def program(*, scale: float | None = None, fused: bool = False) -> Program:
    return table.program("AdamW", "fused" if fused else "GradScaler", scale=scale)


def peers_of(iterate: Loop, peers: list[Program]) -> dict[str, Callable[[], Any]]:
    return {
        "abc"[number]: partial(table.under_ddp, me, iterate, number)
        for number, me in enumerate(peers)
    }


def require_refused(group: ThreadedGroup, iterate: Loop, says: str) -> None:
    """Both peers' loops do the same, and raise the same."""
    outcomes = group.outcomes(peers_of(iterate, [program(), program()]))
    assert len(outcomes) == 2
    for outcome in outcomes.values():
        assert isinstance(outcome, BaseException), "it was trained"
        with pytest.raises(ValueError, match=says):
            raise outcome


def test_an_optimizer_that_steps_inside_backward(group: ThreadedGroup) -> None:
    def iterate(me: Program, number: int) -> None:
        weight, (optimizer,) = me.model.first.weight, me.optimizers
        if number == 2:
            weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        me.backward(number)
        assert number < 2, "its step has raised"
        optimizer.step()
        me.zero_grad()

    require_refused(group, iterate, "backward")


def test_an_optimizer_made_anew(group: ThreadedGroup) -> None:
    def iterate(me: Program, number: int) -> None:
        if number == 2:
            me.optimizers = [torch.optim.Adagrad(me.model.parameters())]
        before = table.values_of(me.model)
        try:
            table.plain(me, number)
        finally:
            moved = not same_bits(table.values_of(me.model), before)
            assert moved == (number < 2), "it is refused before it has moved a parameter"

    require_refused(group, iterate, "Adagrad")


def test_an_optimizer_of_another_model_steps_as_it_likes(group: ThreadedGroup) -> None:
    def iterate(me: Program, number: int) -> None:
        other = torch.nn.Linear(2, 2)
        other(torch.ones(2)).sum().backward()
        SGD(other.parameters()).step()
        table.plain(me, number)

    got = group.run(peers_of(iterate, [program(), program()]))
    assert same_bits(got["a"], got["b"])
    assert group.meetings == STEPS


def test_an_optimizer_that_also_moves_something_else() -> None:
    """The peers would not average a loss's own parameter, and a newcomer would not receive it."""
    me, scale = program(), torch.nn.Parameter(torch.ones(2, 3))
    optimizer = SGD([*me.model.parameters(), scale])
    with pytest.raises(ValueError, match=r"\(SGD\) moves a parameter of shape \(2, 3\)"):
        DDP(me.model, optimizer)


def test_a_backward_between_average_and_step(group: ThreadedGroup) -> None:
    def iterate(me: Program, number: int) -> None:
        me.backward(number)
        me.average()
        if number == 2:
            me.backward(number)
        me.optimizers[0].step()
        assert number < 2, "its step has raised"
        me.zero_grad()

    require_refused(group, iterate, "average")


class Twice(torch.optim.SGD):
    """Evaluates its closure twice in a step."""

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure()
        return super().step(closure)


def test_a_closure_that_is_evaluated_twice(group: ThreadedGroup) -> None:
    peers = [program(), program()]
    for me in peers:
        me.optimizers = [Twice(me.model.parameters(), lr=0.1)]
    outcomes = group.outcomes(peers_of(LOOPS["closure"], peers))
    for outcome in outcomes.values():
        assert isinstance(outcome, BaseException), "it was trained"
        with pytest.raises(ValueError, match="closure"):
            raise outcome


class Lists(torch.optim.SGD):
    """Keeps a list in its state."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["past"] = [*state.get("past", []), 1]
        return super().step(closure)


def test_a_state_that_cannot_be_shared(group: ThreadedGroup) -> None:
    peers = [program(), program()]
    for me in peers:
        me.optimizers = [Lists(me.model.parameters(), lr=0.1)]
    outcomes = group.outcomes(peers_of(table.plain, peers))
    for outcome in outcomes.values():
        assert isinstance(outcome, BaseException), "it was trained"
        with pytest.raises(ValueError, match=r"optimizer 0 \(Lists\) keeps 'past' .* as list"):
            raise outcome


def test_peers_that_step_different_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer c takes the optimizers in another order from iteration 2 on: a and b never use it."""
    group = threads(monkeypatch, "abc")

    def make() -> Program:
        return table.program("AdamW", "two", dtype=torch.float64)

    def iterate(me: Program, number: int, swaps: bool = False) -> None:
        pair = reversed(me.optimizers) if swaps and number == 2 else me.optimizers
        for optimizer in pair:
            me.zero_grad()
            me.backward(number)
            optimizer.step()

    peers = [make() for _ in range(3)]
    outcomes = group.outcomes(
        {
            name: partial(
                table.under_ddp, me, partial(iterate, swaps=name == "c"), number, rounds=2
            )
            for number, (name, me) in enumerate(zip("abc", peers, strict=True))
        }
    )
    refused = [o for o in outcomes.values() if isinstance(o, BaseException)]
    assert isinstance(outcomes["c"], ValueError), outcomes
    for error in refused:
        assert "AdamW" in str(error), error
        assert "SGD" in str(error), error
    whole = table.alone(make(), iterate, lambda step: [0, 1, 2] if step < 2 else [0, 1])
    before = make()
    for step in range(2):
        before.peers = [0, 1, 2]
        iterate(before, step)
    for name, me in zip("ab", peers, strict=False):
        trained_on = isinstance(outcomes[name], torch.Tensor)
        want = whole if trained_on else table.values_of(before.model)
        torch.testing.assert_close(table.values_of(me.model), want, rtol=1e-6, atol=1e-9)


# --- A GradScaler with an infinity ----------------------------------------------------------------


def overflows(at: int, peers: set[int]) -> Loop:
    """Return a loop whose first loss of an iteration is infinite on these peers."""
    done: set[int] = set()

    def loss(model: Net, number: int, peer: int) -> torch.Tensor:
        value = table.loss(model, number, peer)
        if number != at or peer not in peers or peer in done:
            return value
        done.add(peer)
        return value * float("inf")

    def iterate(me: Program, number: int) -> None:
        me.loss_of = loss
        table.scaler(me, number)

    return iterate


def scales(peers: list[Program]) -> list[float]:
    return [me.scaler.get_scale() for me in peers]


def test_an_infinity_on_one_peer(group: ThreadedGroup) -> None:
    """Its step is skipped, and it gives its next gradient to the others' step."""
    peers = [program(scale=8.0), program(scale=4.0)]
    got = group.run(peers_of(overflows(2, {1}), peers))
    want = table.alone(program(), table.scaler, lambda step: [0, 1])
    assert same_bits(got["a"], got["b"])
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-6)
    assert scales(peers) == [8.0, 2.0]


def test_an_infinity_on_one_peer_of_a_fused_optimizer(group: ThreadedGroup) -> None:
    """It weighs nothing in the round, and steps with the mean of the others."""
    peers = [program(scale=8.0, fused=True), program(scale=4.0, fused=True)]
    got = group.run(peers_of(overflows(2, {1}), peers))
    want = table.alone(program(fused=True), table.scaler, lambda s: [0] if s == 2 else [0, 1])
    assert same_bits(got["a"], got["b"])
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-6)
    assert scales(peers) == [8.0, 2.0]
    assert group.meetings == STEPS


def test_an_infinity_on_all_peers_of_a_fused_optimizer(group: ThreadedGroup) -> None:
    """There is no mean: the step moves nothing, as in one process."""
    peers = [program(scale=8.0, fused=True), program(scale=4.0, fused=True)]
    seen: dict[tuple[int, int], list[torch.Tensor]] = {}
    overflow = overflows(2, {0, 1})

    def iterate(me: Program, number: int) -> None:
        before = table.values_of(me.model)
        overflow(me, number)
        seen.setdefault((number, me.peers[0]), []).append(table.values_of(me.model) - before)

    got = group.run(peers_of(iterate, peers))
    assert same_bits(got["a"], got["b"])
    for peer in range(2):
        assert seen[2, peer][0].eq(0).all()
        assert seen[3, peer][0].ne(0).any()
    assert scales(peers) == [4.0, 2.0]


def unscaled(me: Program, number: int) -> None:
    """The scaler's steps come after those that all peers average, or skip."""
    for optimizer in me.optimizers:
        me.scaler.unscale_(optimizer)
    me.average()
    for optimizer in me.optimizers:
        me.scaler.step(optimizer)
    me.scaler.update()
    me.zero_grad()


@pytest.mark.parametrize("averages", [True, False])
@pytest.mark.parametrize("sick", [0, 1])
def test_a_step_left_out_for_an_infinity(
    monkeypatch: pytest.MonkeyPatch, averages: bool, sick: int
) -> None:
    """The others step. This peer's gradients do not count until it has received their step.

    It receives the step when a later optimizer of the list has stepped, or at its next round.
    """
    group = threads(monkeypatch, "abc")

    def iterate(me: Program, number: int) -> None:
        me.backward(number)
        if number == 2 and me.peers == [1]:
            me.optimizers[sick].param_groups[0]["params"][0].grad.fill_(float("inf"))
        if not averages:
            me.average = lambda: None
        unscaled(me, number)

    def make(scale: float | None = None) -> Program:
        me = table.program("AdamW", "two", dtype=torch.float64)
        me.scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        return me

    def peer(me: Program, number: int) -> torch.Tensor:
        me.peers = [number]
        with DDP(me.model, me.optimizers) as trainer:
            me.average = trainer.average
            for step in range(STEPS):
                iterate(me, step)
        return table.values_of(me.model)

    got = group.run({n: partial(peer, make(4.0), i) for i, n in enumerate("abc")})

    def brought(number: int, optimizer: int) -> list[int]:
        """Return the peers whose gradients an optimizer's step has."""
        infinite = number == 2 and (averages or optimizer == sick)
        stale = number == 3 and sick == 1
        return [0, 2] if infinite or stale else [0, 1, 2]

    def apart(me: Program, number: int) -> None:
        means = []
        for index, optimizer in enumerate(me.optimizers):
            me.peers = brought(number, index)
            me.backward(number)
            means.append([p.grad for p in optimizer.param_groups[0]["params"]])
            me.zero_grad()
        for optimizer, gradients in zip(me.optimizers, means, strict=True):
            for parameter, gradient in zip(
                optimizer.param_groups[0]["params"], gradients, strict=True
            ):
                parameter.grad = gradient
        for optimizer in me.optimizers:
            optimizer.step()
        me.zero_grad()

    want = table.alone(make(), apart, lambda step: [0, 1, 2])
    assert all(same_bits(got["a"], other) for other in got.values())
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-9)


def test_a_step_left_out_on_all_peers(group: ThreadedGroup) -> None:
    """Each scaler leaves out one of two steps: there is no mean, and the run goes on."""

    def peer(me: Program, number: int) -> torch.Tensor:
        me.peers = [number]
        me.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with DDP(me.model, me.optimizers) as trainer:
            me.average = trainer.average
            for step in range(3):
                me.backward(step)
                if step == 1:
                    me.model.second.weight.grad.fill_(float("inf"))
                unscaled(me, step)
        return table.values_of(me.model)

    peers = [table.program("AdamW", "two") for _ in range(2)]
    got = group.run(
        {n: partial(peer, me, i) for i, (n, me) in enumerate(zip("ab", peers, strict=True))}
    )
    assert same_bits(got["a"], got["b"])


# --- The rounds -----------------------------------------------------------------------------------


def test_average_makes_the_round_of_the_step(group: ThreadedGroup) -> None:
    revisions: list[list[int]] = []

    def peer(me: Program, number: int) -> None:
        me.peers = [number]
        with DDP(me.model, me.optimizers) as trainer:
            for step in range(3):
                me.backward(step)
                trainer.average()
                first = {n: p.grad.clone() for n, p in me.model.named_parameters()}
                me.optimizers[0].step()
                for name, parameter in me.model.named_parameters():
                    assert same_bits(parameter.grad, first[name]), "it was averaged once"
                revisions.append([step, trainer.revision])
                me.zero_grad()

    group.run({"a": partial(peer, program(), 0), "b": partial(peer, program(), 1)})
    assert sorted(revisions) == sorted([[0, 1], [1, 2], [2, 3]] * 2)


def test_optimizers_over_one_backward_share_a_round(group: ThreadedGroup) -> None:
    peers = [table.program("AdamW", "two") for _ in range(2)]
    group.run(peers_of(table.plain, peers))
    sums = [size for _, op, size in group.reduced if op == "sum"]
    assert (group.meetings, len(sums)) == (STEPS, STEPS)


def test_several_steps_of_one_optimizer_per_step_of_the_other(group: ThreadedGroup) -> None:
    def iterate(me: Program, number: int) -> None:
        for part in range(3):
            me.zero_grad()
            me.backward(10 * number + part, table.loss_of_discriminator)
            me.optimizers[0].step()
        me.zero_grad()
        me.backward(number, table.loss_of_generator)
        me.optimizers[1].step()

    make = partial(table.program, "AdamW", "GAN", dtype=torch.float64)
    peers = {
        name: partial(table.under_ddp, make(), iterate, number, rounds=4)
        for number, name in enumerate("ab")
    }
    try:
        got = group.run(peers)
    except PeersFailedError as error:
        raise AssertionError(str(error)) from error
    want = table.alone(make(), iterate, lambda step: [0, 1])
    assert same_bits(got["a"], got["b"])
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-9)
    assert group.meetings == 4 * STEPS
