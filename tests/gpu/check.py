"""What the steps share: how they report, and how they end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "build" / "gpu-bundle"

_figures: dict[str, object] = {}
_failures: list[str] = []


def report(**figures: object) -> None:
    """Add figures to the result of this step. They survive if the step is ended later."""
    _figures.update(figures)
    if path := os.environ.get("GPU_CHECK_FIGURES"):
        Path(path).write_text(json.dumps(_figures))


def expect(condition: bool, message: str) -> None:
    """Let the step fail at its end unless the condition holds."""
    if not condition:
        _failures.append(message)
        if len(_failures) <= 20:
            print(f"wrong: {message}", flush=True)


def skip(reason: str) -> NoReturn:
    report(reason=reason)
    sys.exit(77)


def end() -> NoReturn:
    """End the step: it has failed if one of its expectations was not met."""
    if _failures:
        report(wrong=len(_failures), first=_failures[0])
    sys.exit(1 if _failures else 0)
