"""Gathers the facts about Python, torch, pccl and the libraries.

Each function may raise, and may take some time: the module `bounded` calls them. torch is not
imported, because that takes seconds: its version is in its metadata.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

from pccl_backend._distribution import FORMER_NAME, NAME
from pccl_backend.command.doctor.facts import Install, Libraries
from pccl_backend.command.endpoint import PROGRAM

__all__ = ["FOLDER", "commands", "installs", "libraries", "modules", "torch_version"]

FOLDER = Path(__file__).parents[2]
START_S = 5.0  # longest time of a program that only starts
LOADER_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


def torch_version() -> str:
    """Return the version of the torch that Python would import; "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def modules() -> tuple[str, ...]:
    """Return the names of the compiled modules of pccl, one for each release of torch."""
    return tuple(sorted(path.name for path in FOLDER.glob("_C_torch_*.so")))


def installs() -> tuple[Install, ...]:
    """Return the installed packages of both names, each in the order in which Python looks."""
    return (*_installs(NAME), *_installs(FORMER_NAME))


def _installs(name: str) -> tuple[Install, ...]:
    found: dict[str, Install] = {}
    for one in metadata.distributions(name=name):
        folder = os.path.realpath(str(one.locate_file("")))
        # A build leaves metadata beside the source. The metadata of the installation are elsewhere.
        if Path(folder) == FOLDER.parent and Path(folder, "setup.py").exists():
            continue
        is_ours = any(entry.value.startswith("pccl_backend.") for entry in one.entry_points)
        path = f"{folder} {one.version}"
        found.setdefault(
            path, Install(name=name, version=one.version, folder=folder, is_ours=is_ours)
        )
    return tuple(found.values())


def commands() -> tuple[str, ...]:
    """Return the programs `pccl` in PATH, without links to the same file."""
    found: dict[str, str] = {}
    for folder in os.get_exec_path():
        path = os.path.join(folder, "pccl")
        if os.access(path, os.X_OK) and os.path.isfile(path):
            found.setdefault(os.path.realpath(path), path)
    return tuple(found.values())


def libraries() -> Libraries:
    """Return which libraries the compiled programs use, and whether they start with them."""
    variables = dict(os.environ)
    plain = {name: text for name, text in variables.items() if name not in LOADER_VARIABLES}
    libuv = _libuv(variables)
    return Libraries(
        error=_start_error(),
        libuv=libuv,
        own_libuv=libuv if plain == variables else _libuv(plain),
        is_global=bool(variables.get("TORCH_USE_RTLD_GLOBAL")),
    )


def _start_error() -> str:
    """Return why pccl-probe does not start. It checks its libraries before it reads a request."""
    if not PROGRAM.exists():
        return f"{PROGRAM} is missing"
    done = subprocess.run(
        [PROGRAM],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    if done.returncode == 2:  # there was no request
        return ""
    said = done.stderr.strip().splitlines()
    return said[-1].removeprefix("pccl probe: ") if said else f"it ended with {done.returncode}"


def _libuv(variables: dict[str, str]) -> str:
    """Return the file of libuv that pccl-probe uses; "" if the system does not tell."""
    done = subprocess.run(
        [PROGRAM],
        env={**variables, "LD_TRACE_LOADED_OBJECTS": "1"},  # lists the libraries, and runs nothing
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    found = re.search(r"libuv\S* => (\S+)|^\s*(/\S*libuv\S*) \(", done.stdout, re.MULTILINE)
    return os.path.realpath(found[1] or found[2]) if found else ""
