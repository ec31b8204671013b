"""Open runs: a pccl:// URL, or PCCL_MASTER, which then overrides env://.

The master at the URL admits this process and assigns its rank. Under env:// with a world size above
1, the whole world begins together, and each process keeps its rank. torch asks twice: first for a
store with rank and world size, then for the group. The group is created at the first request. At
the second request the store identifies that group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from pccl_backend import _C, _limits, _settings
from pccl_backend._settings import OpenRun, PeerSettings
from pccl_backend._torch import devices, exits

__all__ = ["belongs_to_open_run", "connect", "enter_open_run", "join_open_run", "join_options"]
__all__ += ["join_world_at_master", "read_url", "take_admitted"]

OPEN_RUN_KEY = "pccl/open_run"

# Groups that a rendezvous has joined and torch has not requested yet, by the token in their store.
_admitted: dict[str, _C.PcclGroup] = {}


def read_url(url: str, *, peer_group: int | None = None, min_peers: int | None = None) -> OpenRun:
    """Read a pccl:// URL and the environment. The arguments override both.

    Raises:
        ValueError: the URL, a variable or an argument is invalid.
    """
    run = _settings.read_url(url, os.environ)
    if peer_group is not None:
        checked = _settings.check_integer("peer_group", peer_group, _settings.PEER_GROUPS)
        run = dataclasses.replace(run, peer_group=checked)
    if min_peers is not None:
        checked = _settings.check_integer("min_peers", min_peers, _settings.MEMBERS)
        run = dataclasses.replace(run, min_peers=checked, founders=max(run.founders, checked))
    return run


def join_open_run(
    run: OpenRun, timeout: timedelta, *, rank: int = -1, launch: str = ""
) -> _C.PcclGroup:
    """Connect to the run's master and wait for admission.

    Args:
        run: the run to join.
        timeout: longest time to wait.
        rank: the rank that a founder requests; -1 requests none.
        launch: text that all ranks of one fixed world share and no other process has; "" if there
            is no fixed world.
    """
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout must be a datetime.timedelta, not {type(timeout).__name__}")
    if timeout <= timedelta(0):  # the extension takes a very long negative time for an overflow
        raise ValueError(f"timeout is {timeout.total_seconds():g} s; it must be above 0")
    _C.check_descriptors(max(run.founders, 1), hosts=False)
    return connect(
        run.peer,
        _C.checked_timeout(timeout.total_seconds()),
        HashStore(),
        host=run.host,
        port=run.port,
        run=run.run,
        peer_group=run.peer_group,
        founders=run.founders,
        min_peers=run.min_peers,
        rank=rank,
        launch=launch,
        open_run=True,
    )


def enter_open_run(url: str, timeout: timedelta | None) -> Iterator[tuple[Store, int, int]]:
    """Answer torch's rendezvous for a pccl:// URL: store, rank and world size."""
    if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1":
        raise ValueError(
            "TORCH_DIST_INIT_BARRIER=1 makes init_process_group wait for all ranks of a fixed "
            "world, which an open run does not have: unset it"
        )
    devices.refuse_others()
    group = join_open_run(read_url(url), dist.default_pg_timeout if timeout is None else timeout)
    store = group.get_group_store()
    token = secrets.token_hex(8)
    store.set(OPEN_RUN_KEY, token)
    _admitted[token] = group
    yield store, group.rank(), group.size()
    raise RuntimeError("a pccl:// rendezvous cannot be repeated: call init_process_group again")


def belongs_to_open_run(store: Store) -> bool:
    """Return whether a rendezvous of an open run has made this store."""
    return isinstance(store, HashStore) and bool(store.check([OPEN_RUN_KEY]))


def take_admitted(store: Store) -> _C.PcclGroup | None:
    """Return the group that the store's rendezvous has joined, at the first call."""
    return _admitted.pop(store.get(OPEN_RUN_KEY).decode(), None)


def join_world_at_master(options: Any) -> _C.PcclGroup:
    """Join a world of known size at a master outside rank 0; all ranks begin together.

    The launch text keeps the master from taking a different launch for a part of this world. A
    world of size 1 is one machine of many, each with its own launcher.
    """
    run = _read_master_variable()
    if options.group_size == 1:
        return join_open_run(run, options.timeout)
    run = dataclasses.replace(run, founders=max(options.group_size, run.founders))
    return join_open_run(run, options.timeout, rank=options.group_rank, launch=_launch())


def _launch() -> str:
    """Return the text that the processes of one launch share: torchrun's id, or the rendezvous.

    Two launches on one machine get the same text if they have neither torchrun's id nor a
    rendezvous address.
    """
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none":
        text = f"torchrun {run_id}"
    else:
        host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        text = f"{host}:{port}"
    if len(text.encode()) <= _limits.LAUNCH_BYTES_MAX and _settings.is_printable(text):
        return text
    return f"launch {hashlib.sha256(text.encode()).hexdigest()}"


def _read_master_variable() -> OpenRun:
    try:
        return read_url(os.environ["PCCL_MASTER"])
    except ValueError as error:
        raise ValueError(f"PCCL_MASTER: {error}") from None


def connect(
    settings: PeerSettings,
    timeout_s: float,
    store: Store,
    *,
    host: str,
    port: int,
    run: str,
    peer_group: int,
    founders: int,
    min_peers: int,
    rank: int,
    launch: str = "",
    open_run: bool,
    hosted: _C.HostedRun | None = None,
    token: str = "",
) -> _C.PcclGroup:
    options = join_options(settings, timeout_s, open_run=open_run, token=token)
    options.host = host
    options.port = port
    options.run = run
    options.peer_group = peer_group
    options.founders = founders
    options.min_peers = min_peers
    options.rank = rank
    options.launch = launch
    exits.watch()
    return _C.join(options, store=store, hosted=hosted)


def join_options(
    settings: PeerSettings, timeout_s: float, *, open_run: bool, token: str
) -> _C.JoinOptions:
    """Return the options that come from the settings. The place in a run is to be filled in."""
    _C.set_log_level(settings.log_level)
    return _C.JoinOptions(
        host="",
        port=0,
        run="",
        peer_group=0,
        founders=1,
        min_peers=1,
        rank=-1,
        launch="",
        open_run=open_run,
        timeout=timeout_s,
        on_peer_loss=settings.on_peer_loss,
        pattern=settings.pattern,
        peer_timeout=settings.peer_timeout,
        first_call_timeout=settings.first_call_timeout,
        call_timeout=settings.call_timeout,
        master_timeout=settings.master_timeout,
        advertise=settings.advertise,
        advertised_port=settings.advertised_ports[0],
        port_range=settings.port_range,
        lanes=settings.lanes,
        tcp_congestion=settings.tcp_congestion,
        restore=settings.restore,
        check_callsite=settings.check_callsite,
        name=settings.name or _settings.host_name(),
        secret_file="" if token else settings.secret_file,
        token=token,
        insecure=settings.insecure,
    )
