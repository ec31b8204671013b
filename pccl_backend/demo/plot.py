"""The plot: starts master and peers, kills one peer during an all-reduce, and later adds another.

The normal course: the master prints its address; `a`, `b` and `c` found the run and train. At
`kill_step`, `c` is held back before its all-reduce. When `a` and `b` have posted theirs, `b` gets
SIGKILL, and `c` is released. An all-reduce ends only after all members have called it, so the kill
always hits a running all-reduce. When `a` and `c` have repeated it, `d` is started; it joins at
`join_step`. All train until the conditions of `settings` are met and report `done`.

A failure raises DemoError, which names the child and the missing event: a child has ended too
early, or the demo is not finished at the deadline. `Children` ends the child processes in every
case.
"""

from __future__ import annotations

import re
import selectors
import sys
import time
from collections.abc import Callable

from pccl_backend.demo.child import Child, Children
from pccl_backend.demo.settings import Settings
from pccl_backend.demo.story import Event, Story, parse

__all__ = ["DemoError", "Plot"]

FOUNDERS = ("a", "b", "c")
WITNESS, VICTIM, HELD, NEWCOMER = "a", "b", "c", "d"
RUN = "demo"

MASTER_TIMEOUT_S = 15.0
EXIT_TIMEOUT_S = 60.0  # unloading torch can make a slow machine read it from disk again
TICK_S = 0.25
LISTENING = re.compile(r"pccl master listening on (\S+:\d+)")


class DemoError(Exception):
    """The demo could not continue; the message has the reason and a child's last errors."""


class Plot:
    """One demo from start to end. Use it once.

    Args:
        settings: size of the demo and steps of its events.
        children: starts and ends the processes.
        show: called after every event, and a few times a second without one.
    """

    def __init__(
        self, settings: Settings, children: Children, show: Callable[[Story, Event | None], None]
    ) -> None:
        self._settings = settings
        self._children = children
        self._show = show
        self._story = Story()
        self._peers: dict[str, Child] = {}
        self._selector = selectors.DefaultSelector()
        self._deadline = time.monotonic() + settings.deadline_s
        self._newcomer_told = False

    def run(self) -> Story:
        """Run the demo and return the story.

        Raises:
            DemoError: a child ended too early, or the demo was not finished in time.
        """
        with self._selector:
            self._master = self._children.start("master", _command("cli", "master", "--port", "0"))
            self._selector.register(self._master.fileno(), selectors.EVENT_READ, self._master)
            self._address = self._wait_for_master()
            for name in FOUNDERS:
                self._spawn(name, "--hold-step", str(self._hold_step(name)))
            while not self._is_over():
                self._turn()
            self._wait_for_exits()
        return self._story

    def _wait_for_master(self) -> str:
        until = time.monotonic() + MASTER_TIMEOUT_S
        while time.monotonic() < until:
            for _ in self._selector.select(TICK_S):
                for line in self._lines_of(self._master):
                    if found := LISTENING.search(line):
                        return found.group(1)
            self._show(self._story, None)
        raise _failure(self._master, f"did not say where it listens in {MASTER_TIMEOUT_S:.0f} s")

    def _hold_step(self, name: str) -> int:
        return self._settings.kill_step if name == HELD else 0

    def _spawn(self, name: str, *options: str) -> None:
        command = _command("demo.peer", "--name", name, "--address", self._address, "--run", RUN)
        command += ["--settings", self._settings.to_json(), *options]
        # One thread for each peer's arithmetic, because all peers share this machine.
        child = self._children.start(name, command, environment={"OMP_NUM_THREADS": "1"})
        self._peers[name] = child
        self._selector.register(child.fileno(), selectors.EVENT_READ, child)
        self._tell_story(Event(name, "spawned", time.monotonic(), {"pid": child.pid}))

    def _turn(self) -> None:
        """Process the children's reports; without any, return after a quarter of a second."""
        if time.monotonic() > self._deadline:
            raise DemoError(self._too_late())
        ready = self._selector.select(TICK_S)
        for key, _ in ready:
            child: Child = key.data
            for line in self._lines_of(child):
                if event := parse(child.name, line):
                    self._tell_story(event)
        if not ready:
            self._show(self._story, None)

    def _lines_of(self, child: Child) -> list[str]:
        """Return the new output lines of a child.

        Raises:
            DemoError: the child ended too early.
        """
        lines = child.read_lines()
        if lines is not None:
            return lines
        self._selector.unregister(child.fileno())
        if child is self._master or not self._has_left(child.name):
            raise _failure(child, "ended before the demo did")
        return []

    def _has_left(self, name: str) -> bool:
        return self._story.peers[name].state in ("killed", "done")

    def _is_over(self) -> bool:
        return NEWCOMER in self._peers and all(map(self._has_left, self._peers))

    def _tell_story(self, event: Event) -> None:
        self._story.add(event)
        self._show(self._story, event)
        self._act(event)

    def _act(self, event: Event) -> None:
        """Perform the plot's next action after this event."""
        settings, story = self._settings, self._story
        if event.kind == "posted" and story.killed is None:
            under_way = {posted.peer for posted in story.of("posted", step=settings.kill_step)}
            if {WITNESS, VICTIM} <= under_way:
                self._kill()
        if story.killed is None or story.recovered_at(settings.kill_step) is None:
            return
        if NEWCOMER not in self._peers:
            self._spawn(NEWCOMER, "--newcomer")
        is_ready = bool(story.of("ready", peer=NEWCOMER))
        if is_ready and story.revision >= settings.join_step and not self._newcomer_told:
            self._newcomer_told = True
            self._peers[NEWCOMER].tell("go")
            self._tell_story(Event(NEWCOMER, "told", time.monotonic()))

    def _kill(self) -> None:
        victim = self._peers[VICTIM]
        ended_at = victim.kill()
        self._peers[HELD].tell("go")
        step = self._settings.kill_step
        self._tell_story(Event(VICTIM, "killed", ended_at, {"pid": victim.pid, "step": step}))

    def _wait_for_exits(self) -> None:
        until = min(self._deadline, time.monotonic() + EXIT_TIMEOUT_S)
        for name, child in self._peers.items():
            code = child.wait(timeout_s=max(0.0, until - time.monotonic()))
            if name != VICTIM and code != 0:
                raise _failure(child, "was done and did not end well")

    def _too_late(self) -> str:
        peers = self._story.peers.values()
        states = ", ".join(f"{p.name}: {p.state}, step {p.step}" for p in peers)
        words = [f"{name} says:\n{child.last_words()}" for name, child in self._peers.items()]
        late = f"not finished after {self._settings.deadline_s:.0f} s ({states})"
        return "\n".join([late, *words])


def _command(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"pccl_backend.{module}", *arguments]


def _failure(child: Child, what: str) -> DemoError:
    code = child.wait(timeout_s=1.0)
    ending = "it still runs" if code is None else f"exit code {code}"
    return DemoError(f"{child.name} (pid {child.pid}) {what}: {ending}\n{child.last_words()}")
