"""Find out the limits of this machine for a test. Each need is tried once, not guessed from the
user.

Root in a container may have fewer rights than root elsewhere, and a user who is not root may have
many rights in a user namespace. A test that needs something refused is skipped with a reason.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence

TRY_S = 20.0


def refusal(command: Sequence[str], needs: str) -> str | None:
    """Try the needs of a test; return the reason for a skip, or None if the machine allows it."""
    if (reason := _try(*command)) is None:
        return None
    return f"SKIPPED: needs {needs}, which this machine refuses ({reason})"


@functools.cache
def _try(*command: str) -> str | None:
    """Return why the command fails, or None if it succeeds."""
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (tried.stderr.strip() or tried.stdout.strip()).splitlines()
    return None if tried.returncode == 0 else f"{command[0]}: {' / '.join(said) or 'no word'}"
