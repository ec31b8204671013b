"""The `pccl doctor` command: checks this machine, and with a URL the path to a master.

    facts           the facts about the machine and the path, as values
    bounded         calls that end in time and raise nothing
    machine         gathers the facts about the machine
    packages        gathers those about Python, torch, pccl and the libraries
    path            gathers the facts about the path
    line            a result, as a value
    machine_checks  decides about the machine (pure)
    package_checks  decides about Python, torch, pccl and the libraries (pure)
    path_checks     decides about the path (pure)
    checks          the table of all checks (pure)
    sharing         masks addresses and names of hosts (pure)
    command         options, output, exit codes

A new check is a row of the table in `checks`, a pure function of the facts, and a fact with the
function that gathers it. Nothing here imports torch.
"""

from __future__ import annotations

from pccl_backend.command.doctor.command import main

__all__ = ["main"]
