"""`make bench`: sections of RESULTS.md, its budget, and the behaviour when a part fails.

Nothing is measured here: a few lines that end as required replace the scripts.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from programs import Program

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import all_reduce
import bench
import collectives
import counters
import curve
import ddp_step
import groups
import hosts
import latency
import memory
import options
import patterns
import plots
import processes
import quality
import quantized_error
import reconfigure
import records
import render
import throughput
import worlds
from sections import END, ResultsError, begin_line, find_sections, replace_section, table

ORDER = ("first", "second", "third")
HAND = "# Results\n\nWords.\n\n## By hand\n\nFigures:  1 \n\n\n## Also by hand\n\n2"
MACHINE = render.Machine(
    date="2026-01-02", cores=2, cpu="A CPU", kernel="6.1", load=0.25, congestion="bbr"
)


def whole(name: str, body: str) -> str:
    return f"{begin_line(name)}\n{body}\n{END}\n"


# ---- Sections ------------------------------------------------------------------------------------


def test_new_section_comes_before_what_is_written_by_hand() -> None:
    text = replace_section(HAND, "second", "body", ORDER)
    assert text == HAND.replace("## By hand", whole("second", "body") + "\n## By hand", 1)


def test_only_the_section_changes() -> None:
    text = f"a\n\n{whole('first', 'old')}\nb \n\n{whole('second', 'kept')}c"
    changed = replace_section(text, "first", "new\nlines\n\n", ORDER)
    assert changed == text.replace("old", "new\nlines")
    assert replace_section(changed, "first", "old", ORDER) == text


def test_sections_keep_their_order_however_they_come() -> None:
    text = HAND
    for name in ("third", "first", "second"):
        text = replace_section(text, name, f"of {name}", ORDER)
    assert list(find_sections(text)) == list(ORDER)
    assert text.startswith("# Results\n\nWords.\n\n")
    assert text.endswith(HAND[HAND.index("## By hand") :])
    again = text
    for name in ORDER:
        again = replace_section(again, name, f"of {name}", ORDER)
    assert again == text


def test_section_moved_by_hand_stays_there() -> None:
    text = f"{HAND}\n\n{whole('first', 'old')}"
    changed = replace_section(text, "first", "new", ORDER)
    assert changed == text.replace("old", "new")


@pytest.mark.parametrize("text", ["", "Only words."])
def test_section_of_a_file_without_headings(text: str) -> None:
    changed = replace_section(text, "first", "body", ORDER)
    assert changed.endswith(whole("first", "body"))
    assert changed.startswith(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{begin_line('first')}\nbody\n", "no line"),
        (f"{begin_line('first')}\n{whole('second', 'body')}", "first has no line"),
        (whole("first", "a") + whole("first", "b"), "two sections first"),
    ],
)
def test_broken_markers_are_refused(text: str, says: str) -> None:
    with pytest.raises(ResultsError, match=says):
        replace_section(text, "second", "body", ORDER)


@pytest.mark.parametrize("body", [f"a\n{END}\nb", f"{begin_line('third')}\nb"])
def test_markers_in_a_body_are_refused(body: str) -> None:
    with pytest.raises(ResultsError, match="marker"):
        replace_section(HAND, "first", body, ORDER)


def test_table() -> None:
    assert table(["", "ms"], [["pccl", "1"]]) == "|  | ms |\n|---|---|\n| pccl | 1 |\n"
    with pytest.raises(AssertionError):
        table(["one"], [["a", "b"]])


def test_results_in_the_tree_can_be_written() -> None:
    assert set(find_sections(bench.RESULTS.read_text())) <= set(bench.ORDER)


# ---- Records -------------------------------------------------------------------------------------


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    row = latency.Row(call="await", us=[1.0, 2.5], goal=None)
    record = records.Record(congestion="cubic", rounds=2, rows=[row], facts={"a": [1]})
    records.write(record, tmp_path / "a.json")
    assert records.read(tmp_path / "a.json", latency.Row) == record


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        ([0.0000123], "12.3 µs (12.3-12.3)"),
        ([0.06, 0.05, 0.07], "60.0 ms (50.0-70.0)"),
        ([1.5, 2.0], "1.75 s (1.50-2.00)"),
    ],
)
def test_spread(seconds: list[float], shown: str) -> None:
    assert records.spread(seconds) == shown


@pytest.mark.parametrize("size", curve.SIZES)
def test_size_names_are_read_back(size: int) -> None:
    assert curve.bytes_of(records.size_name(size)) == size


def test_size_that_is_none() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="64MB"):
        curve.bytes_of("64MB")


def test_curve_stays_within_memory() -> None:
    gib = 1 << 30
    assert curve.fits(gib, 8, 17 * gib)
    assert not curve.fits(gib, 8, 17 * gib - 1)
    assert not curve.fits(gib, 16, 1000 * gib)  # at most 8 GiB of tensors


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# started\n\n1234,,raw_syscalls:sys_enter,5,100.00,,\n", 1234),
        ("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n", None),
        ("", None),
    ],
)
def test_count_of_perf(text: str, count: int | None) -> None:
    assert counters.parse_perf(text) == count


def test_limit_of_loopback() -> None:
    loopback = all_reduce.Loopback(world=2, mbit=8000.0, rtt_ms=1.0)
    # One gigabyte of each of two ranks at one gigabyte per second, and two hops of 0.5 ms.
    assert loopback.limit(10**9) == pytest.approx(2.001)


# ---- From records to tables ----------------------------------------------------------------------


def loopback_row(*, limit: float | None = 0.02, floor: bool = True) -> all_reduce.Row:
    wall = {"pccl": [0.04, 0.05], "Gloo": [0.06, 0.07]} | ({"floor": [0.03]} if floor else {})
    cpu = {name: [1.0 + len(name)] for name in wall}
    return all_reduce.Row(
        case="64 MiB", world=2, bytes=1 << 26, goal=0.75, limit=limit, wall=wall, cpu=cpu
    )


def world_row(*, sound: bool) -> worlds.Row:
    return worlds.Row(
        scenario="europe" if sound else "both",
        hosts=6,
        bytes=24_000_000,
        by_rate=0.7,
        by_hops=0.1,
        wall={"pccl": [0.8], "gloo": [4.0], "gloo in groups": [1.5]},
        cpu={"pccl": [2.0], "gloo": [3.0], "gloo in groups": [5.0]},
        groups=16,
        network=[0.5],
        cores={"pccl": [0.4]},
        emulator="emulator: as it was",
        sound=sound,
    )


def pattern_row(*, sound: bool = True) -> patterns.Row:
    return patterns.Row(
        scenario="home",
        hosts=4,
        bytes=1 << 24,
        wall={"ring": [3.0, 3.5, 3.6], "direct": [2.0, 1.75, 1.6], "gloo": [3.5]},
        network=[0.2],
        cores={"pccl": [0.4]},
        emulator="emulator: as it was",
        sound=sound,
    )


class KnownWorld(all_reduce.World):
    """A world whose call time is known for each number of groups."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds

    def all_reduce(self, case: all_reduce.Case) -> tuple[float, float]:
        return self.seconds[case.groups], 0.0


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({8: 5.0, 16: 5.0}, 8),  # 32 is not tried
        ({8: 5.0, 16: 3.0, 32: 3.5}, 16),
        ({8: 3.0, 16: 2.0, 32: 1.0}, 32),
    ],
)
def test_groups_are_doubled_while_they_bring_something(
    seconds: dict[int, float], best: int
) -> None:
    case = all_reduce.Case(name="", tensor_bytes=4, goals={})
    assert worlds.best_groups(KnownWorld(seconds), case) == best


def test_contenders_are_those_that_a_scenario_is_for() -> None:
    assert patterns.contenders({"hosts": [], "shares": []}) == [
        *("ring", "direct", "shares", "plan", "gloo")
    ]
    assert patterns.contenders({"hosts": [], "order": []}) == [
        *("ring", "best ring", "direct", "plan", "gloo")
    ]
    assert pattern_row().gain("direct") == 2.0
    assert "1.75 s (1.60-2.00), 2.00x" in patterns.line(pattern_row())


def test_what_a_plan_gains_over_orders_of_the_hosts() -> None:
    assert patterns.joining_order(6, 0, 1) == [0, 1, 2, 3, 4, 5]
    orders = [patterns.joining_order(6, shuffle, 1) for shuffle in (1, 2, 3)]
    assert all(sorted(order) == [0, 1, 2, 3, 4, 5] for order in orders)
    assert orders == [patterns.joining_order(6, shuffle, 1) for shuffle in (1, 2, 3)]
    assert len({*map(tuple, orders), (0, 1, 2, 3, 4, 5)}) == 4
    rows = [pattern_row(), pattern_row(), pattern_row(sound=False)]
    for row, seconds in zip(rows, (2.0, 3.5, 2.5), strict=True):
        row.scenario, row.wall["plan"] = "america", [seconds]
    text = patterns.gains(rows)
    assert "1.40 times as fast as the ring, as the median over 3 orders (1.75, 1.00, 1.40)" in text
    assert "goal 1.12; 2 of 3 networks were sound" in text


def calls_of_an_ocean() -> list[throughput.Row]:
    return [
        throughput.Row(run=1, backend=backend, name="first", seconds=2.0, cpu=1.5)
        for backend in (*throughput.SERIES, "floor")
    ]


def error_rows(*, growth: float = 1.0) -> list[quantized_error.Row]:
    """Return errors that reach all goals, if direct sums of many have no more than sums of few."""
    return [
        quantized_error.Row(
            data=data,
            bits=bits,
            way=way,
            members=members,
            error=0.009 * (growth if members == 18 else 1.0) * (1 if bits == 8 else 3),
        )
        for data in (quantized_error.PSEUDO, quantized_error.NORMAL)
        for bits in quantized_error.BITS
        for way in (quantized_error.RING, quantized_error.DIRECT)
        for members in (2, 3, 18)
    ]


def test_goals_of_quantized_sums() -> None:
    assert quantized_error.missed(error_rows()) == []
    assert len(quantized_error.missed(error_rows(growth=1.1))) == 0
    first, second, third = quantized_error.missed(error_rows(growth=1.3))
    assert first == "8 bits: 1.17%, goal 1.0%"
    assert second == "4 bits: 3.51%, goal 3.5%"
    assert third == "18 members have 1.30 times the error of 3, goal 1.2"


def training(setting: str, seed: int, loss: float) -> quality.Row:
    curve = [[1e6, loss + 1], [2e6, loss]]
    return quality.Row(setting=setting, seed=seed, loss=loss, digest="d", curve=curve)


@pytest.mark.parametrize(
    ("losses", "goal", "reached", "says"),
    [
        ((1.95, 2.05, 2.15), quality.NOISE, True, "goal 0.200, the spread of rival"),
        ((2.25, 2.35, 2.45), quality.NOISE, False, "MISSED"),
        ((1.99, 2.09, 2.19), 1.0, True, "goal 1.0"),
        ((2.01, 2.11, 2.21), 1.0, False, "MISSED"),
        ((3.0, 3.0, 3.0), None, True, "1.429 x rival"),
    ],
)
def test_goals_of_a_setting(
    capsys: pytest.CaptureFixture[str],
    losses: tuple[float, ...],
    goal: float | str | None,
    reached: bool,
    says: str,
) -> None:
    rivals = [training("rival", seed, loss) for seed, loss in enumerate((2.0, 2.1, 2.2))]
    rows = [training("it", seed, loss) for seed, loss in enumerate(losses)]
    setting = quality.Setting(rival="rival", goal=goal)
    assert quality.show("it", setting, rows, rivals) == reached
    assert says in capsys.readouterr().out


def test_rivals_are_measured_first() -> None:
    for study in quality.STUDIES.values():
        names = list(study.settings)
        for name, setting in study.settings.items():
            assert setting.rival in ["", *names[: names.index(name)]]
            assert bool(setting.rival) or setting.goal is None


OCEAN = {
    "scenario": "atlantic",
    "mib": 256,
    "megabits": 2000.0,
    "limit": 1.5,
    "round_trip_ms": 90.0,
    "best_mbit": 1400.0,
    "iperf": {"16 streams": 1400.0},
    "emulator": "emulator: as it was",
    "sound": True,
}


def results_of(rows: list[object], **facts: object) -> render.Results:
    record = records.Record(congestion="cubic", rounds=7, rows=rows, facts=facts)
    return {name: render.Result(command="run it", record=record) for name in bench.ORDER}


def rows_for(name: str) -> render.Results:
    """Return results that this part might have measured."""
    switches = {"voluntary": [1.0], "involuntary": [0.5]}
    each = {name: [0.2] for name in hosts.CONTENDERS}
    return {
        "loopback": results_of([loopback_row(), loopback_row(limit=None, floor=False)]),
        "curve": results_of(
            [
                curve.Row(backend="pccl", world=2, bytes=1 << 20, wall=[0.001], sent=1.002),
                curve.Row(backend="Gloo", world=2, bytes=1 << 20, wall=[0.002], sent=None),
                curve.Row(backend="pccl", world=2, bytes=1 << 30, wall=[0.5], sent=1.0001),
            ],
            left_out=["1 GiB at world 16"],
        ),
        "counters": results_of(
            [counters.Row(backend="pccl", world=2, mib=64, counts=switches, system_calls=None)]
        ),
        "latency": results_of([latency.Row(call="await", us=[700.0], goal=7000.0)]),
        "memory": results_of(
            [
                memory.Row(
                    world=2,
                    mib=1024,
                    call="all_reduce",
                    restore="on",
                    most_mib=1025.0,
                    goal_mib=1088,
                )
            ]
        ),
        "collectives": results_of(
            [
                collectives.Row(
                    call=call,
                    bytes=size,
                    world=4,
                    pccl_s=[0.001],
                    unsaved_s=[0.0008],
                    gloo_s=[0.002],
                    pccl_cpu_s=[0.001],
                    gloo_cpu_s=[0.002],
                    commit_s=0.0001,
                    pccl_peak_mib=16.0,
                    gloo_peak_mib=0.0,
                )
                for call, size in (("gather", 1024), ("gather", 16 << 20), ("barrier", 1024))
            ]
        ),
        "groups": results_of([groups.Row(world=2, pccl_s=[0.002], gloo_s=[0.001])]),
        "ddp": results_of(
            [
                ddp_step.Row(contender=name, step_s=[0.05, 0.06], whole_s=[0.06])
                for name in ddp_step.NAMES
            ]
        ),
        "hosts": results_of([hosts.Row(hosts=2, case="", bytes=8, wall=each, cpu=each, pump=[1])]),
        "quantized": results_of(list(error_rows())),
        "atlantic": results_of(list(calls_of_an_ocean()), **OCEAN),
        "worlds": results_of([world_row(sound=True), world_row(sound=False)]),
        "patterns": results_of([pattern_row(), pattern_row(sound=False)]),
        "uplinks": results_of([world_row(sound=True)]),
    }[name]


@pytest.mark.parametrize("part", bench.PARTS, ids=lambda part: part.name)
def test_section_says_how_it_was_measured(part: bench.Part) -> None:
    body = part.render(MACHINE, rows_for(part.name))
    assert body.text.startswith("## ")
    assert "2026-01-02 on 2 cores (A CPU, Linux 6.1)" in body.text
    assert "`run it`: cubic, 7 rounds." in body.text
    assert all(f"(plots/{name})" in body.text for name in body.pictures)
    assert all(line.count("|") > 2 for line in body.text.splitlines() if line.startswith("|"))
    replace_section(HAND, part.name, body.text, bench.ORDER)


def test_default_congestion_control_is_told_of() -> None:
    results = rows_for("loopback")
    alone = {"loopback": results["loopback"]}
    both = alone | {"loopback-default": results["loopback"]}
    assert "default" not in render.loopback(MACHINE, alone).text
    assert "this machine's default" in render.loopback(MACHINE, both).text
    assert "this one too" in render.loopback(replace(MACHINE, congestion="cubic"), alone).text


def test_pictures_are_small(tmp_path: Path) -> None:
    body = render.cost(MACHINE, rows_for("curve"))
    for name, draw in body.pictures.items():
        draw(tmp_path / name)
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 100_000


def test_picture_of_losses(tmp_path: Path) -> None:
    rows = [training(name, seed, 2.0) for name in ("float32", "8 bit") for seed in range(3)]
    plots.losses(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_picture_of_reconfigures(tmp_path: Path) -> None:
    times = {"pccl": [0.3, 0.4], "gloo": [0.8]}
    kinds = [(2, "same"), *((4, kind) for kind in reconfigure.KINDS)]
    rows = [
        reconfigure.Row(world=world, kind=kind, rtt_ms=rtt_ms, alone=times, with_call=times)
        for rtt_ms in (0.0, 50.0)
        for world, kind in kinds
    ]
    plots.reconfigures(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_unsound_figures_are_left_out() -> None:
    body = render.many_hosts(MACHINE, {"worlds": rows_for("worlds")["worlds"]})
    assert "Left out: both (emulator: as it was)." in body.text
    assert "| `both`" not in body.text


def test_nothing_sound_is_no_section() -> None:
    with pytest.raises(ResultsError, match="as it was"):
        render.hosts_with_uplinks(MACHINE, results_of([world_row(sound=False)]))
    with pytest.raises(ResultsError, match="as it was"):
        render.atlantic(
            MACHINE, results_of(list(calls_of_an_ocean()), **(OCEAN | {"sound": False}))
        )


# ---- The budget ----------------------------------------------------------------------------------


def test_budget() -> None:
    """The plan leaves a tenth of the time for errors of the estimates."""
    assert sum(part.minutes for part in bench.PARTS) <= 58
    assert sum(part.quick_minutes for part in bench.PARTS) <= 4.9
    assert all(part.minutes > part.quick_minutes > 0 for part in bench.PARTS)
    assert "all" in bench.listing().splitlines()[-1]


def test_options_are_those_of_the_scripts() -> None:
    names = [run.name for part in bench.PARTS for run in part.runs]
    assert len(set(names)) == len(names)
    for part in bench.PARTS:
        for run in part.runs:
            text = (bench.HERE / run.script).read_text()
            words = f"{run.full} {run.quick or ''}".split()
            for option in (word for word in words if word.startswith("--")):
                assert f'"{option}"' in text, (run.name, option)
            for path in (word for word in words if word.endswith(".toml")):
                assert (bench.ROOT / path).exists(), path


# ---- Failures ------------------------------------------------------------------------------------

ROW = latency.Row(call="await", us=[1.0], goal=None)
RECORD = json.dumps(asdict(records.Record(congestion="cubic", rounds=1, rows=[ROW])))
WRITES = f"import sys; open(sys.argv[-1], 'w').write({RECORD!r})"
Script = Callable[[str], None]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Let every part run this Python text in place of its scripts."""
    monkeypatch.setattr(bench, "WORK", tmp_path)
    monkeypatch.setattr(bench, "INTERRUPT_SECONDS", 0.2)

    def use(text: str) -> None:
        monkeypatch.setattr(
            bench, "command_of", lambda run, options: ["python", "-c", text, run.name]
        )

    return use


def part_of(name: str = "latency", *, needs: tuple[str, ...] = ()) -> bench.Part:
    part = next(part for part in bench.PARTS if part.name == name)
    run = bench.Run(name=name, script="x.py", row=latency.Row, full="", quick="")
    return replace(
        part,
        needs=needs,
        runs=(run,),
        render=lambda machine, results: render.per_call(machine, {"latency": results[name]}),
    )


def results_file(folder: Path) -> Path:
    path = folder / "RESULTS.md"
    path.write_text(HAND)
    return path


def test_part_writes_its_section(script: Script, tmp_path: Path) -> None:
    script(WRITES)
    path = results_file(tmp_path)
    outcomes = bench.make_all([part_of()], True, path)
    assert outcomes == {"latency": bench.Outcome.DONE}
    assert "| await | 1.0" in path.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise SystemExit(3)", "ended with 3"),
        ("pass", "no record"),
        ("import sys; open(sys.argv[-1], 'w').write('{}')", "no record"),
        (WRITES.replace("await", "a\\\\n<!-- end -->\\\\n"), "marker"),
    ],
)
def test_failed_part_keeps_its_section(
    script: Script, tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    script(text)
    path = results_file(tmp_path)
    assert bench.make_all([part_of()], True, path) == {"latency": bench.Outcome.FAILED}
    assert path.read_text() == HAND
    assert says in capfd.readouterr().err


def test_record_of_an_earlier_run_is_not_taken(script: Script, tmp_path: Path) -> None:
    (tmp_path / "latency.json").write_text(RECORD)
    script("pass")
    assert bench.make_part(part_of(), True, results_file(tmp_path), MACHINE) == (
        bench.Outcome.FAILED
    )


def test_others_go_on_after_a_failure(script: Script, tmp_path: Path) -> None:
    script(f"import sys; 'latency' in sys.argv and sys.exit(1)\n{WRITES}")
    outcomes = bench.make_all([part_of(), part_of("memory")], True, results_file(tmp_path))
    assert list(outcomes.values()) == [bench.Outcome.FAILED, bench.Outcome.DONE]


def test_part_that_cannot_run_here_is_skipped(
    script: Script, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script(WRITES)
    path = results_file(tmp_path)
    part = part_of(needs=("no-such-program", "/no/such/file", "sh"))
    assert bench.make_part(part, True, path, MACHINE) == bench.Outcome.SKIPPED
    assert path.read_text() == HAND
    assert "it needs no-such-program, /no/such/file;" in capfd.readouterr().out


def test_script_that_hangs_is_ended(script: Script) -> None:
    # The hang: the script ignores interrupts, and outlasts the test unless it is killed.
    hangs = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
    script(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hangs!r}])")
    with pytest.raises(bench.PartError, match="not done after"):
        bench.run_script(part_of().runs[0], "", 0.3)


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("main", "status"), [(lambda: None, None), (lambda: 3, 3), (interrupted, 130)]
)
def test_script_that_is_interrupted_ends_without_a_traceback(
    main: Callable[[], int | None], status: int | None
) -> None:
    with pytest.raises(SystemExit) as ended:
        processes.run_main(main)
    assert ended.value.code == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_script_that_is_told_to_end_tidies_up(number: signal.Signals) -> None:
    program = (
        f"import signal, sys; sys.path.insert(0, {str(Path(processes.__file__).parent)!r})\n"
        "import processes\n"
        "def main():\n"
        "    try:\n"
        "        print('begun', flush=True); signal.pause()\n"
        "    finally:\n"
        "        print('tidied up', flush=True)\n"
        "processes.run_main(main)\n"
    )
    with Program([sys.executable, "-c", program], heeds_signals=True) as ran:
        assert ran.line() == "begun\n"
        ran.send_signal(number)
        assert ran.communicate() == ("tidied up\n", None)
    assert ran.returncode == 128 + number


def test_nohup_keeps_a_script_running() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        processes.on_end(lambda *_: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_counts_are_from_one_on(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 1 on"):
        options.at_least_one(text)


@pytest.mark.parametrize(("outcome", "status"), [("DONE", 0), ("SKIPPED", 0), ("FAILED", 1)])
def test_status_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    outcome: str,
    status: int,
) -> None:
    monkeypatch.setattr(bench, "WORK", tmp_path)
    monkeypatch.setattr(bench, "make_part", lambda *_: bench.Outcome[outcome])
    monkeypatch.setattr(sys, "argv", ["bench.py", "--quick", "--parts", "memory", "latency"])
    assert bench.main() == status
    said = capsys.readouterr().out
    assert said.startswith("This takes about 0.6 minutes, in 2 parts: latency, memory.")
    assert "[2/2] memory" in said
    assert (tmp_path / "RESULTS.md").read_text().startswith("# A quick run\n\nToo short")


def test_broken_results_are_noticed_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "RESULTS.md"
    broken.write_text(begin_line("curve"))
    monkeypatch.setattr(bench, "RESULTS", broken)
    monkeypatch.setattr(bench, "WORK", tmp_path / "work")
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    monkeypatch.setattr(bench, "make_all", lambda *_: pytest.fail("measured"))
    assert bench.main() == 1
    assert "mend it by hand" in capsys.readouterr().err


def test_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", "--list"])
    assert bench.main() == 0
    assert capsys.readouterr().out.strip() == bench.listing()
