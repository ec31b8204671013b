"""Tokens and keyrings for tests: the commands that make them, and a search for a secret."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from programs import Program
from test_runs import PCCL, Done, pccl

from pccl_backend._tokens import Token

TOKEN = Token("k3v9x2mq7a1p", bytes(range(0xC0, 0xE0)))  # no byte of it stands in ordinary text
TEXT = TOKEN.text()
SECRET = TEXT.rpartition(".")[2]
HEAD = '{"pccl_keyring":1}'  # the first line of a keyring without roles
HEAD_2 = '{"pccl_keyring":2}'  # the first line of a keyring with roles


def pieces(token: Token) -> list[bytes]:
    """Return both halves of each form of a token's secret that could leak."""
    digits = token.secret.hex()
    base64 = token.text().rpartition(".")[2]
    forms = [token.secret, digits.encode(), digits.upper().encode(), base64.encode()]
    return [half for form in forms for half in (form[: len(form) // 2], form[len(form) // 2 :])]


def shows(content: bytes | str, token: Token = TOKEN) -> bool:
    """Return whether the content has the secret of a token, or half of it."""
    given = content if isinstance(content, bytes) else content.encode(errors="replace")
    return any(piece in given for piece in pieces(token))


def new(keyring: Path, *words: str | Path) -> Token:
    """Let `pccl token new` make a token."""
    done = pccl("token", "new", *words, "--keyring", keyring)
    assert done.returncode == 0, done.stderr
    return Token.parse(done.stdout.removesuffix("\n"))


def written(path: Path, *lines: str) -> Path:
    """Write a private file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    return path


def revoke(keyring: Path, which: str, journal: Path | None = None) -> Done:
    """Let `pccl token revoke` tell the master with this journal; None: a journal without master."""
    place = keyring.parent / "nobody" if journal is None else journal
    return pccl("token", "revoke", which, "--keyring", keyring, "--journal", place)


def line(**changes: object) -> str:
    """Return the line of TOKEN in a keyring, with other values of some fields."""
    entry = {"id": TOKEN.id, "name": "alice", "runs": None, "created": 1764000000}
    entry |= {"secret": TOKEN.secret.hex(), **changes}
    return json.dumps(entry, separators=(",", ":"))  # as it is written


@contextlib.contextmanager
def serving(folder: Path, *options: str | Path, **environment: str) -> Iterator[Program]:
    """Start a master with a journal in this folder; yield it."""
    command = [*PCCL, "master", "--port", "0", "--journal", folder / "journal", *options]
    with open(folder / "master.log", "w") as log:
        variables = {**os.environ, **environment}
        with Program(list(map(str, command)), stderr=log, env=variables) as master:
            yield master
