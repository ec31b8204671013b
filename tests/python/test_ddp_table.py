"""DDP trains as one process does that takes the mean of the peers' losses: optimizers x loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import ddp_table as table
import pytest
import torch
import work_ddp_table as work
from conftest import MakeWorld
from ddp_table import LOOPS, OPTIMIZERS, ROUNDS, STEPS, TORCH_HAS_NOT
from scripted_group import same_bits
from threaded_group import threads
from world import Master, Returned

pytestmark = pytest.mark.usefixtures("one_thread")

SCENES = ("two", "three", "newcomer")
REFUSED = [(name, loop) for name, row in OPTIMIZERS.items() if row.refused for loop in LOOPS]
REFUSED = [cell for cell in REFUSED if cell not in TORCH_HAS_NOT]
CELLS = [(name, loop) for name in OPTIMIZERS for loop in LOOPS]
CELLS = [cell for cell in CELLS if cell not in TORCH_HAS_NOT and cell not in REFUSED]


def show(value: Any) -> str:
    return str(value).replace(" ", "_")


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / want.abs().max())


def test_the_table_has_all_optimizers_of_torch() -> None:
    kinds = {kind for kind in vars(torch.optim).values() if isinstance(kind, type)}
    kinds = {k for k in kinds if issubclass(k, torch.optim.Optimizer)} - {torch.optim.Optimizer}
    assert kinds <= {row.kind for row in OPTIMIZERS.values()}
    assert len(OPTIMIZERS) == 22


@pytest.mark.parametrize(("name", "loop"), TORCH_HAS_NOT, ids=show)
def test_torch_has_it_not(name: str, loop: str) -> None:
    with pytest.raises((TypeError, RuntimeError), match=TORCH_HAS_NOT[name, loop]):
        table.alone(table.program(name, loop), LOOPS[loop], lambda step: [0])


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("name", "loop"), CELLS, ids=show)
def test_a_cell(monkeypatch: pytest.MonkeyPatch, name: str, loop: str, scene: str) -> None:
    rounds = ROUNDS.get(loop, 1)
    dtype = torch.float32 if scene == "two" else torch.float64  # thirds round
    admit = {"c": 3 * rounds - 1} if scene == "newcomer" else {}
    peers = "ab" if scene == "two" else "abc"
    group = threads(monkeypatch, [p for p in peers if p not in admit], admit=admit)
    programs = {}
    for number, peer in enumerate(peers):
        programs[peer] = table.program(name, loop, dtype=dtype, scale=2.0 ** (4 - number))
        with torch.no_grad():  # the parameters of the lowest rank count
            programs[peer].model.second.weight.add_(number)
    got = group.run(
        {
            peer: partial(table.under_ddp, me, LOOPS[loop], number, rounds)
            for number, (peer, me) in enumerate(programs.items())
        }
    )
    late = 3 if scene == "newcomer" else 0
    want = table.alone(
        table.program(name, loop, dtype=dtype),
        LOOPS[loop],
        lambda step: [n for n in range(len(peers)) if n < 2 or step >= late],
    )
    assert all(same_bits(got["a"], other) for other in got.values())
    assert group.corrected == [], "a sync has hidden that peers trained differently"
    assert group.meetings == STEPS * rounds
    assert relative_error(got["a"], want) < 1e-6


@pytest.mark.parametrize("meeting", [4, 5])
def test_a_newcomer_between_the_steps_of_a_gan(
    monkeypatch: pytest.MonkeyPatch, meeting: int
) -> None:
    """If it comes before the generator's step of iteration 2, it takes that step with the others.

    Its own first gradients, for the discriminator, were then made too early, and do not count.
    """
    group = threads(monkeypatch, "ab", admit={"c": meeting})
    make = partial(table.program, "AdamW", "GAN", dtype=torch.float64)
    peers = {
        peer: partial(table.under_ddp, make(), LOOPS["GAN"], number, 2)
        for number, peer in enumerate("abc")
    }
    got = group.run(peers)
    alone = make()

    def comes(number: int) -> list[int]:
        return [0, 1, 2] if number >= (4 if meeting == 4 else 3) else [0, 1]

    def iterate(me: table.Program, number: int) -> None:
        table.gan(me, number, between=lambda: setattr(me, "peers", [0, 1, 2][: 2 + (number >= 3)]))

    want = table.alone(alone, iterate, comes)
    assert all(same_bits(got["a"], other) for other in got.values())
    assert relative_error(got["a"], want) < 1e-6


LOSSES = [(loop, meeting) for loop in LOOPS for meeting in ((4, 5) if loop == "GAN" else (2,))]


@pytest.mark.parametrize("joins", [False, True], ids=["", "and_a_newcomer"])
@pytest.mark.parametrize(("loop", "meeting"), LOSSES)
def test_a_loss_in_a_round(
    monkeypatch: pytest.MonkeyPatch, loop: str, meeting: int, joins: bool
) -> None:
    """Peer c vanishes in a round of iteration 2; the others make it again, perhaps with d."""
    rounds = ROUNDS.get(loop, 1)
    admit = {"d": meeting} if joins else {}
    group = threads(monkeypatch, "abc", lose={"c": meeting}, admit=admit)
    make = partial(table.program, "AdamW", loop, dtype=torch.float64)
    got = group.run(
        {
            peer: partial(table.under_ddp, make(scale=2.0**number), LOOPS[loop], number, rounds)
            for number, peer in enumerate("abcd" if joins else "abc")
        }
    )
    assert got.keys() == set("abd" if joins else "ab")
    assert all(same_bits(got["a"], other) for other in got.values())
    assert group.corrected == [], "a sync has hidden that peers trained differently"
    # One more, to make the round again, and one if d finds the others at another step.
    finds = joins and loop == "GAN" and meeting == 4
    assert group.meetings == STEPS * rounds + 1 + finds
    if joins:
        return  # it counts from a round on that depends on where its loop begins

    def leaves(me: table.Program, number: int) -> None:
        if loop != "GAN":
            me.peers = [0, 1, 2][: 3 - (number >= 2)]
            return LOOPS[loop](me, number)
        me.peers = [0, 1, 2][: 3 - (2 * number >= meeting)]
        last = [0, 1, 2][: 3 - (2 * number + 1 >= meeting)]
        return table.gan(me, number, between=lambda: setattr(me, "peers", last))

    want = table.alone(make(), leaves, lambda step: [])
    assert relative_error(got["a"], want) < 1e-6


@pytest.mark.parametrize(("name", "loop"), REFUSED, ids=show)
def test_a_refusal(monkeypatch: pytest.MonkeyPatch, name: str, loop: str) -> None:
    group = threads(monkeypatch, "ab")
    outcomes = group.outcomes(
        {
            peer: partial(table.under_ddp, table.program(name, loop), LOOPS[loop], number)
            for number, peer in enumerate("ab")
        }
    )
    for outcome in outcomes.values():
        with pytest.raises(ValueError, match=OPTIMIZERS[name].refused):
            raise outcome


@pytest.mark.parametrize(("name", "loop"), work.CELLS, ids=show)
def test_a_cell_over_real_peers(
    make_world: MakeWorld, master: Master, name: str, loop: str
) -> None:
    world, url = make_world(0), master.url(min_peers=2)
    for number in range(2):
        world.spawn(work.train, url, name, loop, number, setup="nothing")
    outcomes = world.outcomes(60)
    one, other = (torch.tensor(o.value) for o in outcomes if isinstance(o, Returned))
    assert same_bits(one, other)
    want = table.alone(table.program(name, loop), LOOPS[loop], lambda step: [0, 1])
    assert relative_error(one, want) < 1e-6
