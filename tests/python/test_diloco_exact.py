"""The pseudo-gradient of a peer without inner steps is exactly zero, in every dtype.

So an outer step without training has the effect of SGD with a zero gradient, bit for bit,
and the local copy is always the global one, rounded to the dtype of the parameter.
"""

from __future__ import annotations

import math

import pytest
import torch
from scripted_group import ScriptedGroup, flat, same_bits, script, small_model, wander

from pccl_backend.trainers import DiLoCo
from pccl_backend.trainers import outer as rules

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


class Parameters(torch.nn.Module):
    """A model that consists of these parameters only."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList([torch.nn.Parameter(tensor) for tensor in tensors])


def mixed() -> torch.nn.Module:
    generator = torch.Generator().manual_seed(5)
    return Parameters(*(torch.randn(4, 3, generator=generator).to(dtype) for dtype in DTYPES))


def models() -> list[tuple[str, torch.nn.Module]]:
    plain = [(str(dtype).rpartition(".")[2], small_model().to(dtype)) for dtype in DTYPES]
    return [*plain, ("mixed", mixed())]


def globals_of(group: ScriptedGroup) -> torch.Tensor:
    return torch.cat([t.flatten() for n, t in group.state.items() if n.startswith("global/")])


def copies(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_rounded(group: ScriptedGroup, model: torch.nn.Module) -> None:
    theirs = [tensor for name, tensor in group.state.items() if name.startswith("global/")]
    for mine, wide in zip(model.parameters(), theirs, strict=True):
        assert same_bits(mine.detach(), wide.to(mine.dtype))


@pytest.mark.parametrize("model", [m for _, m in models()], ids=[n for n, _ in models()])
def test_outer_steps_without_inner_steps_follow_sgd_with_a_zero_gradient(
    group: ScriptedGroup, model: torch.nn.Module
) -> None:
    """Halves as settings: torch fuses a multiply-add, which then rounds like two operations."""
    outer = DiLoCo(model, outer_lr=0.5, outer_momentum=0.5)
    outer.start()
    reference = torch.nn.Parameter(globals_of(group).clone())
    sgd = torch.optim.SGD([reference], lr=0.5, momentum=0.5, nesterov=True)
    for step in range(12):
        trains = step in {2, 3, 6}  # no peer trains in the first and some later steps
        if trains:
            wander(model, step)
        outer.step()
        sent = group.reduced[-1]
        assert trains == bool(sent.any())
        reference.grad = sent if trains else torch.zeros_like(reference)
        sgd.step()
        assert same_bits(globals_of(group), reference.detach()), f"outer step {step}"
        assert_rounded(group, model)
    has_doubles = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    assert globals_of(group).dtype == (torch.float64 if has_doubles else torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_is_a_positive_zero(group: ScriptedGroup, dtype: torch.dtype) -> None:
    """-0.0 - -0.0 is 0.0; a negative zero in the average would turn a global -0.0 into 0.0."""
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-7, -1e-7]).to(dtype)
    model = Parameters(values)
    outer = DiLoCo(model)
    outer.start()
    for _ in range(3):
        outer.step()
        assert not group.reduced[-1].view(torch.uint8).any()
        assert same_bits(model.all[0].detach(), values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_parameter_that_is_not_finite_and_does_not_move_sends_zero(
    group: ScriptedGroup, dtype: torch.dtype
) -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, 2.0]).to(dtype)
    model = Parameters(values)
    outer = DiLoCo(model)
    outer.start()
    outer.step()
    assert not group.reduced[-1].view(torch.uint8).any()
    assert same_bits(model.all[0].detach(), values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_peer_whose_numbers_are_not_finite_counts_for_nothing_and_is_named(
    group: ScriptedGroup, bad: float
) -> None:
    model = Parameters(torch.tensor([1.0, 1.0]))
    outer = DiLoCo(model, outer_lr=1.0, outer_momentum=0.0)
    outer.start()
    with torch.no_grad():
        model.all[0].copy_(torch.tensor([bad, 2.0]))
    group.other = torch.tensor([-3.0, -5.0])
    done = outer.step()
    assert group.reduced[-1].tolist() == [0, 0]
    assert (done.contributors, done.excluded) == (1, ("a",))
    assert model.all[0].tolist() == [4, 6], "the other's alone, and the peer continues from it"


def test_a_global_beyond_the_range_of_its_parameter_stays(group: ScriptedGroup) -> None:
    """float16 ends at 65504: the local copy starts as infinity, and does not move from there."""
    model = Parameters(torch.zeros(2, dtype=torch.float16))
    outer = DiLoCo(model)
    group.agreed = 1e6
    outer.start()
    group.state["momentum/all.0"].zero_()
    outer.step()
    assert globals_of(group).tolist() == [1e6, 1e6]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_parameter_that_moved_sends_its_own_movement(
    group: ScriptedGroup, dtype: torch.dtype
) -> None:
    """The rounding error of the local copy is not sent: its average may differ from zero."""
    model = Parameters(torch.ones(3, dtype=dtype))
    outer = DiLoCo(model, outer_lr=1.0, outer_momentum=0.0)
    group.agreed = 1.001  # between two values of either dtype
    outer.start()
    began = model.all[0].detach().clone()
    with torch.no_grad():
        model.all[0][0] += 0.25
    outer.step()
    moved = (model.all[0][0] - began[0]).item()
    wide = torch.full((3,), 1.001)
    wide[0] += 0.25
    assert group.reduced[-1][1:].tolist() == [0, 0]
    assert globals_of(group)[1:].tolist() == wide[1:].tolist()
    assert moved == pytest.approx(0.25, abs=0.01)


def test_odd_shapes_and_layouts_take_part(group: ScriptedGroup) -> None:
    tensors = [
        torch.randn(6, 4).t(),
        torch.tensor(3.0),
        torch.zeros(0, 5),
        torch.randn(2, 8)[:, ::2],
    ]
    model = Parameters(*(t.bfloat16() for t in tensors))
    assert not model.all[0].is_contiguous()
    outer = DiLoCo(model)
    outer.start()
    before = copies(model)
    outer.step()
    assert all(map(same_bits, copies(model), before))
    wander(model, 3)
    wandered = copies(model)
    outer.step()
    sent = torch.cat(
        [(b.float() - w.float()).flatten() for b, w in zip(before, wandered, strict=True)]
    )
    assert same_bits(group.reduced[-1], sent)
    assert_rounded(group, model)


def test_tied_parameters_stay_tied(group: ScriptedGroup) -> None:
    """They are tied by one Parameter, which takes part once, or by two that share memory."""
    model = small_model().bfloat16()
    model.once = torch.nn.Module()
    model.once.weight = model[0].weight
    model.alias = torch.nn.Parameter(model[1].weight.data.t())
    outer = DiLoCo(model)
    outer.start()
    assert "global/once.weight" not in group.state
    for seed in range(3):
        before = copies(model)
        outer.step()
        assert seed > 0 or all(map(same_bits, copies(model), before))
        with torch.no_grad():
            model[1].weight.add_(0.1)
        outer.step()
        assert_rounded(group, model)
        assert torch.equal(model.alias, model[1].weight.t())


def test_chunks_of_an_outer_step_are_no_different(
    group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for chunk in (1 << 18, 7, 1):
        monkeypatch.setattr(rules, "CHUNK", chunk)
        model = small_model()
        outer = DiLoCo(model)
        outer.start()
        for seed in range(4):
            wander(model, seed)
            outer.step()
        results.append(flat(model))
    assert all(same_bits(results[0], result) for result in results)
