"""A model that changes under its trainer: refused changes, legal ones, and every dtype."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import work_layout as work
from conftest import MakeWorld
from scripted_group import ScriptedGroup, script
from world import Failed, Master, Returned

from pccl_backend.quantization import MinMax
from pccl_backend.trainers import DDP, DiLoCo

pytestmark = pytest.mark.usefixtures("one_thread")

TRAINERS = {"diloco": DiLoCo, "ddp": DDP}
EVERY_DTYPE = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
SUPPORTED = re.compile(r"b?float16|float32|float64|float8_\w+|b?complex\d+|bool|u?int(8|16|32|64)")


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> ScriptedGroup:
    return script(monkeypatch)


@pytest.fixture(params=TRAINERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b, self.c = (torch.nn.Linear(3, 3) for _ in range(3))
        self.c.weight.requires_grad_(False)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))


def learn(model: torch.nn.Module, by: float) -> None:
    """Give each trainable parameter a gradient."""
    for number, parameter in enumerate(model.parameters()):
        if parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, by * (number + 1))


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.5)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, by: float = 1.0) -> None:
    learn(model, by)
    optimizer.step()
    optimizer.zero_grad()


def several_steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(4):
        step(model, optimizer)


def made(kind: str, model: torch.nn.Module, optimizer: Any, **options: Any) -> Any:
    if kind == "diloco":
        options = {"every": 1, "outer_lr": 1.0, "outer_momentum": 0.0, **options}
    return TRAINERS[kind](model, optimizer, **options)


# --- Refused changes ------------------------------------------------------------------------------


def tie(net: Net) -> None:
    net.b.weight = net.a.weight


def tie_the_first(net: Net) -> None:
    net.a.weight = net.b.weight


def swap(net: Net) -> None:
    net.b = torch.nn.Linear(3, 3)


def assign(net: Net) -> None:
    net.load_state_dict({n: t.clone() for n, t in net.state_dict().items()}, assign=True)


def rename(net: Net) -> None:
    net.d, net.b = net.b, torch.nn.Identity()  # type: ignore[assignment]


def add(net: Net) -> None:
    net.d = torch.nn.Linear(3, 3)


def thaw(net: Net) -> None:
    net.c.weight.requires_grad_(True)


def reshape(net: Net) -> None:
    net.a.weight.data = torch.zeros(3, 4)


def convert(net: Net) -> None:
    net.double()


def grow(net: Net) -> None:
    net.seen = torch.zeros(8)


def grow_integers(net: Net) -> None:
    net.count = torch.zeros(3, dtype=torch.int64)


def lose_a_buffer(net: Net) -> None:
    del net.seen


def add_a_buffer(net: Net) -> None:
    net.register_buffer("more", torch.zeros(1))


def tie_buffers(net: Net) -> None:
    net.register_buffer("more", net.seen)
    del net.seen
    net.seen = net.more  # no buffer any more


SHAPE = r"torch.float32 of shape \(3, 3\)"
CHANGES: dict[Callable[[Net], None], str] = {
    tie: rf"parameter 'b.weight' is tied to 'a.weight' now, and was {SHAPE} at start\(\)",
    tie_the_first: rf"parameter 'b.weight' is tied to 'a.weight' now, and was {SHAPE}",
    swap: r"parameter 'b.weight' is trainable, and none of the trainer's optimizers \(SGD, of 6",
    assign: r"parameter 'a.weight' is trainable, and none .* still moves the old one",
    rename: rf"parameter 'b.weight' is gone, and was {SHAPE} at start\(\)",
    add: rf"parameter 'd.weight' is {SHAPE}, and was not there at start\(\)",
    thaw: r"parameter 'c.weight' is trainable, and was frozen at start\(\)",
    reshape: rf"parameter 'a.weight' is torch.float32 of shape \(3, 4\), and was {SHAPE}",
    convert: rf"parameter 'a.weight' is torch.float64 of shape \(3, 3\), and was {SHAPE}",
    grow: r"buffer 'seen' is torch.float32 of shape \(8,\), and was torch.float32 of shape \(4,\)",
    grow_integers: r"buffer 'count' is torch.int64 of shape \(3,\), and was .* \(2,\) at start",
    lose_a_buffer: r"buffer 'seen' is gone, and was torch.float32 of shape \(4,\) at start",
    add_a_buffer: r"buffer 'more' is torch.float32 of shape \(1,\), and was not there at start",
    tie_buffers: r"buffer 'seen' is tied to 'more' now",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_model_that_has_changed_is_refused_before_anything_is_sent(
    group: ScriptedGroup, kind: str, change: Callable[[Net], None]
) -> None:
    net = Net()
    optimizer = sgd(net)
    with made(kind, net, optimizer) as trainer:
        step(net, optimizer)
        assert trainer.revision == 1
        change(net)
        group.calls.clear()
        for _ in range(2):  # an error that comes again, until the model is put right
            with pytest.raises(ValueError, match=CHANGES[change]) as refusal:
                step(net, optimizer)
        assert "start()" in str(refusal.value) or "optimizer" in str(refusal.value)
        assert group.calls == []
        assert trainer.revision == 1


def test_a_tensor_whose_memory_is_gone_is_refused(group: ScriptedGroup, kind: str) -> None:
    net = Net()
    optimizer = sgd(net)
    with made(kind, net, optimizer) as trainer:
        step(net, optimizer)
        net.seen.untyped_storage().resize_(0)
        group.calls.clear()
        with pytest.raises(ValueError, match=r"buffer 'seen' .* its storage has 0: .* Resize it"):
            step(net, optimizer)
        assert group.calls == []
        assert trainer.revision == 1
        net.seen.untyped_storage().resize_(16)
        net.seen.zero_()
        step(net, optimizer)
        assert trainer.revision == 2
    net.a.weight.untyped_storage().resize_(32)
    with pytest.raises(ValueError, match=r"'a.weight' .* needs a storage of 36 bytes, .* has 32:"):
        made(kind, net, optimizer)


def test_what_is_undone_goes_on(group: ScriptedGroup, kind: str) -> None:
    net = Net()
    optimizer, weight = sgd(net), net.b.weight
    with made(kind, net, optimizer) as trainer:
        tie(net)
        with pytest.raises(ValueError, match=r"'b.weight' is tied"):
            step(net, optimizer)
        net.b.weight = weight
        step(net, optimizer)
        assert trainer.revision == 1


def test_an_untied_parameter_is_refused(group: ScriptedGroup, kind: str) -> None:
    net = Net()
    tie(net)
    optimizer = sgd(net)
    with made(kind, net, optimizer):
        step(net, optimizer)
        net.b.weight = torch.nn.Parameter(net.a.weight.detach().clone())
        with pytest.raises(ValueError, match=r"'b.weight' is .* was not there at start"):
            step(net, optimizer)


def test_a_trainable_parameter_that_no_optimizer_moves_is_refused_at_once(kind: str) -> None:
    net = Net()
    with pytest.raises(ValueError, match=r"'b.weight' is trainable, and none .*\(SGD, of 2"):
        made(kind, net, torch.optim.SGD(net.a.parameters(), lr=0.1))


@pytest.mark.parametrize("options", [{"overlap": "auto"}, {"fragments": 2}, {"mix": "delay"}])
@pytest.mark.filterwarnings("ignore:.*diverges")
def test_other_settings_refuse_it_as_well(group: ScriptedGroup, options: dict[str, Any]) -> None:
    net = Net()
    optimizer = sgd(net)
    with made("diloco", net, optimizer, **{"every": 2, **options}):
        several_steps(net, optimizer)
        seen, posted = net.seen, len(group.reduced)
        grow(net)
        with pytest.raises(ValueError, match="buffer 'seen'"):
            several_steps(net, optimizer)
        assert len(group.reduced) == posted
        net.seen = seen


def test_evaluation_of_a_model_that_has_changed_is_refused(group: ScriptedGroup) -> None:
    net = Net()
    outer = DiLoCo(net)
    outer.start()
    grow(net)
    with pytest.raises(ValueError, match="buffer 'seen'"), outer.global_parameters():
        pass


# --- Legal changes --------------------------------------------------------------------------------


def test_buffers_of_its_own_may_change(group: ScriptedGroup) -> None:
    net = Net()
    outer = DiLoCo(net, buffers="own")
    outer.start()
    grow(net)
    lose = net.count
    del net.count
    assert outer.step().revision == 1
    assert len(net.seen) == 8
    del lose


@pytest.mark.parametrize("change", [swap, assign])
def test_without_an_optimizer_a_parameter_is_read_by_its_name(
    group: ScriptedGroup, change: Callable[[Net], None]
) -> None:
    net = Net()
    outer = DiLoCo(net, outer_lr=1.0, outer_momentum=0.0)
    outer.start()
    change(net)
    with torch.no_grad():
        net.b.weight.fill_(3.0)
    outer.step()
    assert group.state["global/b.weight"].unique().tolist() == [3.0]
    assert net.b.weight.unique().tolist() == [3.0]


def to_other_memory(net: Net) -> None:
    for parameter in net.parameters():
        parameter.data = parameter.data.clone()
    net.double().float()


def assign_buffers(net: Net) -> None:
    net.seen, net.count = net.seen + 0, net.count + 0


@pytest.mark.parametrize("change", [to_other_memory, assign_buffers])
def test_replaced_tensors_are_read_and_written_by_their_names(
    group: ScriptedGroup, kind: str, change: Callable[[Net], None]
) -> None:
    net, plain = Net(), Net()
    optimizer, alone = sgd(net), sgd(plain)
    with made(kind, net, optimizer):
        step(net, optimizer)
        step(plain, alone)
        change(net)
        net.seen.add_(2.0)
        net.count.add_(5)
        step(net, optimizer)
        step(plain, alone)
        for name, parameter in plain.named_parameters():
            assert torch.allclose(net.get_parameter(name), parameter), name
        assert (net.seen.tolist(), net.count.tolist()) == ([2.0] * 4, [5, 5])
        if kind == "ddp":  # what newcomers get is the model as it trains
            for name, parameter in net.named_parameters():
                shared = group.state[f"model/{name}"]
                assert shared.data_ptr() == parameter.data_ptr(), name
        group.agreed, group.revision = 7.0, 9
        step(net, optimizer)
        assert net.seen.unique().tolist() == net.b.weight.unique().tolist() == [7.0]
        assert net.count.unique().tolist() == [7]


def test_a_checkpoint_has_the_tensors_of_the_moment(group: ScriptedGroup) -> None:
    """Also if a parameter has other memory since the last step, or since state_dict()."""
    net = Net()
    optimizer = sgd(net)
    with made("ddp", net, optimizer) as trainer:
        step(net, optimizer)
        to_other_memory(net)
        net.a.weight.data.fill_(5.0)
        saved = trainer.state_dict()
        assert saved["tensors"]["model/a.weight"].unique().tolist() == [5.0]
    other = Net()
    again = made("ddp", other, sgd(other))
    again.state_dict()
    to_other_memory(other)
    again.load_state_dict(saved)
    again.start()
    assert other.a.weight.unique().tolist() == [5.0]


def test_a_frozen_parameter_keeps_its_place_in_diloco(group: ScriptedGroup) -> None:
    net = Net()
    optimizer = sgd(net)
    with made("diloco", net, optimizer):
        step(net, optimizer)
        net.a.requires_grad_(False)
        before = net.a.weight.clone()
        step(net, optimizer)
        assert torch.equal(net.a.weight, before)
        assert group.reduced[-1][:12].tolist() == [0.0] * 12
        net.a.requires_grad_(True)
        step(net, optimizer)
        assert not torch.equal(net.a.weight, before)


def test_a_frozen_parameter_keeps_its_place_in_ddp(group: ScriptedGroup) -> None:
    """This peer alone freezes `a`: the others' gradient for `b` must reach `b`."""
    net = Net()
    optimizer = sgd(net)
    with made("ddp", net, optimizer):
        step(net, optimizer)
        net.a.requires_grad_(False)
        a, b = net.a.weight.clone(), net.b.weight.clone()
        sizes = [9, 3, 9, 3, 3, 4]  # a, b, the bias of c, and the buffer
        theirs = [torch.full((size,), 10.0 * (n + 1)) for n, size in enumerate(sizes)]
        group.other = torch.cat([*theirs, torch.ones(5), torch.zeros(1)])  # with the flags
        learn(net, 1.0)
        mine = [p.grad.flatten().clone() for p in net.parameters() if p.grad is not None]
        optimizer.step()
        body, flags, _ = group.reduced[-1].split((sum(sizes), 5, 1))
        assert body.tolist() == [0.0] * 12 + [*torch.cat(mine)] + [0.0] * 4
        assert flags.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
        assert torch.allclose(net.a.weight, a - 0.5 * 10.0 / 2), "the others move it"
        assert torch.allclose(net.b.weight, b - 0.5 * (mine[0].view(3, 3) + 30.0) / 2)


def test_a_group_of_frozen_parameters_trains_as_one_process_would(group: ScriptedGroup) -> None:
    """Momentum and weight decay do not move parameters that all have frozen."""
    net, plain = Net(), Net()
    optimizer, alone = (
        torch.optim.SGD(n.parameters(), lr=0.5, momentum=0.9, weight_decay=0.1)
        for n in (net, plain)
    )
    with made("ddp", net, optimizer):
        for number in range(4):
            for model, own in ((net, optimizer), (plain, alone)):
                model.a.requires_grad_(number < 2)
                step(model, own)
    for mine, right in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, right)


# --- Complex numbers ------------------------------------------------------------------------------


class Complex(torch.nn.Module):
    """Complex numbers beside reals, whose odd number of elements shifts the pairs."""

    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.real = torch.nn.Parameter(torch.randn(3))
        self.weight = torch.nn.Parameter(torch.randn(2, 3, dtype=torch.complex64).to(dtype))
        self.scalar = torch.nn.Parameter(torch.tensor(1 - 2j, dtype=dtype))
        self.register_buffer("factor", torch.tensor([1 + 2j, 3 - 1j], dtype=dtype))


class Pairs(torch.nn.Module):
    """The same as pairs of reals."""

    def __init__(self, of: Complex) -> None:
        super().__init__()
        for name, parameter in of.named_parameters():
            pair = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            self.register_parameter(name, torch.nn.Parameter(pair.detach().clone()))
        self.register_buffer("factor", torch.view_as_real(of.factor).clone())


def as_reals(model: torch.nn.Module) -> torch.Tensor:
    tensors = [*model.parameters(), *model.buffers()]
    pairs = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    return torch.cat([pair.detach().flatten() for pair in pairs])


SETTINGS: dict[str, dict[str, Any]] = {
    "blocking": {},
    "mix": {"overlap": "auto"},
    "carry": {"overlap": 1, "mix": "carry"},
    "delay": {"mix": "delay", "outer_lr": 0.5, "outer_momentum": 0.5},
    "streaming": {"fragments": 2, "every": 2, "overlap": "auto"},
    "steps": {"weight": "steps"},
    "outer optimizer": {"outer_optimizer": lambda flats: torch.optim.Adam(flats, lr=0.01)},
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("settings", SETTINGS)
def test_complex_numbers_are_pairs_of_reals_in_diloco(
    group: ScriptedGroup, settings: str, dtype: torch.dtype
) -> None:
    model = Complex(dtype)
    results = []
    for each in (model, Pairs(model)):
        optimizer = sgd(each)
        options = {"every": 1, **SETTINGS[settings]}
        group.topologies, group.reduced = [], []
        with DiLoCo(each, optimizer, **options):
            for number in range(4):
                gradient(each, number)
                optimizer.step()
                buffer = each.factor
                (torch.view_as_real(buffer) if buffer.is_complex() else buffer).add_(0.25)
        results.append((as_reals(each), [r.clone() for r in group.reduced]))
    (mine, sent), (right, theirs) = results
    assert torch.equal(mine, right)
    assert all(torch.equal(a, b) for a, b in zip(sent, theirs, strict=True))
    assert mine.dtype == torch.float64 if dtype == torch.complex128 else torch.float32


def gradient(model: torch.nn.Module, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in model.parameters():
        shape = (*parameter.shape, 2) if parameter.is_complex() else parameter.shape
        pair = torch.randn(shape, generator=generator)
        whole = torch.view_as_complex(pair) if parameter.is_complex() else pair
        parameter.grad = whole.to(parameter.dtype)


@pytest.mark.parametrize("conjugate", [False, True])
def test_complex_numbers_are_pairs_of_reals_in_ddp(group: ScriptedGroup, conjugate: bool) -> None:
    model = Complex()
    pairs = Pairs(model)
    group.other = torch.cat([torch.arange(21.0), torch.ones(3), torch.zeros(1)])  # with the flags
    for each in (model, pairs):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.5, momentum=0.9)
        with DDP(each, optimizer):
            for number in range(3):
                gradient(each, number)
                if conjugate and each is model:  # as autograd leaves it where forward conjugates
                    each.weight.grad = each.weight.grad.conj().resolve_conj().conj()
                    assert each.weight.grad.is_conj()
                optimizer.step()
    assert torch.equal(as_reals(model), as_reals(pairs))


def test_an_imaginary_part_that_is_not_finite_counts_as_zero(
    group: ScriptedGroup, kind: str
) -> None:
    model = Complex()
    optimizer = sgd(model)
    with made(kind, model, optimizer) as trainer:
        gradient(model, 1)
        model.weight.grad = torch.full_like(model.weight, complex(1.0, float("nan")))
        optimizer.step()
        assert trainer.last.excluded == ("a",)
    assert all(torch.view_as_real(model.weight).isfinite().flatten())


def test_a_checkpoint_of_complex_numbers(group: ScriptedGroup, kind: str) -> None:
    model = Complex()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    with made(kind, model, optimizer) as trainer:
        for number in range(3):
            gradient(model, number)
            optimizer.step()
        state = {
            key: {n: t.clone() for n, t in value.items()} if key == "tensors" else value
            for key, value in trainer.state_dict().items()
        }
    other = Complex()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    again = made(kind, other, torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9))
    again.load_state_dict(state)
    again.start()
    assert again.state_dict()["digest"] == state["digest"]
    if kind == "ddp":
        assert torch.equal(other.weight, model.weight)
    else:
        with again.global_parameters():
            assert torch.equal(as_reals(other), as_reals(model))


def test_what_is_the_conjugate_of_other_memory_is_refused(kind: str) -> None:
    model = Complex()
    model.factor = model.factor.conj()
    with pytest.raises(ValueError, match=r"buffer 'factor' is the conjugate .*resolve_conj"):
        made(kind, model, sgd(model))


# --- Every dtype ----------------------------------------------------------------------------------


def of_dtype(dtype: torch.dtype) -> torch.Tensor:
    if str(dtype).startswith(("torch.q", "torch.quint")):
        return torch._empty_affine_quantized([4], scale=1.0, zero_point=0, dtype=dtype)
    tensor = torch.zeros(4, dtype=dtype)
    if not is_refused(dtype):
        tensor[1:3] = torch.tensor([1, 2]).to(dtype)
    return tensor


def is_refused(dtype: torch.dtype) -> bool:
    return SUPPORTED.fullmatch(str(dtype).removeprefix("torch.")) is None


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_buffer_of_every_dtype_is_kept_exactly_or_refused_by_name(
    group: ScriptedGroup, kind: str, dtype: torch.dtype
) -> None:
    net = Net()
    try:
        net.register_buffer("odd", of_dtype(dtype))
    except (RuntimeError, NotImplementedError):
        pytest.skip("torch makes no such tensor")
    optimizer = sgd(net)
    if is_refused(dtype):
        with pytest.raises(
            ValueError, match=rf"buffer 'odd' is {dtype}.* before (the|its) trainer"
        ):
            made(kind, net, optimizer)
        made("diloco", net, optimizer, buffers="own").close()
        return
    before = net.odd.clone()
    with made(kind, net, optimizer):
        for _ in range(3):
            step(net, optimizer)
            assert net.odd.dtype == dtype
            assert torch.equal(net.odd.view(torch.uint8), before.view(torch.uint8))
        group.agreed, group.revision = 1.0, 9  # the state that a newcomer takes
        step(net, optimizer)
        assert torch.equal(net.odd.to(torch.complex64), torch.ones(4, dtype=torch.complex64)) or (
            dtype.is_complex and torch.view_as_real(net.odd).eq(1).all()
        )


@pytest.mark.parametrize("dtype", EVERY_DTYPE, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_a_frozen_parameter_of_every_dtype_stays_or_is_refused_by_name(
    group: ScriptedGroup, kind: str, dtype: torch.dtype
) -> None:
    net = Net()
    try:
        net.odd = torch.nn.Parameter(of_dtype(dtype), requires_grad=False)
    except (RuntimeError, NotImplementedError):
        pytest.skip("torch makes no such tensor")
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.5)
    if kind == "ddp" and net.odd.is_quantized:  # DDP shares the whole model
        with pytest.raises(ValueError, match=rf"parameter 'odd' is {dtype}.*dequantize"):
            made(kind, net, optimizer)
        return
    with made(kind, net, optimizer):
        step(net, optimizer)


@pytest.mark.parametrize("dtype", [d for d in EVERY_DTYPE if d.is_floating_point], ids=str)
def test_a_trained_parameter_of_every_float_dtype_is_averaged_or_refused_by_name(
    group: ScriptedGroup, dtype: torch.dtype
) -> None:
    net = Net()
    net.odd = torch.nn.Parameter(of_dtype(dtype))
    if is_refused(dtype):
        with pytest.raises(ValueError, match=rf"parameter 'odd' is {dtype}.*requires_grad_\(False"):
            DiLoCo(net)
        return
    for options in ({}, {"overlap": "auto"}, {"overlap": "auto", "mix": "carry"}):
        outer = DiLoCo(net, outer_lr=1.0, outer_momentum=0.0, **options)
        outer.start()
        net.odd.data = torch.tensor([1, 2, 4, 1]).to(dtype)
        for _ in range(2):
            outer.step()
        outer.finish()
        assert net.odd.dtype == dtype
        assert net.odd.detach().float().tolist() == [1.0, 2.0, 4.0, 1.0]
        outer.close()


def test_a_mask_of_infinities_does_not_make_a_peer_sick(group: ScriptedGroup, kind: str) -> None:
    net = Net()
    net.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
    optimizer, before, mask = sgd(net), net.a.weight.clone(), net.mask.clone()
    with made(kind, net, optimizer) as trainer:
        step(net, optimizer)
        assert trainer.last.excluded == ()
    assert not torch.equal(net.a.weight, before)
    assert torch.equal(net.mask, mask)


@pytest.mark.parametrize("kind_of", ["lazy", "sparse"])
def test_a_tensor_without_memory_of_its_shape_is_refused_by_name(kind: str, kind_of: str) -> None:
    net = Net()
    if kind_of == "lazy":
        net.d = torch.nn.LazyLinear(3)
        says = "parameter 'd.weight' has no shape yet: run the model once"
    else:
        net.register_buffer("adjacency", torch.eye(3).to_sparse())
        says = "buffer 'adjacency' is torch.float32 in the layout torch.sparse_coo"
    with pytest.raises(ValueError, match=says):
        made(kind, net, torch.optim.SGD(net.a.parameters(), lr=0.1))


def test_a_wide_tensor_is_not_quantized() -> None:
    net = Net()
    net.seen = net.seen.double()
    with pytest.raises(ValueError, match="'seen' is of float64"):
        DiLoCo(net, quantize=MinMax(bits=8))


# --- Between real peers ---------------------------------------------------------------------------


@pytest.mark.parametrize("change", work.CHANGES)
def test_the_peer_that_differs_is_told_and_the_others_go_on(
    make_open_world: MakeWorld, kind: str, change: str
) -> None:
    world = make_open_world(3, min_peers=2, parameters={"founders": 3})
    world.start(work.changes, kind, change)
    outcomes = world.outcomes(60, expect_success=False)
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert [type(outcome.error) for outcome in failed] == [ValueError], world.tails()
    assert work.CHANGES[change] in str(failed[0].error)
    others = [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]
    assert len(others) == 2, world.tails()
    assert others[0] == others[1]
    assert others[0][0] == [3, 2]


def test_complex_numbers_between_real_peers(make_world: MakeWorld, kind: str) -> None:
    assert len(set(make_world(2).run(work.trains_complex, kind, timeout=90))) == 1


def test_complex_numbers_are_quantized_as_reals(make_world: MakeWorld) -> None:
    assert len(set(make_world(2).run(work.quantizes_complex, timeout=90))) == 1


def test_a_host_with_parts_of_complex_parameters(make_world: MakeWorld, master: Master) -> None:
    make_world(2).run(
        work.host_has_complex_shards, master.url(min_peers=1), setup="nothing", timeout=90
    )


def test_one_peer_freezes_a_parameter(make_world: MakeWorld) -> None:
    results = make_world(3).run(work.freezes, timeout=90)
    assert results[0] == results[1] == results[2]
