"""HeldSignals: handlers raise in wait() and at the end of the block; no signal is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from pccl_backend.trainers._signals import HeldSignals

ctrl_c = signal.SIGINT


@pytest.fixture(autouse=True)
def usr1(heeds_ctrl_c: None) -> Iterator[list[int]]:
    """Install a handler that does not raise; yield the list of signals that it received."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGUSR1, before)
    assert signal.getsignal(ctrl_c) is signal.default_int_handler


def test_a_signal_outside_wait_is_raised_at_the_end() -> None:
    done = []

    def interrupted() -> None:
        with HeldSignals():
            signal.raise_signal(ctrl_c)
            done.append("all of the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done


def test_a_signal_outside_wait_ends_the_next_wait() -> None:
    waited = []
    with HeldSignals() as held:
        signal.raise_signal(ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            held.wait(lambda: waited.append(1))
        assert not waited
        held.wait(lambda: waited.append(2))
    assert waited == [2]


def test_a_wait_is_interrupted_once_and_the_second_signal_waits_for_the_end() -> None:
    handled = []

    def interrupted() -> None:
        with HeldSignals() as held:
            try:
                held.wait(lambda: signal.raise_signal(ctrl_c))
            except KeyboardInterrupt:
                signal.raise_signal(ctrl_c)
                handled.append("undisturbed")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert handled


def test_a_signal_that_comes_while_a_handler_raises_waits_too() -> None:
    def timed_out(*_: object) -> None:
        signal.raise_signal(ctrl_c)
        raise TimeoutError

    handled = []

    def interrupted() -> None:
        with HeldSignals() as held:
            try:
                held.wait(lambda: signal.raise_signal(signal.SIGUSR1))
            except TimeoutError:
                handled.append("alone")

    signal.signal(signal.SIGUSR1, timed_out)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert handled


def test_handlers_that_do_not_raise_run_and_let_the_wait_go_on(usr1: list[int]) -> None:
    with HeldSignals() as held:
        signal.raise_signal(signal.SIGUSR1)
        assert usr1 == []
        for count in (2, 3):
            held.wait(lambda: signal.raise_signal(signal.SIGUSR1))
            assert len(usr1) == count
        signal.raise_signal(signal.SIGUSR1)
    assert len(usr1) == 4


def test_one_that_raises_does_not_swallow_another(usr1: list[int]) -> None:
    def interrupted() -> None:
        with HeldSignals():
            signal.raise_signal(ctrl_c)
            signal.raise_signal(signal.SIGUSR1)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(usr1) == 1


def test_the_error_of_the_block_is_not_lost() -> None:
    def interrupted() -> None:
        with HeldSignals():
            signal.raise_signal(ctrl_c)
            raise ValueError("of the block")

    with pytest.raises(KeyboardInterrupt) as raised:
        interrupted()
    assert isinstance(raised.value.__context__, ValueError)


def test_other_threads_have_nothing_to_hold() -> None:
    results = []

    def run() -> None:
        with HeldSignals() as held:
            results.append(held.wait(lambda: 3))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert results == [3]
