"""Names and forms that differ in an older pccl.

`make compare` runs the scripts of this folder on an older tree, too. They take these names from
here. The other names of pccl are the same in both.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pccl_backend as pccl


def run_info(group: Any = None) -> Any:
    """Return `pccl.run_info(group)`. In an older pccl it is a dict of dicts."""
    return _with_attributes(pccl.run_info(group))


def _with_attributes(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _with_attributes(each) for name, each in value.items()})
    if isinstance(value, list):
        return [_with_attributes(each) for each in value]
    return value


def hooks() -> ModuleType:
    """Return `pccl_backend.hooks`, which was `pccl_backend.ddp`."""
    try:
        from pccl_backend import hooks as found
    except ImportError:
        from pccl_backend import ddp as found  # type: ignore[no-redef]
    return found
