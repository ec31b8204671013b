"""`pccl doctor`: its decisions about this machine, its output, and faults of this machine.

test_doctor_path.py has the faults of the path to a master.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from doctors import GOOD, MACHINE, PATH, REACHED, SYSTEM, doctor, run_doctor
from machine import refusal
from world import run_program

from pccl_backend._settings import PeerSettings
from pccl_backend.command.doctor import command, machine, packages
from pccl_backend.command.doctor.bounded import gathered, last_of
from pccl_backend.command.doctor.checks import CHECKS, examine
from pccl_backend.command.doctor.facts import (
    Clock,
    Cores,
    Disk,
    Facts,
    Install,
    Libraries,
    Machine,
    Memory,
    Network,
    OwnName,
    Ports,
    Settings,
)
from pccl_backend.command.doctor.line import Line, bad, ok, warn, worst
from pccl_backend.command.doctor.sharing import masked
from pccl_backend.probe.settings import Buffers, HostSettings

NO_TOKEN: dict[str, str | None] = {"PCCL_SECRET_FILE": None}


def lines_of(facts: Facts) -> dict[str, Line]:
    return dict(examine(facts))


def line(name: str, **changes: Any) -> Line:
    """Return the line of a check about a good machine with these changes."""
    facts = dataclasses.replace(GOOD, machine=dataclasses.replace(MACHINE, **changes))
    others = {one: found.level for one, found in examine(facts) if one != name}
    assert set(others.values()) == {"ok"}, f"one fault has two lines: {others}"
    return lines_of(facts)[name]


# --- A good host ----------------------------------------------------------------------------------


def test_it_is_silent_about_a_good_host() -> None:
    for facts in (GOOD, Facts(machine=MACHINE)):
        found = lines_of(facts)
        assert {one.level for one in found.values()} == {"ok"}
        assert {one.next for one in found.values()} == {""}
    absent = {"ports", "provider"}
    assert set(lines_of(GOOD)) == {check.name for check in CHECKS} - absent
    of_path = {check.name for check in CHECKS if check.needs_url}
    assert set(lines_of(Facts(machine=MACHINE))) == set(lines_of(GOOD)) - of_path


def test_it_is_silent_about_unknown_facts() -> None:
    """But a name that is not looked up in time is a fact."""
    assert [name for name, _ in examine(Facts(machine=Machine()))] == ["own name"]


@pytest.mark.parametrize(
    "changes",
    [
        {"open_files": (65536, 65536)},
        {"open_files": (-1, -1)},
        {"cores": Cores(count=96, quota=8.0)},
        {"memory": Memory(free=4 << 30, limit=8 << 30)},
        {"network": Network(ipv4="10.0.0.7", ipv6="2001:db8::7", others=("10.0.0.7",))},
        {"tcp": HostSettings()},
        {
            "tcp": dataclasses.replace(
                SYSTEM, congestion="bbr", allowed=("bbr",), available=("bbr",)
            )
        },
        {"variables": {"PUBLIC_IPADDR": "203.0.113.7"}},
        {"settings": Settings(peer=PeerSettings(lanes=16))},
        {"modules": ("_C_torch_2_14.so", "_C_torch_2_15.cpython-311-x86_64-linux-gnu.so")},
        {
            "variables": {"RUNPOD_POD_ID": "x"},
            "settings": Settings(peer=PeerSettings(advertise="203.0.113.7")),
        },
    ],
)
def test_other_good_hosts(changes: dict[str, Any]) -> None:
    facts = dataclasses.replace(GOOD, machine=dataclasses.replace(MACHINE, **changes))
    assert {one.level for one in lines_of(facts).values()} == {"ok"}


# --- Faults, as facts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level", "changes", "says", "step"),
    [
        ("python", "bad", {"python": (3, 9, 2)}, "Python 3.9.2 (", "install Python 3.10"),
        (
            "libraries",
            "bad",
            {"libraries": Libraries(error="/x/pccl-probe is missing")},
            "do not start: /x/pccl-probe is missing",
            "--no-build-isolation",
        ),
        (
            "libraries",
            "bad",
            {"libraries": Libraries(is_global=True)},
            "TORCH_USE_RTLD_GLOBAL is set",
            "unset TORCH_USE_RTLD_GLOBAL",
        ),
        (
            "libraries",
            "warn",
            {"libraries": Libraries(libuv="/tmp/libuv.so.1", own_libuv="/usr/lib/libuv.so.1")},
            "brings another libuv: /tmp/libuv.so.1 in the place of /usr/lib/libuv.so.1",
            "unset LD_LIBRARY_PATH",
        ),
        (
            "module",
            "bad",
            {"torch": "2.13.1"},
            "pccl is built for torch 2.15, and torch 2.13.1 is installed",
            "pip install --no-build-isolation .",
        ),
        (
            "module",
            "bad",
            {"modules": ("_C_torch_2_15.cpython-312-x86_64-linux-gnu.so",)},
            "built for another Python",
            "with this Python",
        ),
        ("module", "bad", {"modules": ()}, "built for torch no torch", "--no-build-isolation"),
        (
            "installs",
            "warn",
            {
                "installs": (
                    Install(version="0.1.0", folder="/a"),
                    Install(name="pccl", version="0.2.0", folder="/b"),
                )
            },
            "2 times, and Python uses the first: pccl-torch 0.1.0 in /a, pccl 0.2.0 in /b",
            "pip uninstall pccl pccl-torch",
        ),
        (
            "installs",
            "warn",
            {"installs": (Install(name="pccl", version="0.0.0", folder="/a", is_ours=False),)},
            "another project is installed: pccl 0.0.0 in /a",
            "pip uninstall pccl",
        ),
        (
            "installs",
            "warn",
            {"commands": ("/a/pccl", "/b/pccl")},
            "2 commands pccl: /a/pccl runs, and /b/pccl does not",
            "delete /b/pccl",
        ),
        ("installs", "warn", {"installs": ()}, "is not installed", "--no-build-isolation"),
        ("open files", "warn", {"open_files": (512, 4096)}, "128 peers", "ulimit -n 4096"),
        ("open files", "bad", {"open_files": (128, 128)}, "128 files", "limits.conf"),
        (
            "buffers",
            "warn",
            {"tcp": dataclasses.replace(SYSTEM, rmem=Buffers(least=4096, first=16384, most=65536))},
            "tcp_rmem is 0.062 MiB",
            'sudo sysctl -w net.ipv4.tcp_rmem="4096 16384 33554432"',
        ),
        (
            "buffers",
            "warn",
            {"settings": Settings(peer=PeerSettings(lanes=1))},
            "the 1 of a link 168 Mbit/s",
            "net.ipv4.tcp_wmem",
        ),
        ("cores", "warn", {"cores": Cores(count=1)}, "use 1 core:", "two cores"),
        ("cores", "warn", {"cores": Cores(count=64, quota=1.5)}, "allows 1.5 of them", "two cores"),
        ("memory", "warn", {"memory": Memory(free=1 << 29, limit=1 << 30)}, "0.5 GiB", "memory"),
        ("disk", "bad", {"disk": Disk(folder="/s", free=0)}, "/s has 0 MiB free", "df -h /s"),
        ("disk", "warn", {"disk": Disk(folder="/s", free=8 << 20)}, "/s has 8 MiB", "df -h /s"),
        (
            "disk",
            "warn",
            {"disk": Disk(folder="/s", free=1 << 30, is_writable=False)},
            "may not write to /s",
            "--journal PATH",
        ),
        ("disk", "warn", {"disk": Disk(folder="")}, "HOME is not set", "export HOME"),
        (
            "clock",
            "warn",
            {"clock": Clock(now=1_600_000_000.0, installed=1_780_000_000.0)},
            "2020-09-13 12:26 UTC, before the installation",
            "timedatectl",
        ),
        (
            "own name",
            "warn",
            {"own_name": OwnName(name="tokyo", error="Name or service not known")},
            "tokyo, has no address (Name or service not known)",
            "127.0.1.1 tokyo",
        ),
        ("addresses", "warn", {"network": Network()}, "no network but loopback", "ip link set"),
        (
            "addresses",
            "warn",
            {"network": Network(ipv6="2001:db8::7", others=("2001:db8::7",))},
            "IPv6 only, 2001:db8::7",
            "--host ::",
        ),
        (
            "addresses",
            "warn",
            {"network": Network(others=("10.0.0.7",))},
            "(10.0.0.7) has no route to distant machines",
            "ip route add default",
        ),
        ("ports", "bad", {"ports": Ports(first=5, last=7, free=0)}, "5-7 are in use", "ss -ltnp"),
        (
            "settings",
            "bad",
            {"settings": Settings(error="PCCL_LGO is no setting of pccl")},
            "PCCL_LGO is no setting",
            "correct this variable",
        ),
        (
            "provider",
            "warn",
            {"variables": {"RUNPOD_PUBLIC_IP": "203.0.113.7", "RUNPOD_TCP_PORT_22": "10022"}},
            "machine of Runpod, behind a router",
            "add 70000 to its exposed TCP ports",
        ),
        (
            "provider",
            "warn",
            {"variables": {"RUNPOD_POD_ID": "x"}},
            "RUNPOD_PUBLIC_IP is missing",
            "edit the pod",
        ),
        (
            "provider",
            "warn",
            {"variables": {"RUNPOD_PUBLIC_IP": "203.0.113.7", "RUNPOD_TCP_PORT_70000": "10300"}},
            "PCCL_ADVERTISE is not set",
            "export PCCL_ADVERTISE=$RUNPOD_PUBLIC_IP:$RUNPOD_TCP_PORT_70000",
        ),
        (
            "provider",
            "warn",
            {"variables": {"PUBLIC_IPADDR": "203.0.113.7", "VAST_TCP_PORT_48201": "10300"}},
            "machine of Vast.ai",
            "$VAST_TCP_PORT_48201 PCCL_PORT_RANGE=48201-48201",
        ),
    ],
)
def test_faults_of_the_machine(
    name: str, level: str, changes: dict[str, Any], says: str, step: str
) -> None:
    found = line(name, **changes)
    assert found.level == level
    assert says in found.text
    assert step in found.next


def test_a_missing_torch_is_one_line() -> None:
    found = line("torch", torch="")
    assert found.level == "bad"
    assert "pip install torch==" in found.next
    facts = dataclasses.replace(GOOD, machine=dataclasses.replace(MACHINE, torch=""))
    assert "module" not in lines_of(facts)


def test_the_buffers_count_for_the_way_to_the_master() -> None:
    """They suffice over an ocean, and not over a satellite."""
    tcp = dataclasses.replace(SYSTEM, wmem=Buffers(least=4096, first=16384, most=524288))
    near = dataclasses.replace(GOOD, machine=dataclasses.replace(MACHINE, tcp=tcp))
    assert lines_of(near)["buffers"].level == "ok"
    greeting = dataclasses.replace(PATH.greeting, rtt=0.7)  # type: ignore[type-var]
    far = dataclasses.replace(near, path=dataclasses.replace(PATH, greeting=greeting))
    assert lines_of(far)["buffers"].level == "warn"
    assert "the 700 ms to the master" in lines_of(far)["buffers"].text


# --- Faults of this machine, for real -------------------------------------------------------------


def package(folder: Path, name: str, version: str) -> dict[str, str]:
    """Make the metadata of an installed package; return the variables that let Python find it."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def test_a_foreign_package_of_the_same_name(tmp_path: Path) -> None:
    found = doctor(**package(tmp_path, "pccl", "0.0.0"), **NO_TOKEN)
    assert found.level("installs") == "warn"
    assert f"0.0.0 in {tmp_path}" in found.text("installs")


@pytest.mark.parametrize("name", ["pccl-torch", "pccl"])
def test_two_versions(tmp_path: Path, name: str) -> None:
    """The second one has the present name, or the former one."""
    variables = package(tmp_path, name, "9.9.9")
    entry = "[torch.backends]\npccl = pccl_backend._register:register\n"
    (folder,) = tmp_path.iterdir()
    (folder / "entry_points.txt").write_text(entry)
    found = doctor(**variables, **NO_TOKEN)
    assert found.level("installs") == "warn"
    assert "is installed 2 times, and Python uses the first: pccl-torch " in found.text("installs")
    assert f"{name} 9.9.9 in {tmp_path}" in found.text("installs")


def test_a_wrong_torch(tmp_path: Path) -> None:
    found = doctor(**package(tmp_path, "torch", "2.3.1"), **NO_TOKEN)
    assert (found.code, found.bad()) == (1, ["module"])
    assert "torch 2.3.1 is installed" in found.text("module")


def test_a_stray_libuv(tmp_path: Path) -> None:
    library = packages.libraries().libuv
    if not library:
        pytest.skip("SKIPPED: needs a libuv that is a library of its own")
    shutil.copy(library, tmp_path / "libuv.so.1")
    found = doctor(LD_LIBRARY_PATH=str(tmp_path), **NO_TOKEN)
    assert found.level("libraries") == "warn"
    assert f"{tmp_path}/libuv.so.1 in the place of {library}" in found.text("libraries")


def test_a_libuv_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "libuv.so.1").write_text("no library")
    found = doctor(LD_LIBRARY_PATH=str(tmp_path), **NO_TOKEN)
    assert found.bad() == ["libraries"]
    assert "libuv.so.1" in found.text("libraries")
    assert "LD_LIBRARY_PATH" in found.next("libraries")


@pytest.mark.parametrize(("limit", "level"), [(128, "bad"), (512, "warn")])
def test_a_low_limit_of_open_files(limit: int, level: str) -> None:
    inside = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "-"]
    found = doctor(inside=inside, **NO_TOKEN)
    assert found.level("open files") == level
    assert f"may open {limit} files" in found.text("open files")


def test_a_full_disk(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=64k none {tmp_path}"
    tried = ["unshare", "--mount", "sh", "-ec", mount]
    if refused := refusal(tried, "root and a mount namespace"):
        pytest.skip(refused)
    fill = f"head -c 1000000 /dev/zero > {tmp_path}/all 2> /dev/null || true"
    inside = ["unshare", "--mount", "sh", "-ec", f'{mount}; {fill}; exec "$@"', "-"]
    found = doctor(inside=inside, XDG_STATE_HOME=str(tmp_path), **NO_TOKEN)
    assert found.bad() == ["disk"]
    assert f"{tmp_path}/pccl has 0 MiB free" in found.text("disk")


def test_a_file_of_a_token_that_is_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("pccl1.k3v9x2mq7a1p.x\n")
    path.chmod(0o644)
    found = doctor(PCCL_SECRET_FILE=str(path))
    assert found.bad() == ["settings"]
    assert "PCCL_SECRET_FILE" in found.text("settings")


def test_an_unknown_variable_is_a_line_and_no_other_output() -> None:
    done = run_doctor(PCCL_FOO="1", **NO_TOKEN)
    assert done.stderr == ""
    assert "warn  settings    PCCL_FOO is no setting of pccl and has no effect" in done.stdout


def test_a_port_range_that_is_taken() -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        settings = machine.read_settings({"PCCL_PORT_RANGE": f"{port}-{port}"})
        assert settings.peer is not None
        assert machine.look_at_ports(settings.peer) == Ports(first=port, last=port, free=0)
    assert machine.look_at_ports(settings.peer) == Ports(first=port, last=port, free=1)


def test_the_facts_of_this_machine() -> None:
    found = machine.gather(os.environ, None)
    assert found.python == sys.version_info[:3]
    assert found.suffixes == tuple(importlib.machinery.EXTENSION_SUFFIXES)
    assert found.torch
    assert found.cores is not None
    assert found.cores.count == len(os.sched_getaffinity(0))
    assert found.memory is not None
    assert found.memory.free > 0
    assert found.clock is not None
    assert abs(found.clock.now - time.time()) < 60
    assert found.network is not None
    for address in (*found.network.others, found.network.ipv4 or "0.0.0.0"):
        ip_address(address)


# --- Cgroups --------------------------------------------------------------------------------------


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_CGROUPS", tmp_path / "own")
    return tmp_path


def test_the_limits_of_cgroups(cgroups: Path) -> None:
    (cgroups / "own").write_text("0::/pod/train\n")
    inner = cgroups / "pod" / "train"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (cgroups / "pod" / "cpu.max").write_text("150000 100000\n")
    (inner / "memory.max").write_text(f"{1 << 20}\n")
    (inner / "memory.current").write_text(f"{1 << 19}\n")
    assert machine._quota() == 1.5
    assert machine._memory() == Memory(free=1 << 19, limit=1 << 20)


def test_the_limits_of_cgroups_of_version_1(cgroups: Path) -> None:
    (cgroups / "own").write_text("4:memory:/pod\n3:cpu,cpuacct:/pod\n0::/\n")
    for controller, files in {
        "cpu": {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"},
        "memory": {"memory.limit_in_bytes": f"{1 << 20}", "memory.usage_in_bytes": "0"},
    }.items():
        (cgroups / controller / "pod").mkdir(parents=True)
        for name, text in files.items():
            (cgroups / controller / "pod" / name).write_text(f"{text}\n")
    assert machine._quota() == 0.5
    assert machine._memory() == Memory(free=1 << 20, limit=1 << 20)


# --- Calls that end in time -----------------------------------------------------------------------


def test_calls_end_in_time_and_raise_nothing() -> None:
    never = threading.Event()
    began = time.monotonic()
    calls = {"one": lambda: 1, "raises": lambda: 1 / 0, "never": never.wait}
    assert gathered(calls, 0.5) == {"one": 1}
    assert 0.5 <= time.monotonic() - began < 30
    never.set()


def test_the_last_value_in_time_counts() -> None:
    never = threading.Event()

    def values() -> Iterator[int]:
        yield 1
        yield 2
        never.wait()
        yield 3

    assert last_of(values, 0.5) == 2
    never.set()
    assert last_of(lambda: iter(()), 0.5) is None


# --- Output ---------------------------------------------------------------------------------------


def test_the_page_is_80_columns_of_plain_text() -> None:
    lines = [*examine(GOOD), ("evil", warn("a\x1b[2J" + "word " * 40, "do " * 40))]
    shown = command.page(lines)
    assert max(map(len, shown)) <= 80
    assert "\x1b" not in "".join(shown)
    assert shown[-1].endswith(f"checks: {len(lines) - 1} ok, 1 warn")
    assert any(row.startswith("warn  evil") for row in shown)
    assert any(row.strip().startswith("-> do do") for row in shown)


def test_the_worst_line_counts() -> None:
    assert worst([]) == "ok"
    assert worst(["ok", "warn"]) == "warn"
    assert worst(["bad", "warn", "ok"]) == "bad"


def test_addresses_and_names_are_masked() -> None:
    lines = [
        ("a", ok("Tokyo.example.com is 203.0.113.9, fe80::1%eth0 and 2001:db8::9")),
        ("b", bad("203.0.113.9 of tokyo.example.com; 127.0.0.1, ::1 and 0.0.0.0", "ping tokyo")),
        ("c", ok("torch 2.15.0 at 12:30:05 in /srv/alice/x, Python 3.11.2; tokyo-2 is another")),
    ]
    shown = masked(lines, ["tokyo", "tokyo.example.com", "203.0.113.9", "localhost"], "/srv/alice")
    assert [one for _, one in shown] == [
        ok("HOST-1 is ADDRESS-1, ADDRESS-2 and ADDRESS-3"),
        bad("ADDRESS-1 of HOST-1; 127.0.0.1, ::1 and 0.0.0.0", "ping HOST-2"),
        ok("torch 2.15.0 at 12:30:05 in ~/x, Python 3.11.2; tokyo-2 is another"),
    ]


def test_a_report_to_share_names_nobody() -> None:
    facts = dataclasses.replace(
        GOOD, path=dataclasses.replace(PATH, addresses=(REACHED,), token="")
    )
    shown = "\n".join(command.page(command._masked(examine(facts), facts)))
    for secret in ("tokyo", "203.0.113", "master.example.com"):
        assert secret not in shown
        assert secret in "\n".join(command.page(examine(facts)))


def test_the_command() -> None:
    done = run_doctor(**NO_TOKEN)
    assert done.stderr == ""
    assert done.returncode in (0, 1)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "torch" in done.stdout
    report = json.loads(run_doctor("--json", "--share", **NO_TOKEN).stdout)
    assert (report["schema"], report["pccl"][:2]) == (1, "0.")
    assert {frozenset(one) for one in report["lines"]} == {
        frozenset({"level", "name", "text", "next"})
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://x"], "does not begin with pccl://"),
        (["pccl://a/b?min_peer=2"], "did you mean min_peers?"),
        (["pccl://a", "b"], "unrecognized arguments: b"),
    ],
)
def test_mistakes(words: list[str], says: str) -> None:
    done = run_doctor(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())


def test_torch_is_not_imported() -> None:
    program = "import sys; import pccl_backend.command.doctor; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"
