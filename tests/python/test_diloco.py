"""The DiLoCo trainer with a group that follows a script: its calls and its results.

Other tests show that the real group behaves like this one; the examples and the demo run both.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
from scripted_group import LOST, ScriptedGroup, Topology, flat, script, small_model, wander

import pccl_backend as pccl
from pccl_backend.trainers import DiLoCo, Observer, diloco

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


def started(group: ScriptedGroup, model: torch.nn.Module, **options: Any) -> DiLoCo:
    outer = DiLoCo(model, **options)
    outer.start()
    group.calls.clear()
    return outer


def test_the_outer_step_is_that_of_torchs_sgd_with_nesterov_momentum(group: ScriptedGroup) -> None:
    model = small_model()
    reference = torch.nn.Parameter(flat(model))
    sgd = torch.optim.SGD([reference], lr=0.7, momentum=0.9, nesterov=True)
    outer = DiLoCo(model, outer_lr=0.7, outer_momentum=0.9)
    outer.start()
    for step in range(5):
        wander(model, step)
        group.other = torch.full_like(reference.detach(), 0.01 * step)
        reference.grad = (reference.detach() - flat(model) + group.other) / 2
        sgd.step()
        outer.step()
        torch.testing.assert_close(flat(model), reference.detach())


def test_every_operation_of_the_outer_step_rounds_once(group: ScriptedGroup) -> None:
    """A fused multiply-add rounds once, not twice, and would give other bits elsewhere."""
    model = small_model()
    shared, momentum = flat(model).numpy().copy(), np.zeros(flat(model).numel(), np.float32)
    mu, lr = np.float32(0.9), np.float32(0.7)
    outer = started(group, model, outer_lr=0.7, outer_momentum=0.9)
    for step in range(20):
        wander(model, step)
        delta = shared - flat(model).numpy()
        outer.step()
        momentum = momentum * mu + delta
        shared = shared - (delta + momentum * mu) * lr
        assert flat(model).numpy().tobytes() == shared.tobytes()


def test_a_step_reduces_then_meets(group: ScriptedGroup) -> None:
    outer = started(group, small_model())
    done = outer.step()
    assert group.calls == ["all_reduce", "update_topology", "sync enforce_popular"]
    assert (done.revision, outer.revision, done.attempts, done.contributors) == (1, 1, 1, 2)


def test_after_a_loss_the_same_bits_are_reduced_again(group: ScriptedGroup) -> None:
    model = small_model()
    outer = started(group, model)
    wander(model, 7)
    group.reduce_errors = [LOST, pccl.MembershipChangedError("not all had called it")]
    group.topologies = [
        Topology(1, left=("b",), epoch="1.2"),
        Topology(2, joined=("d",), epoch="1.3"),
        Topology(2, epoch="1.3"),
    ]
    done = outer.step()
    again = ["update_topology", "sync enforce_popular", "all_reduce"]
    assert group.calls == ["all_reduce", *again, *again, "update_topology", "sync enforce_popular"]
    assert all(torch.equal(group.reduced[0], tensor) for tensor in group.reduced)
    assert group.reduced[0].abs().sum() > 0
    assert (done.attempts, done.joined, done.left, done.world_size) == (3, ("d",), ("b",), 2)
    assert outer.revision == 1


@pytest.mark.parametrize("overlap", [0, "auto"])
def test_a_newcomer_fetches_while_the_others_go_on(
    group: ScriptedGroup, overlap: int | str
) -> None:
    model = small_model()
    outer = started(group, model, overlap=overlap)
    group.topologies = [Topology(3, joined=("c",))]
    wander(model, 7)
    begun = outer.step()
    assert begun.synced.hash == 0xAB
    assert group.lent is not None
    assert "settle" not in group.calls
    wander(model, 8)
    group.calls.clear()
    outer.step()
    assert group.calls.index("settle") < group.calls.index("update_topology")
    assert group.lent is None


@pytest.mark.parametrize("overlap", [0, "auto"])
def test_a_sync_that_fails_in_the_background_uses_up_no_revision(
    group: ScriptedGroup, overlap: int | str
) -> None:
    """A state may advance by one revision only, from the last one that the group has recorded."""
    model = small_model()
    outer = started(group, model, overlap=overlap)
    assert outer._made is not None
    group.topologies = [Topology(3, joined=("c",))]
    wander(model, 7)
    outer.step()
    begun = outer._made.state.revision
    group.settle_errors = [LOST]
    wander(model, 8)
    outer.step()
    assert group.lent is None
    assert outer._made.state.revision == begun


@pytest.mark.parametrize("every", [100, timedelta(hours=1)])
def test_a_newcomer_that_was_late_takes_fewer_inner_steps(
    group: ScriptedGroup, every: int | timedelta
) -> None:
    model = small_model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    group.agreed, group.then = 1.0, 3
    with DiLoCo(model, sgd, every=every) as outer:
        assert outer._made is not None
        outer._made.late_s = 1e9
        group.calls.clear()
        sgd.step()
        assert group.calls == ["all_reduce", "update_topology", "sync enforce_popular"]
        group.calls.clear()
        sgd.step()
        assert group.calls == [], "it was late once"


def test_the_end_waits_for_a_newcomer_that_fetches(group: ScriptedGroup) -> None:
    outer = started(group, small_model())
    group.topologies = [Topology(3, joined=("c",))]
    outer.step()
    outer.finish()
    assert group.calls[-1] == "settle"


def test_a_program_that_shares_tensors_of_its_own_waits(group: ScriptedGroup) -> None:
    """It may write them in its inner steps."""
    outer = started(group, small_model(), shared={"tokens": torch.zeros(1)})
    group.topologies = [Topology(3, joined=("c",))]
    outer.step()
    assert group.lent is None


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_fails_in_the_background_is_met_again(group: ScriptedGroup, interrupted: bool) -> None:
    model = small_model()
    outer = started(group, model)
    group.topologies = [Topology(3, joined=("c",))]
    outer.step()
    wander(model, 7)
    group.calls.clear()
    meeting = ["update_topology", "sync enforce_popular"]
    if interrupted:
        group.settle_errors = [KeyboardInterrupt()]
        with pytest.raises(KeyboardInterrupt):
            outer.step()
        outer.step()
        assert group.calls == ["all_reduce", "settle", "settle", *meeting]
    else:
        group.settle_errors = [pccl.OperationTimeoutError("rank 2 did not receive the whole state")]
        with pytest.raises(pccl.OperationTimeoutError):
            outer.step()
        outer.step()
        assert group.calls == ["all_reduce", "settle", *meeting]
    assert outer.revision == 2


def test_a_loss_while_syncing_is_met_by_meeting_again(group: ScriptedGroup) -> None:
    outer = DiLoCo(small_model())
    group.sync_errors = [LOST, LOST]
    outer.start(strategy="receive_only")
    assert group.calls == [
        "sync receive_only",
        *["update_topology", "sync receive_only"] * 2,
    ]


@pytest.mark.parametrize("kind", [pccl.MasterLostError, pccl.KickedError, pccl.TooFewPeersError])
def test_other_errors_are_the_callers(group: ScriptedGroup, kind: type[pccl.PcclError]) -> None:
    outer = started(group, small_model())
    group.reduce_errors = [kind("out of the run")]
    with pytest.raises(kind, match="out of the run"):
        outer.step()
    assert group.calls == ["all_reduce"]
    assert outer.revision == 0


def test_it_does_not_repeat_for_ever(group: ScriptedGroup) -> None:
    outer = started(group, small_model())
    group.reduce_errors = [LOST] * 1000
    with pytest.raises(pccl.PeerLostError):
        outer.step()
    assert group.calls.count("all_reduce") == diloco.ATTEMPTS_MAX
    group.sync_errors = [LOST] * 1000
    with pytest.raises(pccl.PeerLostError):
        outer.meet()


def test_a_newcomer_starts_from_what_the_others_hold(group: ScriptedGroup) -> None:
    model = small_model()
    outer = DiLoCo(model)
    group.agreed = 0.5
    group.revision = 12
    outer.start()
    assert outer.revision == 12
    assert torch.equal(flat(model), torch.full_like(flat(model), 0.5))


def test_shared_state_names_every_parameter_and_its_momentum(group: ScriptedGroup) -> None:
    started(group, small_model())
    names = ["0.weight", "0.bias", "1.weight"]
    expected = [f"{part}/{n}" for part in ("global", "momentum") for n in names]
    assert list(group.state) == [*expected, "progress"]
    assert group.state["global/0.weight"].shape == (5, 3)


def test_frozen_parameters_take_no_part_and_half_precision_is_averaged_in_full(
    group: ScriptedGroup,
) -> None:
    model = small_model().to(torch.bfloat16)
    frozen = next(model.parameters()).requires_grad_(False)
    outer = started(group, model)
    wander(model, 3)
    wandered = flat(model)
    outer.step()
    assert outer.pseudo_gradient.dtype == torch.float32
    assert outer.pseudo_gradient.numel() == 5 + 10
    assert torch.equal(flat(model)[: frozen.numel()], wandered[: frozen.numel()])
    assert not torch.equal(flat(model), wandered)


def test_the_observer_hears_the_story_in_order(group: ScriptedGroup) -> None:
    heard: list[str] = []

    class Listener(Observer):
        pass

    for name in [name for name in vars(Observer) if not name.startswith("_")]:
        setattr(Listener, name, lambda self, *args, name=name: heard.append(name))
    outer = started(group, small_model(), observer=Listener())
    heard.clear()
    group.reduce_errors = [LOST]
    outer.step()
    meeting = ["before_meet", "topology_updated", "state_synced"]
    assert heard == [
        "before_reduce", "reduce_posted", "reduce_failed", *meeting,
        "reduce_posted", "reduce_committed", *meeting,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [({"outer_lr": 0.0}, "outer_lr is 0.0"), ({"outer_momentum": 1.0}, "outer_momentum is 1.0")],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiLoCo(small_model(), **options)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameter"):
        DiLoCo(torch.nn.Identity())
