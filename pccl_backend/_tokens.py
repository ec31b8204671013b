"""Tokens: their text, and the file that holds a peer's own.

A token is one line, `pccl1.<id>.<secret>`. The id is public: 8 to 16 lowercase letters and digits.
The secret is 256 random bits, in base64url without padding. No error repeats any text of a token
but the id, and no `repr` shows the secret.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import string
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from pccl_backend import _private_file
from pccl_backend._limits import TOKEN_ID_BYTES_MAX, TOKEN_ID_BYTES_MIN, TOKEN_SECRET_BYTES

__all__ = ["PREFIX", "Token", "find_token", "is_id", "masked", "read_secret_file"]

VERSION = 1
PREFIX = f"pccl{VERSION}."
ID_BYTES = 12  # of a new token: 62 random bits
ID_LETTERS = string.ascii_lowercase + string.digits
SECRET_FILE_BYTES_MAX = 4096
HTTP_LABEL = b"pccl http"  # as in csrc/net/keys.cc
ENCODED = -(-TOKEN_SECRET_BYTES * 8 // 6)  # characters of a secret

_ID = rf"[a-z0-9]{{{TOKEN_ID_BYTES_MIN},{TOKEN_ID_BYTES_MAX}}}"
# Matches a text that contains a large part of a token. Other names with dots do not match.
_MOST_OF_A_TOKEN = re.compile(rf"pccl[0-9]+\.({_ID})\.[A-Za-z0-9_-]{{20,}}")


@dataclass(frozen=True)
class Token:
    """A token lets a peer into runs.

    Attributes:
        id: its public name.
        secret: the bytes that only its holder and the master know.
    """

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls, taken: Container[str] = ()) -> Token:
        """Make a random token whose id is not in `taken`."""
        while True:
            name = "".join(secrets.choice(ID_LETTERS) for _ in range(ID_BYTES))
            if name not in taken:
                return cls(name, secrets.token_bytes(TOKEN_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read the text of a token.

        Raises:
            ValueError: a phrase that follows the name of the text and never repeats it.

        Example:
            >>> Token.parse("pccl2.k3v9x2mq7a1p.x")
            Traceback (most recent call last):
            ...
            ValueError: is a token of version 2, and this pccl reads version 1: ...
        """
        head, _, rest = text.partition(".")
        version = re.fullmatch("pccl([0-9]{1,3})", head)
        if version is None:
            raise ValueError(f"is no token: a token begins with {PREFIX}")
        if version[1] != str(VERSION):
            raise ValueError(
                f"is a token of version {version[1]}, and this pccl reads version {VERSION}: ask "
                "for another token, or install the pccl that has made it"
            )
        name, _, encoded = rest.partition(".")
        if not is_id(name):
            raise ValueError(
                f"has an id that is not {TOKEN_ID_BYTES_MIN} to {TOKEN_ID_BYTES_MAX} lowercase "
                "letters and digits"
            )
        return cls(name, _decoded(encoded))

    def text(self) -> str:
        """Return the whole token, its secret included, for the file of its holder."""
        return f"{PREFIX}{self.id}.{_encoded(self.secret)}"

    def http_password(self) -> str:
        """Return the password for the pages of a master (master/http/basic_auth.h).

        It is derived from the secret (HKDF with SHA-256, RFC 5869), so it shows runs and lets
        nobody join.
        """
        extracted = hmac.digest(bytes(32), self.secret, "sha256")
        return _encoded(hmac.digest(extracted, HTTP_LABEL + b"\x01", "sha256"))


def is_id(text: str) -> bool:
    """Return whether this can be the id of a token.

    Example:
        >>> is_id("k3v9x2mq7a1p"), is_id("K3V9")
        (True, False)
    """
    return re.fullmatch(_ID, text) is not None


def _encoded(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def _decoded(encoded: str) -> bytes:
    if not re.fullmatch("[A-Za-z0-9_-]*", encoded):
        raise ValueError("has a secret with a character that is no letter, digit, - or _")
    if len(encoded) != ENCODED:
        raise ValueError(
            f"has a secret of {len(encoded)} characters, and {ENCODED} are needed "
            f"({TOKEN_SECRET_BYTES * 8} bits): was it copied as a whole?"
        )
    secret = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    if _encoded(secret) != encoded:  # the last character has bits that belong to no byte
        raise ValueError("is damaged: its last character cannot end a token; copy the file again")
    return secret


def find_token(text: str) -> str | None:
    """Return the id of a token that is in a text, whole or in part; None if there is none."""
    found = _MOST_OF_A_TOKEN.search(text)
    return found[1] if found else None


def masked(text: str) -> str:
    """Return the text without what may be a token.

    Example:
        >>> masked("PATH is pccl1.k3v9x2mq7a1p.Zm9v")
        'PATH is pccl1.***'
    """
    return re.sub(r"(pccl[0-9]+\.)\S+", r"\1***", text)


def read_secret_file(path: str) -> Token:
    """Read a file that has one token.

    Raises:
        ValueError: the file is missing, open to others, or has something else.
    """
    if path.startswith(PREFIX) or find_token(path):
        raise ValueError("expected the path of a file that has the token, not the token itself")
    try:
        content = _private_file.read(
            Path(path), bytes_max=SECRET_FILE_BYTES_MAX, follow_links=True, own=False
        )
    except _private_file.PrivateFileError as error:
        raise ValueError(f"the file {error}") from None
    words = content.split()
    if not words:
        raise ValueError("the file is empty, and must have a token")
    if len(words) > 1:
        raise ValueError("the file has more than one token, or other text: leave one token in it")
    if not words[0].isascii():
        raise ValueError(f"the text in the file is no token: a token begins with {PREFIX}")
    try:
        return Token.parse(words[0].decode("ascii"))
    except ValueError as error:
        raise ValueError(f"the text in the file {error}") from None
