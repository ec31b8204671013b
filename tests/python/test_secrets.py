"""The secret of a token is nowhere but in its two files: not in a log, a journal or a process."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from fleet import PCCL, Fleet, Remote, begin_all_reduce, check_sum
from programs import Program

PEER_TIMEOUT_S = 4.0


def forms(token: str) -> dict[str, bytes]:
    """Return the secret of a token in all forms that a program may write."""
    text = token.strip().split(".")[2]
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert len(raw) == 32
    return {
        "raw": raw,
        "base64url": text.encode(),
        "base64": base64.b64encode(raw).rstrip(b"="),
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "bytes": repr(raw)[2:-1].encode(),
    }


class Search:
    """All output of a secured run so far, by its place."""

    def __init__(self) -> None:
        self.places: dict[str, bytes] = {}

    def add(self, place: str, content: str | bytes) -> None:
        self.places[place] = content if isinstance(content, bytes) else content.encode()

    def add_folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.add(str(path), path.read_bytes())

    def add_process(self, pid: int) -> None:
        for name in ("cmdline", "environ"):
            # Only root can read the environment of a master.
            with contextlib.suppress(PermissionError):
                self.add(f"{name} of {pid}", Path(f"/proc/{pid}/{name}").read_bytes())

    def found(self, secret: dict[str, bytes]) -> list[str]:
        """Return the places and the forms of the secret."""
        return [
            f"{form} in {place}"
            for place, content in self.places.items()
            for form, bytes in secret.items()
            if bytes in content
        ]


def join_with(fleet: Fleet, token: str, log: Path) -> str:
    """Let a peer join with that token; return its error."""
    own = fleet.put_token(token, "guest")
    guest = fleet.spawn(log=log)
    outcome = guest.call("join", url=fleet.url(peer_timeout=PEER_TIMEOUT_S), token=str(own))
    assert outcome["error"] == "AuthenticationError", outcome
    fleet.forget(guest)
    return str(outcome["message"])


def pccl(*words: object) -> str:
    done = subprocess.run([PCCL, *words], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def reduce(peers: list[Remote]) -> None:
    begin_all_reduce(peers)
    check_sum(peers)


def test_a_run_writes_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss, refused tokens, a restart of the master and a revocation, with all log lines."""
    monkeypatch.setenv("PCCL_LOG", "debug")
    search = Search()
    logs = tmp_path / "logs"
    logs.mkdir()
    fleet = Fleet(journal=tmp_path / "journal", secured=True, master_log=logs / "master")
    try:
        token = fleet.token.read_text()
        secret = forms(token)
        prefix, identity, text = token.strip().split(".")
        peers = []
        for number in range(3):
            peers.append(fleet.spawn(log=logs / f"peer-{number}"))
            url = fleet.url(min_peers=2, founders=3, peer_timeout=PEER_TIMEOUT_S)
            peers[-1].tell("join", url=url)
        assert all(peer.answer()["ok"] for peer in peers)
        reduce(peers)
        changed = ("B" if text[0] == "A" else "A") + text[1:]
        for number, (name, own) in enumerate({identity: changed, "zzzzzzzz": text}.items()):
            said = join_with(fleet, f"{prefix}.{name}.{own}", logs / f"guest-{number}")
            search.add(f"error {number}", said)
        peers[2].tell("all_reduce", count=4 << 20, seed=2)
        for seed, peer in enumerate(peers[:2]):
            peer.tell("all_reduce", count=4 << 20, seed=seed)
        peers[2].kill()
        for peer in peers[:2]:
            assert "posted" in peer.answer()
            search.add(f"loss at {peer.pid}", str(peer.answer()))
            peer.tell("update_topology")
        assert [peer.answer()["world"] for peer in peers[:2]] == [2, 2]
        fleet.kill_master()
        fleet.start_master()
        reduce(peers[:2])
        for peer in peers[:2]:
            search.add(f"run_info of {peer.pid}", peer.call("everything")["text"])
            search.add_process(peer.pid)
        search.add_process(fleet.master.pid)
        search.add("pccl runs", pccl("runs", "--journal", fleet.journal))
        search.add("pccl token list", pccl("token", "list", "--keyring", fleet.keyring))
        revoked = ("token", "revoke", identity, "--keyring", fleet.keyring)
        search.add("pccl token revoke", pccl(*revoked, "--journal", fleet.journal))
        for peer in peers[:2]:
            outcome = peer.call("update_topology")
            assert outcome["error"] == "KickedError", outcome
            search.add(f"end of {peer.pid}", str(outcome))
        search.add_folder(tmp_path)
    finally:
        fleet.close()
    # The search has read the logs and the journal: it found in them what must be there.
    for number in range(3):
        assert b" info: " in search.places[str(logs / f"peer-{number}")]
    assert b" debug: " in search.places[str(logs / "master")]
    assert identity.encode() in search.places[str(tmp_path / "journal")]
    assert b"because of its token" in search.places[str(logs / "master")]
    assert sum(b"PCCL_SECRET_FILE" in content for content in search.places.values()) >= 2
    assert search.found(secret) == []


@pytest.mark.parametrize("form", ["raw", "base64url", "base64", "hex", "HEX", "bytes"])
def test_the_search_finds_a_secret_that_is_there(tmp_path: Path, form: str) -> None:
    secret = forms("pccl1.abcdefgh." + "-_Ab" * 10 + "cdE")
    search = Search()
    (tmp_path / "clean").write_bytes(b"Nothing is here.")
    search.add_folder(tmp_path)
    assert search.found(secret) == []
    (tmp_path / "log").write_bytes(b"key " + secret[form] + b"\n")
    search.add_folder(tmp_path)
    assert f"{form} in {tmp_path / 'log'}" in search.found(secret)
    if form != "raw":  # a word of a process has no zeros
        word = secret[form].decode()
        waits = "print('waits', flush=True); input()"
        with Program([sys.executable, "-c", waits, word], stdin=subprocess.PIPE) as process:
            assert process.line() == "waits\n"
            search.add_process(process.pid)
        assert f"{form} in cmdline of {process.pid}" in search.found(secret)
