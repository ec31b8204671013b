"""`pccl master --notify` and `--log-format json`: a real master, and commands that write files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import Program
from world import Master, keyring_options, plain_text, run_program, wait_until

PCCL = [sys.executable, "-m", "pccl_backend.cli"]
WAIT_S = 60.0
# It is alone, and the run begins with two.
WAITS = """
import sys, torch.distributed as dist
dist.init_process_group("pccl", init_method=sys.argv[1])
"""


def objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects in the whole lines of a file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]


def lonely(master: Master) -> Program:
    url = master.url("night", min_peers=2, peer_timeout=2)
    return Program([sys.executable, "-c", WAITS, url], stderr=sys.stderr)


@plain_text
def test_a_command_gets_the_findings(tmp_path: Path) -> None:
    found, log = tmp_path / "findings.json", tmp_path / "log.txt"
    master = Master(log, options=["--notify", f"cat >> '{found}'", "--notify-after", "1"])
    try:
        with lonely(master):
            assert wait_until(lambda: len(objects(found)) == 1, timeout_s=WAIT_S)
            (begins,) = objects(found)
            assert begins["event"] == "finding_begins"
            assert begins["code"] == "alone_waiting_for_founders"
            assert (begins["schema"], begins["run"]) == (1, "night")
            assert begins["severity"] == "error"
            assert begins["stood_s"] >= 1
            assert "Start 1 more" in begins["next"]
        assert wait_until(lambda: "finding alone_waiting_for_founders is over" in log.read_text(),
                          timeout_s=WAIT_S)  # fmt: skip
        assert len(objects(found)) == 1, "a minute has not passed since its begin"
    finally:
        master.stop()


@plain_text
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 3", "has ended with status 3"),
        ("sleep 1000", "took longer than 10 s, and was killed"),
    ],
)
def test_a_command_that_fails_is_a_warning(tmp_path: Path, command: str, why: str) -> None:
    log = tmp_path / "log.txt"
    master = Master(log, options=["--notify", command, "--notify-after", "0"])
    try:
        with lonely(master):
            text = f"warning: the command of --notify {why}"
            assert wait_until(lambda: text in log.read_text(), timeout_s=WAIT_S)
    finally:
        master.stop()
    assert "ended by Terminated" in log.read_text()


@plain_text
def test_a_log_of_json_has_one_object_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    master = Master(log, options=["--log-format", "json", "--notify-after=0"])
    try:
        with lonely(master):
            assert wait_until(
                lambda: any(line["event"] == "finding_begins" for line in objects(log)),
                timeout_s=WAIT_S,
            )
    finally:
        master.stop()
    shown = log.read_text().splitlines()
    plain = [line for line in shown if not line.startswith("{")]
    assert [line.split()[0] for line in plain] == ["pccl", "admits"], "what it prints on stdout"
    by_event = {line["event"]: line for line in objects(log)}
    assert {"master_started", "registered", "not_admitted", "master_ended"} <= set(by_event)
    for line in objects(log):
        assert line["level"] in ("error", "warning", "info")
        assert line["time"].endswith("Z")
    registered = by_event["registered"]
    assert (registered["run"], registered["group"]) == ("night", 0)
    assert "(peer " in registered["peer"]
    assert not registered["text"].startswith("run ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--log-format", "xml"], '--log-format is "xml", text or json is needed'),
        (["--notify", ""], "--notify is empty: give a command"),
        (["--notify-after", "1.5"], '--notify-after is "1.5", a whole number of seconds from 0 to'),
        (["--notify-after", "-1"], '--notify-after is "-1", a whole number of seconds from 0 to'),
    ],
)
def test_a_wrong_option_is_refused(words: list[str], error: str) -> None:
    options = ["--port", "0", "--no-journal", *keyring_options()]
    done = run_program([*PCCL, "master", *options, *words])
    assert done.returncode == 2
    assert error in done.stderr
