"""DDP at its corners: scalers of several optimizers, odd closures, averages, devices and modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ddp_table as table
import pytest
import torch
from ddp_table import Program
from scripted_group import ScriptedGroup, same_bits, script, small_model
from threaded_group import ThreadedGroup, threads

import pccl_backend as pccl
from pccl_backend.trainers import DDP, DiLoCo

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> ThreadedGroup:
    return threads(monkeypatch, "ab")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


def learn(model: torch.nn.Module) -> None:
    model(torch.ones(4, 3)).square().sum().backward()


# --- A GradScaler of two optimizers ---------------------------------------------------------------


def two(scale: float) -> Program:
    me = table.program("AdamW", "two", dtype=torch.float64)
    me.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return me


def scaled(me: Program, number: int, *, unscales: bool) -> None:
    me.zero_grad()
    me.backward(number)
    if unscales:
        for optimizer in me.optimizers:
            me.scaler.unscale_(optimizer)
    for optimizer in me.optimizers:
        me.scaler.step(optimizer)
    me.scaler.update()


def peers_of(iterate: table.Loop, *peers: Program) -> dict[str, Callable[[], Any]]:
    return {
        "ab"[number]: partial(table.under_ddp, me, iterate, number)
        for number, me in enumerate(peers)
    }


def test_scales_of_two_optimizers_that_are_unscaled_first(pair: ThreadedGroup) -> None:
    iterate = partial(scaled, unscales=True)
    got = pair.run(peers_of(iterate, two(8.0), two(2.0)))
    want = table.alone(two(1.0), iterate, lambda step: [0, 1])
    assert same_bits(got["a"], got["b"])
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-9)
    assert (pair.meetings, pair.corrected) == (table.STEPS, [])


def test_scales_of_two_optimizers_that_are_not_unscaled_are_refused(pair: ThreadedGroup) -> None:
    for outcome in pair.outcomes(
        peers_of(partial(scaled, unscales=False), two(8.0), two(2.0))
    ).values():
        with pytest.raises(
            ValueError, match=r"optimizer 1 \(SGD\) were averaged before .*unscale_"
        ):
            raise outcome


# --- Closures and averages ------------------------------------------------------------------------


class Deaf(torch.optim.SGD):
    """Does not evaluate its closure."""

    def step(self, closure: Any = None) -> Any:
        return super().step()


def test_a_closure_that_is_not_evaluated(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = Deaf(model.parameters(), lr=0.1)
    with DDP(model, optimizer):
        learn(model)
        with pytest.raises(ValueError, match=r"optimizer 0 \(Deaf\) was given a closure"):
            optimizer.step(lambda: 0.0)


def test_a_closure_that_raises_may_be_given_again(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fails() -> Any:
        raise ZeroDivisionError

    with DDP(model, optimizer) as trainer:
        with pytest.raises(ZeroDivisionError):
            optimizer.step(fails)
        optimizer.step(lambda: learn(model))
        learn(model)
        optimizer.step()
        assert trainer.revision == 2


def test_average_has_its_place(group: ScriptedGroup) -> None:
    model = small_model()
    one = torch.optim.SGD(model[0].parameters(), lr=0.1)
    two = torch.optim.SGD(model[1].parameters(), lr=0.1)
    trainer = DDP(model, [one, two])
    with pytest.raises(pccl.InvalidStateError, match="average"):
        trainer.average()
    with trainer:
        with pytest.raises(
            ValueError, match="Adam is none of the trainer's optimizers: optimizer 0"
        ):
            trainer.average(torch.optim.Adam(model.parameters()))
        learn(model)
        trainer.average()
        trainer.average()
        assert len(group.reduced) == 1, "nothing has changed"
        one.step()
        assert trainer.revision == 1, "it is counted when an optimizer has stepped"
        learn(model)
        with pytest.raises(ValueError, match=r"a backward came between average\(\) and the step"):
            two.step()
        with pytest.raises(ValueError, match=r"optimizer 1 \(SGD\) has not stepped: give average"):
            trainer.average(one)


def test_the_round_of_an_average_may_be_left_without_a_step(group: ScriptedGroup) -> None:
    """A program may look at the norm and skip the step, on all peers alike."""
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with DDP(model, optimizer) as trainer:
        learn(model)
        trainer.average()
        optimizer.zero_grad()
        learn(model)
        trainer.average()
        optimizer.step()
        assert trainer.revision == 2
        learn(model)
        trainer.average()


def test_a_meeting_ends_the_round_first(group: ScriptedGroup) -> None:
    model = small_model()
    one = torch.optim.SGD(model[0].parameters(), lr=0.1)
    two = torch.optim.SGD(model[1].parameters(), lr=0.1)
    with DDP(model, [one, two]) as trainer:
        learn(model)
        one.step()
        assert "update_topology" not in group.calls
        trainer.meet()
        assert (trainer.revision, group.calls.count("update_topology")) == (1, 2)
        learn(model)
        one.step()
    assert group.calls.count("update_topology") == 3, "the end of the block meets, too"


def test_a_sparse_gradient_of_a_dense_module(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with DDP(model, optimizer):
        model[0].weight.grad = torch.ones(5, 3).to_sparse()
        with pytest.raises(ValueError, match=r"'0.weight' has a gradient in the layout torch.spa"):
            optimizer.step()


# --- Devices, modes, and optimizers that are not known --------------------------------------------


@pytest.mark.parametrize("kind", [DDP, partial(DiLoCo, every=1, outer_optimizer=None)])
def test_the_default_device_is_for_the_program(group: ScriptedGroup, kind: Any) -> None:
    model = small_model()
    model.register_buffer("seen", torch.ones(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.device("meta"), kind(model, optimizer) as trainer:
        for _ in range(2):
            model(torch.ones(4, 3, device="cpu")).square().sum().backward()
            optimizer.step()
        assert trainer.revision == 2


@pytest.mark.parametrize("kind", [DDP, partial(DiLoCo, every=1)])
def test_inference_mode_around_the_block(group: ScriptedGroup, kind: Any) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.inference_mode():
        trainer = kind(model, optimizer)
        trainer.__enter__()
    learn(model)
    optimizer.step()
    with torch.inference_mode():
        assert trainer.revision == 1
        trainer.meet()
    learn(model)
    optimizer.step()
    trainer.__exit__(None, None, None)
    assert trainer.revision == 2


@pytest.mark.parametrize("kind", [DDP, DiLoCo])
def test_a_model_of_inference_mode_is_refused(kind: Any) -> None:
    model = small_model()
    with torch.inference_mode():
        model.register_buffer("made", torch.ones(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="buffer 'made' was made in inference mode"):
        kind(model, optimizer)


@pytest.mark.parametrize("steps", [False, True])
def test_diloco_tells_of_an_optimizer_that_it_does_not_know(
    group: ScriptedGroup, caplog: pytest.LogCaptureFixture, steps: bool
) -> None:
    model = small_model()
    known = torch.optim.SGD(model.parameters(), lr=0.1)
    other = torch.optim.Adam(model.parameters(), lr=0.1)

    def train() -> None:
        with DiLoCo(model, known, every=2):
            for _ in range(3):
                learn(model)
                other.step()
            if steps:
                known.step()

    if steps:
        train()
    else:
        with pytest.raises(ValueError, match="no optimizer of the trainer has stepped, but Adam"):
            train()
    (record,) = (r for r in caplog.records if "does not know" in r.getMessage())
    assert "parameter '0.weight'" in record.getMessage()
    other.step()  # after the block no check applies


def test_hooks_end_with_the_block(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with DDP(model, optimizer):
        learn(model)
        optimizer.step()
    calls = list(group.calls)
    learn(model)
    optimizer.step()
    assert group.calls == calls
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


# --- Gradients that are not finite ----------------------------------------------------------------


@pytest.mark.parametrize("everywhere", [False, True])
def test_an_infinity_that_the_step_does_not_use(pair: ThreadedGroup, everywhere: bool) -> None:
    """The generator's backward gives the discriminator a gradient that its zero_grad drops."""

    def iterate(me: Program, number: int) -> None:
        discriminator, generator = me.optimizers
        me.zero_grad()
        me.backward(number, table.loss_of_discriminator)
        discriminator.step()
        me.zero_grad()
        me.backward(number, table.loss_of_generator)
        if number == 2 and (everywhere or me.peers == [1]):
            discriminator.param_groups[0]["params"][0].grad.fill_(float("inf"))
        generator.step()

    make = partial(table.program, "AdamW", "GAN", dtype=torch.float64)
    peers = {
        name: partial(table.under_ddp, make(), iterate, number, rounds=2)
        for number, name in enumerate("ab")
    }
    got = pair.run(peers)
    want = table.alone(make(), table.gan, lambda step: [0, 1])
    assert same_bits(got["a"], got["b"])
    torch.testing.assert_close(got["a"], want, rtol=1e-6, atol=1e-9)


def test_ddp_trains_after_start_without_a_block(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = DDP(model, optimizer)
    trainer.start()
    learn(model)
    optimizer.step()
    assert trainer.revision == 1
    trainer.close()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
