"""The keyring: the file with the tokens that a master knows, as `pccl token` reads and changes it.

master/runs/keyring.h describes the format, and has the same rules. The file belongs to one user and
is for that user only. It is replaced as a whole, so a full disk or a power cut leaves the old one.
A lock file beside it keeps two writers apart. No error repeats a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pccl_backend import _private_file, _tokens
from pccl_backend._limits import (
    KEYRING_BYTES_MAX,
    NAME_BYTES_MAX,
    RUN_NAME_BYTES_MAX,
    TOKEN_ID_BYTES_MAX,
    TOKEN_ID_BYTES_MIN,
    TOKEN_SECRET_BYTES,
)
from pccl_backend._settings import check_name
from pccl_backend._tokens import Token
from pccl_backend.command.common import CommandError, state_folder

__all__ = ["ROLES", "Entry", "KeyringError", "Role", "add", "default_keyring", "read", "remove"]

Role = Literal["peer", "observer"]
ROLES: tuple[Role, ...] = get_args(Role)

# The versions that are read. The last one is written.
VERSION_WITHOUT_ROLES, VERSION = 1, 2
VERSION_FIELD = "pccl_keyring"
COUNT_FIELD = "tokens"
FIELDS = ("id", "name", "role", "runs", "created", "secret")


class KeyringError(CommandError):
    """The keyring cannot be used, or has no such token; the message has a remedy."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One token of a keyring.

    Attributes:
        name: the person or the machine that has the token.
        role: "peer", or "observer": it may only read snapshots of runs (`pccl status`).
        runs: the only runs that it is for; empty: all runs.
        created: the time when it was made, in seconds of this machine's clock.
        token: its id and its secret.
    """

    name: str
    role: Role
    runs: tuple[str, ...]
    created: int
    token: Token


def default_keyring(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the keyring unless an option names another; None without HOME."""
    folder = state_folder(environment)
    return None if folder is None else folder / "keyring"


def read(path: Path) -> list[Entry]:
    """Return the tokens of a keyring, the oldest entry first.

    Raises:
        KeyringError: there is none, or it is damaged, open to others, or no file.
    """
    try:
        return _parse(path, _content(path))
    except _private_file.MissingError:
        raise KeyringError(
            f"there is no keyring {path}: `pccl token new` makes one with its first token"
        ) from None
    except _private_file.PrivateFileError as error:
        raise _refused(path, error) from None


def add(path: Path, *, name: str, role: Role, runs: Sequence[str], created: int) -> Entry:
    """Add a new random token, and make the keyring if there is none.

    Raises:
        KeyringError: the keyring cannot be read or written. It is as it was.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyringError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    try:
        with _private_file.locked(path):
            try:
                entries = _parse(path, _content(path))
            except _private_file.MissingError:
                entries = []
            # A name is never the id of another token, so that `pccl token revoke` knows which one
            # is meant.
            if name in (entry.token.id for entry in entries):
                raise KeyringError(f"{name} is the id of a token: choose another name")
            taken = {text for entry in entries for text in (entry.token.id, entry.name)} | {name}
            new = Entry(
                name=name, role=role, runs=tuple(runs), created=created, token=Token.new(taken)
            )
            _write(path, [*entries, new])
    except _private_file.PrivateFileError as error:
        raise _refused(path, error) from None
    return new


def remove(path: Path, which: str) -> list[Entry]:
    """Remove the token with this id, or all tokens with this name; return them.

    Raises:
        KeyringError: there is no such token, `which` may mean two things, or the keyring cannot be
            read or written. It is as it was.
    """
    try:
        read(path)  # a keyring that is not there needs no lock
        with _private_file.locked(path):
            entries = read(path)
            gone = _chosen(path, entries, which)
            _write(path, [entry for entry in entries if entry not in gone])
    except _private_file.PrivateFileError as error:
        raise _refused(path, error) from None
    return gone


def _chosen(path: Path, entries: Sequence[Entry], which: str) -> list[Entry]:
    by_id = [entry for entry in entries if entry.token.id == which]
    by_name = [entry for entry in entries if entry.name == which]
    if not by_id and not by_name:
        raise KeyringError(
            f"the keyring {path} has no token with the id or the name {which!r}: `pccl token list` "
            "shows those that it has"
        )
    if by_id and by_name and by_id != by_name:
        ids = ", ".join(entry.token.id for entry in by_name)
        raise KeyringError(
            f"{which} is the id of a token of {by_id[0].name}, and the name of others ({ids}): "
            "revoke these by their ids first"
        )
    return by_id or by_name


# --- The file -------------------------------------------------------------------------------------


def _refused(path: Path, error: _private_file.PrivateFileError) -> KeyringError:
    return KeyringError(f"the keyring {path} {error}")


def _content(path: Path) -> bytes:
    return _private_file.read(path, bytes_max=KEYRING_BYTES_MAX, follow_links=False, own=True)


def _write(path: Path, entries: Sequence[Entry]) -> None:
    head = {VERSION_FIELD: VERSION, COUNT_FIELD: len(entries)}
    lines: list[dict[str, Any]] = [head, *map(_line, entries)]
    texts = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    content = "".join(texts).encode()
    if len(content) > KEYRING_BYTES_MAX:
        raise KeyringError(
            f"the keyring {path} would take {len(content)} bytes, and a master reads at most "
            f"{KEYRING_BYTES_MAX}: revoke tokens that nobody uses"
        )
    _private_file.replace(path, content)


def _line(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.token.id,
        "name": entry.name,
        "role": entry.role,
        "runs": list(entry.runs) or None,
        "created": entry.created,
        "secret": entry.token.secret.hex(),
    }


def _parse(path: Path, content: bytes) -> list[Entry]:
    first, *lines = content.removesuffix(b"\n").split(b"\n")
    head = _decoded(first)
    _check_head(path, head)
    roles = head[VERSION_FIELD] != VERSION_WITHOUT_ROLES
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=2):
        try:
            entry = _entry(_decoded(line), roles=roles)
            if entry.token.id in (other.token.id for other in entries):
                raise ValueError("an earlier line has the same id")
        except ValueError as error:
            raise KeyringError(
                f"the keyring {path} is damaged in line {number}: {error}. Put back a whole copy, "
                "or remove the line, which revokes its token"
            ) from None
        entries.append(entry)
    count = head.get(COUNT_FIELD, len(entries))
    if count != len(entries):
        tokens = f"{len(entries)} token" + ("" if len(entries) == 1 else "s")
        raise KeyringError(
            f"the keyring {path} has {tokens}, and its first line says {count}: put back a whole "
            "copy, or correct the number if you have changed the file"
        )
    return entries


def _decoded(line: bytes) -> Any:
    """Return the JSON value of a line; None if it has none.

    The error of the decoder is dropped here, because it has the text of the line.
    """
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return None


def _check_head(path: Path, head: Any) -> None:
    version = head.get(VERSION_FIELD) if isinstance(head, dict) else None
    if type(version) is not int:
        raise KeyringError(
            f"the keyring {path} is damaged in line 1, which must be "
            f'{{"{VERSION_FIELD}":{VERSION}}}: '
            "put back a whole copy, or move it away and make new tokens with `pccl token new`"
        )
    if version not in (VERSION_WITHOUT_ROLES, VERSION):
        raise KeyringError(
            f"the keyring {path} is of version {version}, and this pccl reads versions "
            f"{VERSION_WITHOUT_ROLES} and {VERSION}: install the pccl that has written it"
        )
    count = head.get(COUNT_FIELD, 0)
    if type(count) is not int or count < 0:
        raise KeyringError(
            f"the keyring {path} is damaged in line 1: its tokens must be the number of the lines "
            "that follow"
        )


def _entry(line: Any, *, roles: bool) -> Entry:
    """Return the token of a line; without `roles` it is that of a peer.

    Raises:
        ValueError: a reason that repeats nothing of the line but a role of a few letters.
    """
    if not isinstance(line, dict):
        raise ValueError("it is no JSON object")
    fields = [field for field in FIELDS if roles or field != "role"]
    if set(line) != set(fields):
        raise ValueError(f"its fields must be {', '.join(fields[:-1])} and {fields[-1]}")
    secret, digits = line["secret"], 2 * TOKEN_SECRET_BYTES
    if not isinstance(secret, str) or not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", secret):
        raise ValueError(f"its secret must have {digits} hexadecimal digits")
    if not isinstance(line["id"], str) or not _tokens.is_id(line["id"]):
        raise ValueError(
            f"its id must have {TOKEN_ID_BYTES_MIN} to {TOKEN_ID_BYTES_MAX} lowercase letters and "
            "digits"
        )
    if not _is_name(line["name"], NAME_BYTES_MAX):
        raise ValueError(f"its name must have 1 to {NAME_BYTES_MAX} printable bytes")
    role = line.get("role", "peer")
    if role not in ROLES:
        harmless = isinstance(role, str) and re.fullmatch(r"[a-z]{1,16}", role)
        shown = f'its role is "{role}", and must be' if harmless else "its role must be"
        raise ValueError(f'{shown} "peer" or "observer"')
    runs = [] if line["runs"] is None else line["runs"]
    right = isinstance(runs, list) and all(_is_name(run, RUN_NAME_BYTES_MAX) for run in runs)
    if not right or line["runs"] == []:
        raise ValueError(
            f"its runs must be null, or a list of names that have 1 to {RUN_NAME_BYTES_MAX} "
            "printable bytes"
        )
    created = line["created"]
    if type(created) is not int or created < 0:
        raise ValueError("its created must be a number of seconds")
    token = Token(line["id"], bytes.fromhex(secret))
    return Entry(name=line["name"], role=role, runs=tuple(runs), created=created, token=token)


def _is_name(value: Any, bytes_max: int) -> bool:
    if not isinstance(value, str):
        return False
    try:
        check_name(value, bytes_max)
    except ValueError:
        return False
    return True
