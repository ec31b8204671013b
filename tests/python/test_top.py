"""`pccl top`: its screen as a function, and in a pseudo-terminal with played and real masters."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet
from played_master import PlayedMaster
from terminal import Terminal
from world import run_program

from pccl_backend.command import top
from pccl_backend.command.common import CommandError
from pccl_backend.command.runs import NoMasterError
from pccl_backend.command.status_page import Line, Tone, page
from pccl_backend.command.top_screen import Key, KeyReader, Screen, Size

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
SMALLEST = Size(40, 5)
SIZES = [Size(columns, rows) for columns in (40, 63, 64, 80, 200) for rows in (5, 24, 70)]


def peer(rank: int, **changes: Any) -> dict[str, Any]:
    return {
        "peer": f"692b5a3f.{rank + 1}",
        "rank": rank,
        "name": f"tokyo-{rank}",
        "address": f"10.0.0.{rank}:48201",
        "state": "member",
        "since_s": 12.0,
        "doing": "has been in all_reduce (layer.3, #6) for 12 s",
        **changes,
    }


def snapshot_of(*peers: dict[str, Any], findings: int = 1, events: int = 5) -> dict[str, Any]:
    text = "ranks 0 (tokyo-0) and 1 (tokyo-1) wait: all_reduce(sum, float32) has waited for 12 s"
    finding = {"code": "rank_has_not_called", "severity": "error", "text": text, "next": "look"}
    return {
        "schema": 1,
        "run": "night",
        "up_s": 20.5,
        "findings": [{**finding, "whom": [f"tokyo-{number}"]} for number in range(findings)],
        "groups": [
            {
                "group": 0,
                "phase": "active",
                "epoch": "692b5a3f.2",
                "members": len(peers),
                "min_peers": 2,
                "peers": list(peers),
                "ring": [{"from": rank, "to": rank + 1} for rank in range(len(peers))],
                "calls": [{"call": "all_reduce(sum, float32)", "since_s": 12.0, "missing": [2]}],
            }
        ],
        "events": [
            {"at": f"2026-11-29T20:47:{number:02}.1Z", "level": "info", "text": "it happened " * 9}
            for number in range(events)
        ],
    }


LONG = snapshot_of(*(peer(rank) for rank in range(8)), findings=20)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def press(screen: Screen, size: Size, *keys: Key) -> list[str]:
    for key in keys:
        screen.on_key(key, size, now=0.0)
    return texts(screen.lines(size, now=0.0))


# --- The screen -----------------------------------------------------------------------------------


def test_the_words_are_those_of_status() -> None:
    snapshot = snapshot_of(peer(0), peer(1))
    lines = page(snapshot)
    shown = texts(Screen(snapshot, now=0.0).lines(Size(80, 40), now=0.0))
    assert shown[: len(lines)] == lines
    assert shown[len(lines) :] == [""] * (39 - len(lines)) + ["q quits"]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("failure", [None, NoMasterError("no socket " * 40)])
def test_the_screen_fits_the_terminal(size: Size, failure: CommandError | None) -> None:
    for snapshot in (LONG, snapshot_of(), snapshot_of(peer(0, name="x\x1b[2J" * 9), peer(1))):
        screen = Screen(snapshot, now=0.0)
        if failure is not None:
            screen.on_failure(failure)
        lines = texts(screen.lines(size, now=30.0 if failure else 0.0))
        assert len(lines) == size.rows
        assert max(map(len, lines)) <= size.columns
        assert "\x1b" not in "".join(lines)
        assert lines[-1].startswith("q quits")
        assert any(line.startswith("run night: ") for line in lines)
        assert lines[0].startswith("no master for 30 s: no socket" if failure else "run night: ")


@pytest.mark.parametrize("size", [Size(1, 1), Size(3, 2), Size(20, 4), Size(39, 4)])
def test_a_terminal_that_is_too_small_shows_the_part_that_fits(size: Size) -> None:
    screen = Screen(LONG | {"run": "東京"}, now=0.0)
    screen.on_failure(CommandError("gone"))
    lines = press(screen, size, Key.DOWN, Key.PAGE_DOWN, Key.UP)
    assert len(lines) == size.rows
    assert max(map(len, lines)) <= max(size.columns, len("..."))


def test_a_narrow_table_has_states_and_times() -> None:
    snapshot = snapshot_of(peer(0, name="x" * 40, state="arriving", since_s=0.1234))
    lines = texts(Screen(snapshot, now=0.0).lines(Size(40, 60), now=0.0))
    assert "rank  name        state     for      ..." in lines
    assert "0     xxxxxxx...  arriving  123.4 ms ..." in lines


def test_keys_scroll_over_the_whole_page() -> None:
    size = Size(80, 24)
    whole = texts(Screen(LONG, now=0.0).lines(Size(80, 500), now=0.0))
    page_of = whole[: max(number for number, line in enumerate(whole[:-1]) if line) + 1]
    count = len(page_of)
    screen = Screen(LONG, now=0.0)
    assert press(screen, size) == [*page_of[:23], f"q quits, arrows scroll, 1-23 of {count}"]
    assert press(screen, size, Key.UP)[:23] == page_of[:23]
    assert press(screen, size, Key.DOWN, Key.DOWN)[:23] == page_of[2:25]
    assert press(screen, size, Key.PAGE_DOWN)[:23] == page_of[24:47]
    assert press(screen, size, Key.PAGE_UP, Key.UP)[:23] == page_of[1:24]
    last = press(screen, size, *[Key.PAGE_DOWN] * 20)
    assert last == [
        *page_of[-23:],
        f"q quits, arrows scroll, {count - 22}-{count} of {count}",
    ]
    assert press(screen, size, Key.UP)[:23] == page_of[-24:-1]


def test_a_page_that_becomes_shorter_shows_its_end() -> None:
    screen = Screen(LONG, now=0.0)
    press(screen, SMALLEST, *[Key.PAGE_DOWN] * 99)
    shorter = snapshot_of(events=2)
    screen.on_snapshot(shorter, now=0.0)
    bottom = press(screen, SMALLEST)
    assert bottom[3].startswith("20:47:01 info: it happened")
    above = press(screen, SMALLEST, Key.UP)
    assert above[1:4] == bottom[:3], "the first key has an effect"


def test_a_master_that_is_gone_and_comes_back() -> None:
    screen = Screen(snapshot_of(peer(0)), now=0.0)
    fresh = screen.lines(Size(80, 24), now=1.0)
    screen.on_failure(NoMasterError("the master has ended: start one"))
    old = screen.lines(Size(80, 24), now=12.4)
    assert old[0] == Line("no master for 12 s: the master has ended: start one", Tone.ERROR)
    assert texts(old[1:-1]) == texts(fresh[:-2])
    assert {line.tone for line in old[1:-1]} == {Tone.STALE}
    screen.on_failure(CommandError('run "night" is not known\n'))
    assert texts(screen.lines(Size(80, 24), now=13.0))[0] == (
        'no new page for 13 s: run "night" is not known\\n'
    )
    screen.on_snapshot(snapshot_of(peer(0)), now=14.0)
    assert screen.lines(Size(80, 24), now=14.0) == fresh


def test_a_master_that_does_not_answer() -> None:
    screen = Screen(snapshot_of(peer(0)), now=10.0)
    assert screen.lines(Size(80, 24), now=12.9)[0].text.startswith("run night")
    first = screen.lines(Size(80, 24), now=13.0)[0].text
    assert first == "no new page for 3 s: the master has not answered yet"


def test_tones_mark_severities_and_lost_peers() -> None:
    snapshot = snapshot_of(peer(0), peer(1, state="away"), peer(2, state="silent"), findings=0)
    for severity in ("error", "warning", "note", "unknown"):
        snapshot["findings"].append({"severity": severity, "text": "text"})
    lines = Screen(snapshot, now=0.0).lines(Size(80, 40), now=0.0)
    marked = {line.text.split("  ")[0]: line.tone for line in lines if line.tone != Tone.PLAIN}
    assert marked == {
        "error": Tone.ERROR,
        "warning": Tone.WARNING,
        "note": Tone.NOTE,
        "1": Tone.LOST,
        "2": Tone.LOST,
    }


# --- Keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"qjk"], [Key.QUIT, Key.DOWN, Key.UP]),
        ([b"\x1b[A\x1b[B\x1b[5~\x1b[6~"], [Key.UP, Key.DOWN, Key.PAGE_UP, Key.PAGE_DOWN]),
        ([b"\x1bOA\x1bOB"], [Key.UP, Key.DOWN]),
        ([b"\x1b", b"[", b"6", b"~"], [Key.PAGE_DOWN]),
        ([b"\x1b", b"q"], [Key.QUIT]),
        ([b"\x1b\x1b[A"], [Key.UP]),
        ([b"\x1b[1;5A\x1b[3~\x1b[Mq"], [Key.QUIT]),
        (["日本q".encode()], [Key.QUIT]),
        ([b"\x1b[" + b"1" * 99, b"q"], [Key.QUIT]),
        ([b"\x1b[1", b"\x1b[A"], [Key.UP]),
    ],
)
def test_keys(pieces: list[bytes], keys: list[Key]) -> None:
    reader = KeyReader()
    assert [key for piece in pieces for key in reader.read(piece)] == keys


# --- A terminal -----------------------------------------------------------------------------------


@pytest.fixture
def played(tmp_path: Path) -> Iterator[PlayedMaster]:
    """Play a master with a page of two peers."""
    master = PlayedMaster(tmp_path / "played", answer(snapshot_of(peer(0), peer(1))))
    yield master
    master.close()


def answer(snapshot: dict[str, Any]) -> bytes:
    return json.dumps(snapshot).encode() + b"\n"


def watching(journal: Path, *words: str, **options: Any) -> Terminal:
    return Terminal([*PCCL, "top", *words, "--journal", journal], **options)


def test_a_page_that_changes_and_q(played: PlayedMaster) -> None:
    with watching(played.journal) as terminal:
        screen = terminal.until("run night: active")
        assert [line.rstrip() for line in screen[:-1]][: len(screen) - 1] == [
            *(lines := page(snapshot_of(peer(0), peer(1)))),
            *[""] * (23 - len(lines)),
        ]
        played.said = answer(snapshot_of(peer(0), peer(1, name="osaka")))
        terminal.until("osaka", "q quits")
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.is_restored()


def test_another_run_that_begins_does_not_take_the_place(played: PlayedMaster) -> None:
    with watching(played.journal) as terminal:
        terminal.until("run night")
        played.said = answer(snapshot_of(peer(0, name="osaka")))
        terminal.until("osaka")
        terminal.type("q")
        assert terminal.wait() == 0
    assert json.loads(played.asked[0]) == {"command": "status"}
    assert json.loads(played.asked[-1]) == {"command": "status", "run": "night"}


def test_answers_and_sizes_are_shown_at_once() -> None:
    program = """if True:
        import threading
        from pccl_backend.command import top_terminal
        top_terminal.TICK_S = 1000
        answers = iter(["second"])
        def source():
            for run in answers:
                return {"run": run}
            threading.Event().wait()
        top_terminal.show(source, {"run": "first"})
    """
    with Terminal([sys.executable, "-c", program]) as terminal:
        terminal.until("run first")
        terminal.until("run second")
        terminal.resize(50, 10)
        terminal.until("run second")
        terminal.type("q")
        assert terminal.wait() == 0


def test_a_resize_and_scrolling(played: PlayedMaster) -> None:
    played.said = answer(LONG)
    stale = {"COLUMNS": "70", "LINES": "20"}  # of the shell that started it
    with watching(played.journal, environment=stale) as terminal:
        terminal.until("1-23 of ")
        terminal.resize(50, 10)
        terminal.until("run night", "1-9 of ")
        terminal.type("\x1b[B")
        terminal.until("2-10 of ", without="run night")
        terminal.type("\x1b[6~j")
        terminal.until("11-19 of ")
        terminal.type("kkk\x1b[5~")
        terminal.until("1-9 of ")
        terminal.type("q")
        assert terminal.wait() == 0


def test_hostile_names_are_text(played: PlayedMaster) -> None:
    name = "[red]x[/]\x1b[2J:bug:"
    played.said = answer(snapshot_of(peer(0, name=name)) | {"run": "[bold]" + name})
    with watching(played.journal) as terminal:
        terminal.until("run [bold][red]x[/]\\x1b[2J:bug:: active", "0     [red]x[/]\\x1b...")
        terminal.type("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(("variables", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours(played: PlayedMaster, variables: dict[str, str], has_colours: bool) -> None:
    with watching(played.journal, environment=variables) as terminal:
        terminal.until("error rank_has_not_called")
        title = terminal.output.partition("error rank_has_not_called")[0].rpartition("\x1b[")[2]
        assert ("31" in title) == has_colours, title
        terminal.type("q")
        assert terminal.wait() == 0


def test_an_old_character_set(played: PlayedMaster) -> None:
    played.said = answer(snapshot_of(peer(0, name="東京")))
    variables = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    with watching(played.journal, environment=variables) as terminal:
        terminal.until("\\u6771\\u4eac", "run night")
        terminal.type("q")
        assert terminal.wait() == 0


def test_ctrl_c(played: PlayedMaster) -> None:
    with watching(played.journal) as terminal:
        terminal.until("run night")
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert terminal.is_restored()
        assert terminal.output.endswith("\r\npccl top: interrupted\r\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_terminal(played: PlayedMaster, number: signal.Signals) -> None:
    with watching(played.journal) as terminal:
        terminal.until("run night")
        terminal.program.send_signal(number)
        assert terminal.wait() == -number
        assert terminal.is_restored()


def test_an_exception_restores_the_terminal() -> None:
    program = """if True:
        from pccl_backend.command.top_terminal import show
        show(lambda: 1 / 0, {"run": "night"})
    """
    with Terminal([sys.executable, "-c", program]) as terminal:
        terminal.until("run night")
        assert terminal.wait() == 1
        assert terminal.is_restored()
        assert "ZeroDivisionError" in terminal.output.rpartition("\x1b[?1049l")[2]


def test_ctrl_z_and_its_end(played: PlayedMaster) -> None:
    script = '"$@"; echo "stopped: $?"; read line; fg >&2; echo "ended: $?"'
    command = [*PCCL, "top", "--journal", played.journal]
    with Terminal(["bash", "-m", "-c", script, "sh", *command]) as terminal:
        terminal.until("run night")
        terminal.type("\x1a")
        terminal.until_printed(f"stopped: {128 + signal.SIGTSTP}")
        assert terminal.is_restored()
        terminal.type("\n")
        terminal.until("run night", "q quits")
        terminal.type("q")
        terminal.until_printed("ended: 0")
        assert terminal.wait() == 0
        assert terminal.is_restored()


def test_a_terminal_that_is_closed(played: PlayedMaster) -> None:
    with watching(played.journal) as terminal:
        terminal.until("run night")
        terminal.hang_up()
        assert terminal.program.wait() == -signal.SIGHUP


def test_a_terminal_that_takes_no_output(played: PlayedMaster) -> None:
    with watching(played.journal, size=(1000, 1000)) as terminal:  # more than the system buffers
        terminal.until_printed("run night")
        terminal.program.send_signal(signal.SIGTERM)
        assert terminal.program.wait() == -signal.SIGALRM


def test_keys_work_while_the_master_does_not_answer(played: PlayedMaster) -> None:
    with watching(played.journal) as terminal:
        terminal.until("run night")
        played.said = None
        terminal.until("no new page for ", "the master has not answered yet", "run night")
        terminal.type("q")
        assert terminal.wait() == 0


# --- A real master --------------------------------------------------------------------------------


def test_a_real_run_whose_master_is_killed_and_comes_back(tmp_path: Path) -> None:
    fleet = Fleet(journal=tmp_path / "journal")
    try:
        fleet.found(2, run="night", name="tokyo")
        with watching(tmp_path / "journal") as terminal:
            terminal.until("run night: active, epoch ", "2 members", "tokyo", "last events")
            fleet.kill_master()
            terminal.until("no master for ", "run night: active", "tokyo")
            fleet.start_master()
            terminal.until("run night: active", "2 members", "tokyo", without="no master")
            terminal.resize(60, 12)
            terminal.until("run night: active", "arrows scroll")
            terminal.type("q")
            assert terminal.wait() == 0
            assert terminal.is_restored()
    finally:
        fleet.close()


# --- No screen ------------------------------------------------------------------------------------


def test_without_a_master(tmp_path: Path) -> None:
    with watching(tmp_path / "journal") as terminal:
        assert terminal.wait() == 2
        assert terminal.output.startswith("pccl top: there is no ")
        assert terminal.modes() == terminal.modes_before


def test_a_master_of_another_version(played: PlayedMaster) -> None:
    played.said = b"{}\n"
    with watching(played.journal) as terminal:
        assert terminal.wait() == 2
        assert "the answer of the master has no findings" in terminal.output


def test_without_a_terminal() -> None:
    done = run_program([*PCCL, "top"])
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no terminal: use `pccl status`, which prints the page once" in done.stderr


def test_output_to_a_pipe() -> None:
    with Terminal(["sh", "-c", '"$@" | cat', "sh", *PCCL, "top"]) as terminal:
        terminal.until_printed("pccl top: its standard output is no terminal: use `pccl status`")


def test_a_terminal_without_a_cursor(played: PlayedMaster) -> None:
    with watching(played.journal, environment={"TERM": "dumb"}) as terminal:
        assert terminal.wait() == 2
        assert "TERM=dumb cannot redraw a page: use `pccl status`" in terminal.output


def test_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(top, "find_spec", lambda name: None)
    assert top.show_top([]) == 2
    assert capsys.readouterr().err == "pccl top: it needs rich: pip install 'pccl-torch[top]'\n"


def test_neither_torch_nor_rich_is_imported_early() -> None:
    program = "import sys, pccl_backend.command.top; print({'torch', 'rich'} & set(sys.modules))"
    assert run_program([sys.executable, "-c", program]).stdout == "set()\n"
