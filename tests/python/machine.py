"""What this machine allows a test: it is tried, once, not guessed from who we are.

Root in a container may do less than root elsewhere, and somebody who is not root may do much in a
namespace of users. A test that needs what is refused skips, and its reason says so.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence

TRY_S = 20.0


def refusal(command: Sequence[str], needs: str) -> str | None:
    """Try what a test needs; return why it is to be skipped, None if the machine allows it."""
    if (reason := _try(*command)) is None:
        return None
    return f"SKIPPED: needs {needs}, which this machine refuses ({reason})"


@functools.cache
def _try(*command: str) -> str | None:
    """Return why the command does not come to a good end; None: it does."""
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=TRY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (tried.stderr.strip() or tried.stdout.strip()).splitlines()
    return None if tried.returncode == 0 else f"{command[0]}: {' / '.join(said) or 'no word'}"
