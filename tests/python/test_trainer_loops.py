"""The trainer inside loops as they are: accumulation, GradScaler, several optimizers, the clock."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
from ddp_table import OPTIMIZERS
from scripted_group import (
    HEAD,
    Membership,
    ScriptedGroup,
    flat,
    same_bits,
    script,
    small_model,
    wander,
)

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo, Observer, OuterStep

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


class Counter(Observer):
    def __init__(self) -> None:
        self.steps: list[OuterStep] = []

    def stepped(self, trainer: Any, done: OuterStep) -> None:
        self.steps.append(done)


def learn(model: torch.nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.ones(4, 3)).square().sum()
    return loss


def test_accumulated_gradients_count_as_one_step(group: ScriptedGroup) -> None:
    model, counter = small_model(), Counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with DiLoCo(model, optimizer, every=2, observer=counter) as outer:
        for number in range(12):
            learn(model).backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert (outer.revision, len(counter.steps)) == (2, 2)
    assert counter.steps[1].inner_steps == 2, "the other peer of the script takes none"


def test_a_step_that_the_grad_scaler_skips_does_not_count(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with DiLoCo(model, optimizer, every=2) as outer:
        for number in range(6):
            loss = learn(model) * (float("inf") if number == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            assert outer.revision == [0, 0, 1, 1, 2, 2][number]


def test_a_step_counts_when_the_last_optimizer_has_stepped(group: ScriptedGroup) -> None:
    model = small_model()
    biases = torch.optim.SGD([model[0].bias], lr=0.01)
    rest = torch.optim.SGD([model[0].weight, model[1].weight], lr=0.01)
    with DiLoCo(model, [rest, biases], every=1) as outer:
        learn(model).backward()
        rest.step()
        assert outer.revision == 0
        biases.step(lambda: learn(model))  # with a closure
        assert outer.revision == 1


def test_boundaries_by_the_clock(group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with DiLoCo(model, optimizer, every=timedelta(seconds=10), weight="steps") as outer:
        for _ in range(25):
            now[0] += 1
            learn(model).backward()
            optimizer.step()
    assert outer.revision == 2


def test_an_exception_leaves_the_block_without_another_outer_step(group: ScriptedGroup) -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    outer = DiLoCo(model, optimizer, every=2, overlap=1)

    def train() -> None:
        with outer:
            learn(model).backward()
            for _ in range(2):
                optimizer.step()
            group.calls.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    optimizer.step()
    optimizer.step()
    assert group.calls == []
    with pytest.raises(pccl.InvalidStateError, match="closed"):
        outer.step()


def test_the_global_parameters_can_be_evaluated(group: ScriptedGroup) -> None:
    model = small_model()
    outer = DiLoCo(model)
    outer.start()
    start = flat(model).clone()
    wander(model, 1)
    wandered = flat(model).clone()
    with outer.global_parameters() as same:
        assert same is model
        assert same_bits(flat(model), start)
    assert same_bits(flat(model), wandered)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "LBFGS"])
def test_a_torch_optimizer_as_the_outer_rule(group: ScriptedGroup, name: str) -> None:
    """The same as torch's, which makes its state in its first step."""
    row, model = OPTIMIZERS[name], small_model()

    def make(flats: list[torch.Tensor]) -> torch.optim.Optimizer:
        return row.kind(flats, **row.options)

    if name in ("SparseAdam", "Muon"):  # for sparse gradients, and for matrices
        with pytest.raises((ValueError, RuntimeError), match=r"dense gradients|only supports 2D"):
            DiLoCo(model, outer_optimizer=make).start()
        return
    outer = DiLoCo(model, outer_optimizer=make)
    outer.start()
    reference = torch.nn.Parameter(flat(model).clone())
    optimizer = make([reference])
    for seed in range(4):
        wander(model, seed)
        reference.grad = reference.detach() - flat(model)
        optimizer.step()
        outer.step()
        torch.testing.assert_close(flat(model), reference.detach())
    for key, value in optimizer.state[reference].items():
        torch.testing.assert_close(group.state[f"outer/0/{key}"], value)


class NewMemory(torch.optim.SGD):
    """Gives its parameters other memory."""

    def step(self, closure: Any = None) -> Any:
        super().step()
        for parameter in self.param_groups[0]["params"]:
            parameter.data = parameter.data.clone()


NO_RULES: dict[str, tuple[Any, str]] = {
    "needs a closure": (torch.optim.LBFGS, r"\(LBFGS\) cannot step .* 'closure'"),
    "other memory": (lambda flats: NewMemory(flats, lr=0.1), "in place"),
    "other tensors": (
        lambda flats: torch.optim.SGD([flat.clone() for flat in flats], lr=0.1),
        r"\(SGD\) moves 1 tensors, and 0 of them are among the 1",
    ),
    "more tensors": (
        lambda flats: torch.optim.SGD([*flats, torch.ones(1)], lr=0.1),
        r"\(SGD\) moves 2 tensors, and 1 of them are among the 1",
    ),
}


@pytest.mark.parametrize("what", NO_RULES)
def test_an_optimizer_that_is_no_outer_rule(group: ScriptedGroup, what: str) -> None:
    make, error = NO_RULES[what]
    with pytest.raises(ValueError, match=error):
        DiLoCo(small_model(), outer_optimizer=make).start()


def test_a_saved_state_comes_back_bit_for_bit(group: ScriptedGroup) -> None:
    model = small_model()
    outer = DiLoCo(model)
    outer.start()
    for seed in range(3):
        wander(model, seed)
        outer.step()
    state = outer.state_dict()
    saved = {**state, "tensors": {n: t.clone() for n, t in state["tensors"].items()}}
    other = DiLoCo(small_model())
    other.load_state_dict(saved)
    other.start()
    assert other.revision == 3
    assert all(same_bits(saved["tensors"][n], group.state[n]) for n in saved["tensors"])
    assert same_bits(flat(other._model), flat(model))


def test_a_damaged_or_foreign_state_is_refused(group: ScriptedGroup) -> None:
    outer = DiLoCo(small_model())
    outer.start()
    state = outer.state_dict()
    foreign = DiLoCo(torch.nn.Linear(3, 5))
    foreign.load_state_dict(state)
    with pytest.raises(ValueError, match=r"has no '.*': the model"):
        foreign.start()
    state["tensors"]["global/0.bias"][0] += 1
    with pytest.raises(ValueError, match=r"damaged: .* at revision 0"):
        DiLoCo(small_model()).load_state_dict(state)
    with pytest.raises(ValueError, match="has no 'tensors'"):
        DiLoCo(small_model()).load_state_dict({})
    with pytest.raises(pccl.InvalidStateError, match="before start"):
        outer.load_state_dict(state)


def with_feedback(model: torch.nn.Module, **options: Any) -> DiLoCo:
    return DiLoCo(model, quantize=pccl.quantization.MinMax(bits=4), error_feedback=True, **options)


def test_residuals_are_of_one_peer_and_its_model(group: ScriptedGroup) -> None:
    plain, state = DiLoCo(small_model()), with_feedback(small_model()).state_dict(own=True)
    shapes = {name: tuple(tensor.shape) for name, tensor in state["own"].items()}
    assert shapes == {
        "residual/0.weight": (5, 3),
        "residual/0.bias": (5,),
        "residual/1.weight": (2, 5),
    }
    parts = with_feedback(small_model(), fragments=2).state_dict(own=True)
    assert parts["own"].keys() == state["own"].keys(), "whatever the fragments are"
    assert plain.state_dict(own=True)["own"] == {}
    with pytest.raises(ValueError, match=r"state_dict\(own=True\), or load it without"):
        with_feedback(small_model()).load_state_dict(plain.state_dict(), own=True)
    plain.load_state_dict(state, own=True)
    with pytest.raises(ValueError, match=r"trainer has no 'residual/.*error_feedback= differ"):
        plain.start()
    state["own"]["residual/0.bias"][0] = 1.0
    with pytest.raises(ValueError, match=r"damaged: its 'own' has the digest"):
        with_feedback(small_model()).load_state_dict(state, own=True)
    with_feedback(small_model()).load_state_dict(state)


def test_a_newcomer_in_the_middle_of_a_round_takes_part_with_nothing(group: ScriptedGroup) -> None:
    """It ends the round with the others before it takes its first inner step."""
    model = small_model()
    outer = DiLoCo(model, outer_lr=1.0, outer_momentum=0.0)
    group.agreed, group.revision, group.then = 0.5, 4, 2
    group.other = torch.full((30,), -0.25)
    outer.start(strategy="receive_only")
    assert group.calls == [
        "sync receive_only",
        "all_reduce",
        "update_topology",
        "sync enforce_popular",
    ]
    assert not group.reduced[0].any()
    assert outer.revision == 5
    assert flat(model).unique().tolist() == [0.75], "the other's mean alone"


def test_each_part_of_a_mean_is_over_its_own_contributors(
    group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other peer was lost when the first ten elements were finished: the rest is ours alone."""
    model = small_model()
    outer = DiLoCo(model, outer_lr=1.0, outer_momentum=0.0)
    outer.start()
    before = flat(model).clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(1.0)
    group.other = torch.cat([torch.full((10,), 3.0), torch.zeros(20)])
    cut = HEAD + 10
    parts = (
        pccl.api.Contribution(start=0, stop=cut, peers=("a", "b")),
        pccl.api.Contribution(start=cut, stop=HEAD + 30, peers=("a",)),
    )
    monkeypatch.setattr(pccl, "contributors", lambda work: parts)
    outer.step()
    moved = before - flat(model)
    torch.testing.assert_close(moved, torch.cat([torch.full((10,), 2.0), torch.ones(20)]))


def test_a_peer_with_other_settings_than_most_is_told(group: ScriptedGroup) -> None:
    """Two peers: the settings of rank 0 count."""
    group.peer = "b"
    group.other_settings = 1
    outer = DiLoCo(small_model(), outer_lr=0.5)
    outer.start()
    with pytest.raises(ValueError, match=r"of most, .*every=None, outer_lr=0.5, outer_momentum="):
        outer.step()
    moved = group.state["global/0.weight"].clone()
    with pytest.raises(ValueError, match=r"outer_lr=0\.5"):
        outer.step()
    assert torch.equal(group.state["global/0.weight"], moved), "no mean was applied"
    assert len(group.reduced) == 1, "no other round began"


def test_equal_settings_are_equal_however_they_are_written(group: ScriptedGroup) -> None:
    for options in (
        {"overlap": 1},
        {"overlap": 1, "mix": 0.5},
        {"mix": 1, "overlap": 1},
        {"mix": 1.0, "overlap": 1},
        {"mix": "delay", "outer_lr": 0.5, "outer_momentum": 0.5},
        {"mix": "delay", "outer_lr": 0.5, "outer_momentum": 0.5, "overlap": "auto"},
    ):
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = DiLoCo(model, optimizer, **options)  # type: ignore[arg-type]
        outer.start()
        outer.step()
        group.running = None
    first, same, second, also, third, likewise = group.settings
    assert (first, second, third) == (same, also, likewise)
    assert len({first, second, third}) == 3


def test_the_rate_of_an_outer_step_is_that_of_the_round_that_all_have_agreed_on(
    group: ScriptedGroup,
) -> None:
    """A trainer that overlaps measures before it counts the round that has landed just now."""
    rate = {"outer_lr": lambda rounds: 0.5 / (1 + rounds), "outer_momentum": 0.0}
    outer = DiLoCo(small_model(), mix="delay", **rate)  # type: ignore[arg-type]
    outer.start()
    for _ in range(3):
        outer.step()
    assert len(set(group.settings)) == 3


def test_a_peer_names_those_with_other_settings_once(
    group: ScriptedGroup, caplog: pytest.LogCaptureFixture
) -> None:
    outer = DiLoCo(small_model(), outer_lr=lambda rounds: 0.5 / (1 + rounds), outer_momentum=0.0)
    outer.start()
    outer.step()
    assert not caplog.records, "a peer without a number may have any settings"
    group.other_settings = 1
    outer.step()
    outer.step()
    (record,) = caplog.records
    assert record.getMessage().startswith("b: other settings than those of this peer (every=None, ")
    assert "outer_lr=0.25," in caplog.text, "the rate of this outer step"


def test_the_outer_state_is_made_before_the_run_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take longer than the others wait for the first call of a newcomer."""
    group = script(monkeypatch)
    model = small_model()
    outer = DiLoCo(model, url="pccl://host:48148/run")

    def join(url: str) -> object:
        assert torch.equal(group.state["global/0.weight"], model[0].weight)
        return Membership()

    monkeypatch.setattr(pccl, "join", join)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda group: None)
    with outer:
        assert outer.step().revision == 1
