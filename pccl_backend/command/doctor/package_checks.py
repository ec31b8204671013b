"""Decisions about Python, torch, pccl and the libraries. Pure: facts in, a line out.

A function returns None if its check does not apply, or if a fact is not known.
"""

from __future__ import annotations

import os
import re

from pccl_backend.command.doctor.facts import Facts, Install
from pccl_backend.command.doctor.line import Line, bad, ok, warn

__all__ = ["installs", "libraries", "modules", "python", "settings", "torch"]

PYTHON_MIN = (3, 10)
TORCH_EXAMPLE = "pip install torch==2.15.0"
REBUILD = "in the source folder of pccl, run `pip install --no-build-isolation .`"


def python(facts: Facts) -> Line | None:
    """Is this Python new enough?"""
    version = facts.machine.python
    if version is None:
        return None
    shown = f"Python {'.'.join(map(str, version))} ({facts.machine.executable})"
    if version < PYTHON_MIN:
        least = ".".join(map(str, PYTHON_MIN))
        return bad(f"{shown} is too old: pccl needs {least} or newer", f"install Python {least}")
    return ok(shown)


def torch(facts: Facts) -> Line | None:
    """Is torch installed?"""
    version = facts.machine.torch
    if version is None:
        return None
    if not version:
        return bad(
            "torch is not installed, and every peer needs it (a master does not)",
            f"install torch, for example `{TORCH_EXAMPLE}`, and then pccl again",
        )
    return ok(f"torch {version}")


def modules(facts: Facts) -> Line | None:
    """Does a compiled module of pccl fit the release of torch and this Python?"""
    names, version = facts.machine.modules, facts.machine.torch
    if names is None or not version:
        return None
    minor = ".".join(version.split(".")[:2])
    wanted = f"_C_torch_{minor.replace('.', '_')}"
    of_torch = [name for name in names if name.partition(".")[0] == wanted]
    fitting = [name for name in of_torch if name.removeprefix(wanted) in facts.machine.suffixes]
    if fitting:
        return ok(f"the compiled module {fitting[0]} fits torch {version}")
    if of_torch:
        return bad(
            f"pccl is built for another Python than this one: {', '.join(of_torch)}",
            f"with this Python, {REBUILD}",
        )
    found = re.findall(r"_C_torch_(\d+)_(\d+)\.", " ".join(names))
    built = ", ".join(sorted({".".join(pair) for pair in found})) or "no torch"
    return bad(f"pccl is built for torch {built}, and torch {version} is installed", REBUILD)


def installs(facts: Facts) -> Line | None:
    """Is there one pccl, and is it this project?"""
    found = facts.machine.installs
    if found is None:
        return None
    shown = ", ".join(map(_install, found))
    if any(not one.is_ours for one in found):
        return warn(
            f"a package that is another project is installed: {shown}",
            "pip uninstall pccl",
        )
    if len(found) > 1:
        return warn(
            f"pccl is installed {len(found)} times, and Python uses the first: {shown}",
            f"run `pip uninstall {' '.join(sorted({one.name for one in found}))}` until nothing is "
            "left, and then install it once",
        )
    if len(facts.machine.commands) > 1:
        first, *others = facts.machine.commands
        return warn(
            f"PATH has {len(facts.machine.commands)} commands pccl: {first} runs, and "
            f"{', '.join(others)} does not",
            f"activate one environment, or delete {others[0]}",
        )
    if not found:
        return warn(
            f"pccl runs from the folder {facts.machine.folder}, and is not installed",
            f"{REBUILD}, and run it from another folder",
        )
    return ok(f"{shown}, and no other one")


def _install(one: Install) -> str:
    return f"{one.name} {one.version} in {one.folder}"


def libraries(facts: Facts) -> Line | None:
    """Do the compiled programs start, with the system's own libuv?"""
    found = facts.machine.libraries
    if found is None:
        return None
    strange = found.libuv != found.own_libuv
    unset = "unset LD_LIBRARY_PATH and LD_PRELOAD" if strange else REBUILD
    if found.error:
        return bad(f"the compiled programs of pccl do not start: {found.error}", unset)
    if found.is_global:
        return bad(
            "TORCH_USE_RTLD_GLOBAL is set, so torch's own copy of libuv takes the place of the "
            "one that pccl needs",
            "unset TORCH_USE_RTLD_GLOBAL",
        )
    if strange:
        return warn(
            f"LD_LIBRARY_PATH or LD_PRELOAD brings another libuv: {found.libuv} in the place of "
            f"{found.own_libuv or 'none'}",
            unset,
        )
    where = f" ({found.libuv})" if found.libuv else ""
    return ok(f"the compiled programs start, with the libuv that they were built for{where}")


def settings(facts: Facts) -> Line | None:
    """Are the variables PCCL_... right, and does the file of the token have a token?"""
    found = facts.machine.settings
    if found is None:
        return None
    if found.error:
        return bad(
            found.error,
            "correct this variable, or the file that it names: a peer does not start with it",
        )
    if found.warnings:
        return warn(found.warnings[0], "unset this variable, or correct its name")
    peer = found.peer
    if peer is None or peer.token is None:
        return ok("the variables PCCL_... have no mistake, and name no token")
    name = os.path.basename(peer.secret_file)
    return ok(f"the variables PCCL_... have no mistake; {name} has the token {peer.token.id}")
