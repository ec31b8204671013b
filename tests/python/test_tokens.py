"""Tokens: their text, the file of a peer, settings that are no place for them, leaks of secrets."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import MakeWorld
from keyrings import SECRET, TEXT, TOKEN, revoke, serving, shows, written
from test_runs import pccl

import pccl_backend
from pccl_backend import _tokens
from pccl_backend._settings import PeerSettings, read_url
from pccl_backend._tokens import Token

# --- The text of a token --------------------------------------------------------------------------


def test_a_token_is_read_as_it_was_written() -> None:
    made = Token.new()
    assert re.fullmatch(r"pccl1\.[a-z0-9]{12}\.[A-Za-z0-9_-]{43}", made.text())
    assert Token.parse(made.text()) == made
    assert len(made.secret) == 32
    assert Token.new() != made
    for name in ("a" * 8, "0" * 16):
        assert Token.parse(f"pccl1.{name}.{SECRET}") == Token(name, TOKEN.secret)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no token: a token begins with pccl1."),
        (SECRET, "is no token: a token begins with pccl1."),
        (f"PCCL1.k3v9x2mq7a1p.{SECRET}", "is no token: a token begins with pccl1."),
        (f" {TEXT}", "is no token: a token begins with pccl1."),
        (f"pccl2.k3v9x2mq7a1p.{SECRET}", "is a token of version 2, and this pccl reads version 1"),
        (f"pccl.k3v9x2mq7a1p.{SECRET}", "is no token"),
        (f"pccl1.{SECRET}", "has an id that is not 8 to 16 lowercase letters and digits"),
        (f"pccl1.k3v9x2m.{SECRET}", "has an id that is not 8 to 16"),
        (f"pccl1.k3v9x2mq7a1p00000.{SECRET}", "has an id that is not 8 to 16"),
        (f"pccl1.K3V9X2MQ.{SECRET}", "has an id that is not 8 to 16"),
        (f"pccl1..{SECRET}", "has an id that is not 8 to 16"),
        (TEXT[:-1], r"has a secret of 42 characters, and 43 are needed \(256 bits\)"),
        (f"{TEXT}A", "has a secret of 44 characters"),
        ("pccl1.k3v9x2mq7a1p", "has a secret of 0 characters"),
        (f"{TEXT}=", "has a secret with a character that is no letter, digit, - or _"),
        (f"{TEXT[:-1]}+", "has a secret with a character that is no letter"),
        (f"{TEXT[:-1]}\u00e4", "has a secret with a character that is no letter"),
        (f"{TEXT[:-1]}_", "is damaged: its last character cannot end a token"),
    ],
)
def test_a_text_that_is_no_token(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        Token.parse(text)
    assert SECRET[:20] not in str(refused.value)


def test_a_token_hides_its_secret() -> None:
    assert repr(TOKEN) == str(TOKEN) == "Token(id='k3v9x2mq7a1p')"
    assert not shows(f"{TOKEN} {TOKEN!r} {PeerSettings(token=TOKEN)!r} {vars(TOKEN).keys()}")


# --- The file of a peer ---------------------------------------------------------------------------


def test_a_peer_reads_its_token(tmp_path: Path) -> None:
    assert PeerSettings.read({}).token is None
    for content in (TEXT, f"{TEXT}\n", f"\n {TEXT}\r\n\n"):
        path = tmp_path / "token"
        path.write_bytes(content.encode())
        path.chmod(0o400)
        link = tmp_path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        for place in (path, link):
            settings = PeerSettings.read({"PCCL_SECRET_FILE": str(place)})
            assert settings.token == TOKEN
            read = read_url("pccl://h/r?lanes=2", {"PCCL_SECRET_FILE": str(place)})
            assert read.peer.token == TOKEN
            assert not shows(repr(settings) + repr(read))
        path.unlink()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "the file is empty, and must have a token"),
        ("\n \n", "the file is empty, and must have a token"),
        (f"{TEXT}\n{TEXT}\n", "the file has more than one token, or other text"),
        (f"token: {TEXT}\n", "the file has more than one token, or other text"),
        (f"{TEXT}\u00e4", "the text in the file is no token"),
        (f"{TEXT[:-4]}", "the text in the file has a secret of 39 characters, and 43 are needed"),
        (f"{TEXT}\0", "the text in the file has a secret with a character that is no letter"),
        (SECRET, "the text in the file is no token: a token begins with pccl1."),
        (TEXT + " " * 4096, "the file has more than 4096 bytes"),
    ],
)
def test_a_file_that_has_no_token(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match=f"PCCL_SECRET_FILE={path}: {says}") as refused:
        PeerSettings.read({"PCCL_SECRET_FILE": str(path)})
    assert SECRET[:20] not in str(refused.value)


def test_a_file_that_is_not_private(tmp_path: Path) -> None:
    path = written(tmp_path / "token", TEXT)
    for mode in (0o640, 0o604, 0o644):
        path.chmod(mode)
        says = rf"the file is open to others \(mode {mode:04o}\): run `chmod 600` on it"
        with pytest.raises(ValueError, match=says):
            PeerSettings.read({"PCCL_SECRET_FILE": str(path)})


def test_a_file_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, says in {
        "nothing": "the file does not exist",
        ".": "the file is a directory, and a file is needed",
        "fifo": "the file is a FIFO or a device, and a file is needed",
    }.items():
        with pytest.raises(ValueError, match=f"{name}: {says}"):
            PeerSettings.read({"PCCL_SECRET_FILE": f"{tmp_path}/{name}"})


def test_a_token_in_place_of_its_path() -> None:
    for value in (TEXT, TEXT[:-9], f"pccl1.{SECRET}", f"token={TEXT}"):
        says = r"PCCL_SECRET_FILE=(token=)?pccl1\.\*\*\*: expected the path of a file"
        with pytest.raises(ValueError, match=says) as refused:
            PeerSettings.read({"PCCL_SECRET_FILE": value})
        assert SECRET[:20] not in str(refused.value)


# --- Settings that are no place for a token -------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        f"pccl://{TEXT}@h/r",
        f"pccl://alice:{TEXT}@h/r",
        f"pccl://h/{TEXT}",
        f"pccl://h/r?token={TEXT}",
        f"pccl://h/r?secret_file={TEXT}",
        f"pccl://h/r?name={TEXT}",
        f"pccl://h/r#{TEXT}",
        f"pccl://h/r?token={TEXT.replace('.', '%2E')}",
        f"pccl://h/r?token=pccl1.{SECRET}",
        f"pccl://h/r?token={TEXT.upper()}",
        f"tcp://h/{TEXT}",
        TEXT,
    ],
)
def test_a_url_with_a_token(url: str) -> None:
    with pytest.raises(ValueError, match=r"contains pccl1\., with which a token begins") as refused:
        read_url(url, {})
    said = str(refused.value)
    assert "PCCL_SECRET_FILE" in said
    assert SECRET[:20].lower() not in said.lower()


def test_a_url_that_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "token", TEXT)
    says = r"secret_file=\*\*\*': secret_file cannot be given in a URL: set the variable PCCL_SEC"
    with pytest.raises(ValueError, match=says):
        read_url(f"pccl://h/r?secret_file={path}", {})
    with pytest.raises(ValueError, match="insecure cannot be given in a URL: set the variable PC"):
        read_url("pccl://h/r?insecure=1", {})


def test_another_variable_with_a_token() -> None:
    for name in ("PCCL_NAME", "PCCL_ADVERTISE", "PCCL_LOG"):
        says = rf"{name}=pccl1\.\*\*\*: it contains a token, which belongs in a file that PCCL_SEC"
        with pytest.raises(ValueError, match=says) as refused:
            PeerSettings.read({name: TEXT})
        assert SECRET[:20] not in str(refused.value)


def test_a_peer_without_a_token() -> None:
    assert not PeerSettings.read({}).insecure
    assert not PeerSettings.read({"PCCL_INSECURE": ""}).insecure
    assert PeerSettings.read({"PCCL_INSECURE": "1"}).insecure
    for value in ("0", "true", "yes", " 1"):
        with pytest.raises(ValueError, match=f"PCCL_INSECURE={value}: expected 1; to turn"):
            PeerSettings.read({"PCCL_INSECURE": value})


# --- The places where a secret is not -------------------------------------------------------------


def train_and_fail() -> list[str]:
    """Return all that a peer with a token shows of itself."""
    shown = [repr(pccl_backend.run_info()), repr(dist.group.WORLD)]
    shown += [repr(dict(os.environ)), Path("/proc/self/cmdline").read_text()]
    dist.all_reduce(torch.ones(4))
    calls = (
        lambda: pccl_backend.all_reduce(torch.ones(4), op="none"),
        lambda: dist.all_reduce(torch.ones(3 + dist.get_rank())),
    )
    for call in calls:
        try:
            call()
        except (ValueError, pccl_backend.PcclError) as error:
            shown.append(f"{error!r} {error}")
    return shown


def test_a_secret_is_nowhere_else(tmp_path: Path, make_world: MakeWorld) -> None:
    """Run a master and two peers at the debug level, and look at all that they leave and show."""
    keyring, out = tmp_path / "keyring", tmp_path / "alice.token"
    assert pccl("token", "new", "alice", "--keyring", keyring, "--out", out).returncode == 0
    token = _tokens.read_secret_file(str(out))
    assert shows(out.read_bytes(), token)
    assert shows(keyring.read_bytes(), token)
    journal = tmp_path / "journal"
    with serving(tmp_path, "--keyring", keyring, PCCL_LOG="debug") as master:
        port = master.line().rpartition(":")[2].strip()
        environment = {"PCCL_SECRET_FILE": str(out), "PCCL_LOG": "debug"}
        url = f"pccl://127.0.0.1:{port}/night?min_peers=2"
        world = make_world(2, init_method=url, environment=environment)
        shown = [text for peer in world.run(train_and_fail) for text in peer]
        assert len(shown) == 12
        process = Path(f"/proc/{master.pid}")
        for name in ("cmdline", "environ"):
            with contextlib.suppress(PermissionError):  # only root can read its environment
                shown.append((process / name).read_text())
        for done in (
            pccl("runs", "--journal", journal, "--json"),
            pccl("token", "list", "--keyring", keyring),
            revoke(keyring, "alice", journal),
        ):
            assert done.returncode == 0, done.stderr
            shown += [done.stdout, done.stderr]
        master.terminate()
        shown.append(master.communicate()[0])
    assert not [text for text in shown if shows(text, token)]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 5, "logs of two peers and a master, a journal, a keyring"
    assert [file for file in files if shows(file.read_bytes(), token)] == [out]
