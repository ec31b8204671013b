"""Bad arguments of the trainers are refused at the call, with the value and the bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
from scripted_group import script, small_model

from pccl_backend import _memory
from pccl_backend.trainers import DDP, DiLoCo

HOUR = timedelta(hours=1)


def made(model: torch.nn.Module, **options: Any) -> DiLoCo:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DiLoCo(model, optimizer, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every is 0; it must be a number of inner steps from 1"),
        ({"every": True}, "every is True"),
        ({"every": timedelta(0)}, "every is 0:00:00; it must be above 0"),
        ({"outer_lr": 0.0}, "outer_lr is 0.0; it must be above 0"),
        ({"outer_momentum": 1.0}, r"outer_momentum is 1.0; it must be in \[0, 1\)"),
        ({"every": 10, "overlap": 10}, "overlap is 10.* at most 9"),
        ({"every": 10, "overlap": 11, "mix": "carry"}, "overlap is 11.* at most 10"),
        ({"every": 12, "overlap": 4, "fragments": 3}, "overlap is 4.* at most 3"),
        ({"every": 10, "overlap": -1}, "overlap is -1; it must be .* from 0"),
        ({"every": 2, "fragments": 3}, "fragments is 3, and every is 2"),
        ({"every": 100, "fragments": 4}, "fragments is 4, and the model has 3 trainable"),
        ({"fragments": 0}, "fragments is 0; it must be an int from 1"),
        ({"mix": 1.5}, "mix is 1.5; it must be from 0 to 1"),
        ({"mix": -0.1}, "mix is -0.1; it must be from 0 to 1"),
        ({"mix": "eager"}, "mix is 'eager'"),
        ({"every": 10, "mix": "carry"}, "mix='carry' is for .* give overlap="),
        ({"every": 10, "mix": 0.5}, "mix=0.5 is for .* give overlap="),
        ({"every": 10, "mix": "delay", "overlap": 3}, "leave overlap out"),
        ({"every": 10, "mix": "delay", "fragments": 2}, 'mix="delay" has one fragment, not 2'),
        ({"weight": "tokens"}, "weight is 'tokens'; it can be"),
        ({"buffers": "mine"}, "buffers is 'mine'; it can be"),
        ({"url": "pccl://host/run", "group": object()}, "give one of them"),
    ],
)
def test_a_setting_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(small_model(), **options)


def test_what_counts_inner_steps_needs_an_optimizer() -> None:
    for options in ({"every": 10}, {"every": HOUR}, {"overlap": 2}, {"weight": "steps"}):
        with pytest.raises(ValueError, match=r"no optimizer|needs an optimizer"):
            DiLoCo(small_model(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("trainer", [DiLoCo, DDP])
def test_an_optimizer_of_another_model_is_refused(trainer: Any) -> None:
    other = torch.optim.SGD(small_model().parameters(), lr=0.1)
    model = small_model()
    mine = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"optimizer 1 \(SGD\) has 3 parameters, and none of them"):
        trainer(model, [mine, other])
    with pytest.raises(TypeError, match=r"must be a torch.optim.Optimizer, not Linear"):
        trainer(model, [model[0]])
    with pytest.raises(TypeError, match=r"must be a torch.optim.Optimizer, not Linear"):
        trainer(model, model[0])
    with pytest.raises(ValueError, match="there are 0 optimizers"):
        trainer(model, [])


class Wrapper(torch.optim.Optimizer):
    """Has the parameters of another optimizer, and no hooks."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.state, self.param_groups = inner, inner.state, inner.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.parametrize("trainer", [DiLoCo, DDP])
def test_an_optimizer_that_calls_no_hooks_is_refused(trainer: Any) -> None:
    model = small_model()
    wrapper = Wrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=r"optimizer 0 \(Wrapper\) calls no hooks at its steps"):
        trainer(model, wrapper)


def test_two_trainers_on_one_model_are_refused() -> None:
    model = small_model()
    first = made(model)
    with pytest.raises(ValueError, match=r"has a trainer already \(DiLoCo\)"):
        DDP(model, torch.optim.SGD(model.parameters(), lr=0.1))
    first.close()
    second = made(model)
    del second  # it has no user any more
    made(model).close()


@pytest.mark.parametrize(("lr", "momentum", "warns"), [(0.7, 0.9, True), (0.5, 0.5, False)])
def test_delay_warns_when_it_diverges(lr: float, momentum: float, warns: bool) -> None:
    with pytest.warns(UserWarning, match="diverges") if warns else no_warning():
        made(small_model(), every=10, mix="delay", outer_lr=lr, outer_momentum=momentum)


def no_warning() -> Any:
    import contextlib

    return contextlib.nullcontext()


def test_memory_that_the_host_does_not_have_is_refused_with_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script(monkeypatch)
    monkeypatch.setattr(_memory, "available", lambda: 1 << 10)
    with pytest.raises(MemoryError, match=r"of 30 parameters takes 0.00 GiB .* 0.00 GiB are avail"):
        DiLoCo(small_model()).start()
