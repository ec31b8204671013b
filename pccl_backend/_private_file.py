"""Files that only their owner may read: how they are read, made, replaced and locked.

Each error is a phrase that follows the name of the file, such as "is a directory". None repeats any
content.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PrivateFileError", "create", "locked", "read", "replace"]

MODE = 0o600
OTHERS = 0o077
LOCK_S = 10.0  # a writer holds the lock for a few milliseconds
POLL_S = 0.02


class PrivateFileError(ValueError):
    """The file is refused, or the system refuses something; the message has a remedy."""


class MissingError(PrivateFileError):
    """There is no such file."""


def read(path: Path, *, bytes_max: int, follow_links: bool, own: bool) -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        bytes_max: a larger file is refused.
        follow_links: whether the path may be a symbolic link.
        own: whether the file must belong to the user of this process.

    Raises:
        MissingError: it does not exist.
        PrivateFileError: it cannot be opened, is no file, is open to others, or is too large.
    """
    no_link = 0 if follow_links else os.O_NOFOLLOW
    try:
        # Without O_NONBLOCK, opening a FIFO waits for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | no_link)
    except FileNotFoundError:
        raise MissingError("does not exist") from None
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise PrivateFileError("is a symbolic link: name the file itself") from None
        raise PrivateFileError(f"cannot be opened: {error.strerror}") from None
    try:
        _check(os.fstat(descriptor), own=own)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise PrivateFileError(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(content) > bytes_max:
        raise PrivateFileError(f"has more than {bytes_max} bytes: is it the right file?")
    return content


def _check(found: os.stat_result, *, own: bool) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise PrivateFileError("is a directory, and a file is needed")
    if not stat.S_ISREG(found.st_mode):
        raise PrivateFileError("is a FIFO or a device, and a file is needed")
    if own and found.st_uid != os.geteuid():
        raise PrivateFileError(
            f"belongs to another user ({found.st_uid}): run this as that user, or name a file of "
            "yours"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & OTHERS:
        raise PrivateFileError(
            f"is open to others (mode {mode:04o}): run `chmod 600` on it, and get a new token if "
            "somebody may have read it"
        )


def create(path: Path, content: bytes) -> None:
    """Make a new file with this content; it is on the disk afterwards, or it does not exist.

    Raises:
        PrivateFileError: something is there already, or the system refuses.
    """
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE
        )
    except FileExistsError:
        raise PrivateFileError("exists already: name a new file, or remove it first") from None
    except OSError as error:
        raise PrivateFileError(f"cannot be made: {error.strerror}") from None
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), MODE)  # the umask may have removed rights of the owner
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise PrivateFileError(f"cannot be written: {error.strerror}") from None


def replace(path: Path, content: bytes) -> None:
    """Replace a file as a whole, or make it. REQUIRES: this process holds its lock.

    Raises:
        PrivateFileError: the system refuses; the message states whether the old content is intact.
    """
    fresh = path.with_name(f"{path.name}.tmp")
    try:
        fresh.unlink(missing_ok=True)  # left by a process that was killed
        create(fresh, content)
        os.rename(fresh, path)
    except (PrivateFileError, OSError) as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) else f"{fresh.name} {error}"
        raise PrivateFileError(f"is as it was, because it cannot be replaced: {why}") from None
    try:
        _sync_folder(path.parent)
    except OSError as error:
        raise PrivateFileError(
            f"is replaced, but a power cut may undo that: {error.strerror}"
        ) from None


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = LOCK_S) -> Iterator[None]:
    """Keep other writers of this file out while the block runs.

    The lock is a file beside it. It stays there, since a lock file that is removed can be held by
    two processes.

    Raises:
        PrivateFileError: another process holds the lock for too long, or the system refuses.
    """
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        lock = os.open(f"{path}.lock", flags, MODE)
    except OSError as error:
        raise PrivateFileError(f"cannot be locked by {path.name}.lock: {error.strerror}") from None
    try:
        _take(lock, timeout)
        yield
    finally:
        os.close(lock)


def _take(lock: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise PrivateFileError(
                    f"is being changed by another process, for more than {timeout:g} s: try again"
                ) from None
        except OSError as error:
            raise PrivateFileError(f"cannot be locked: {error.strerror}") from None
        time.sleep(POLL_S)  # flock() has no timeout, and a signal would need the main thread
