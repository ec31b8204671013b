"""Connects a process to its run: torch calls this for a pccl:// URL and to create a group.

**Open runs** (a pccl:// URL, or PCCL_MASTER, which then overrides env://): the master at the URL
admits this process and assigns its rank. Under env:// with a world size above 1, the whole world
begins together, and each process keeps its rank. torch asks twice: first for a store with rank and
world size, then for the group. The group is created at the first request. At the second request
the store identifies that group.

**All other starts** (env://, tcp://, file://, a store, `new_group`, `split_group`): rank and world
size are given. Rank 0 of the group hosts the group's run: the first time, its process starts a
master, and later groups are further runs of this master. It announces the master's address and the
name of the run to the other ranks through the store. The store has no other use. All ranks begin
together. After a loss the remaining ranks continue, even if only one is left.

Address of the hosted master: loopback if all ranks appear to be on this machine (the store's host
is loopback, or WORLD_SIZE equals LOCAL_WORLD_SIZE, or the store has no host). Otherwise it is the
local address that faces the store's host. If PCCL_ADVERTISE is set on rank 0, the master listens on
every address, and the other ranks connect to the host that PCCL_ADVERTISE names.

If another rank fails before all have joined, it tells rank 0 the reason through the store. Rank 0
then tells the other ranks, and all fail with that reason, instead of waiting for a rank that will
not come. A rank 0 that cannot host the run tells the others in the same way.

Access to the hosted master: if it listens beyond loopback, the ranks have to prove a token, and all
traffic is encrypted. Rank 0 draws the token and tells it through the store, unless all ranks have
PCCL_SECRET_FILE. A master keeps the token that was drawn for its first run.
"""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import enum
import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

from pccl_backend import _C, _devices, _exit, _limits, _settings
from pccl_backend._settings import OpenRun, PeerSettings
from pccl_backend._tokens import Token
from pccl_backend.errors import PcclError, TooFewPeersError

__all__ = ["create_group", "enter_open_run", "join_fixed_world", "join_open_run"]
__all__ += ["no_groups_in_open_runs", "read_url"]

LOOPBACK = "127.0.0.1"
OPEN_RUN_KEY = "pccl/open_run"
POLL_FIRST_S, POLL_S = 0.00005, 0.02  # between two looks into the store: at first, and at most
TELL_S = 5.0  # how long a rank that fails at once looks for a rank 0 to tell it

# Groups that a rendezvous has joined and torch has not requested yet, by the token in their store.
_admitted: dict[str, _C.PcclGroup] = {}


# --- Open runs ------------------------------------------------------------------------------------


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
    return _join(
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
    _devices.refuse_others()
    group = join_open_run(read_url(url), dist.default_pg_timeout if timeout is None else timeout)
    store = group.get_group_store()
    token = secrets.token_hex(8)
    store.set(OPEN_RUN_KEY, token)
    _admitted[token] = group
    yield store, group.rank(), group.size()
    raise RuntimeError("a pccl:// rendezvous cannot be repeated: call init_process_group again")


# --- Groups ---------------------------------------------------------------------------------------


def create_group(options: Any, pg_options: object) -> _C.PcclGroup | _C.PcclBackend:
    """Create the group, or pccl's part of it, for `init_process_group` or `new_group`."""
    asked = _devices.asked_for()
    if pg_options is not None and not asked.is_composite:  # a composite's options may be another's
        raise TypeError(f"pccl takes no pg_options, got {type(pg_options).__name__}")
    if getattr(options, "enable_reconfigure", False):
        raise NotImplementedError(
            "pccl does not have enable_reconfigure: its membership changes by "
            "pccl_backend.update_topology()"
        )
    backend = asked.made_before()
    if backend is not None:
        return backend
    group = _group_for(options, asked)
    if asked.is_composite:
        if "cuda" not in asked.devices:
            group.backend.refuse_cuda()
        return group.backend
    group.serve(asked.devices)
    return group


def _group_for(options: Any, asked: _devices.Asked) -> _C.PcclGroup:
    store = _base_store(options.store)
    if isinstance(store, HashStore) and store.check([OPEN_RUN_KEY]):
        group = _admitted.pop(store.get(OPEN_RUN_KEY).decode(), None)
        if group is None:
            raise no_groups_in_open_runs("new_group()")
        asked.check(open_run=True)
        return group
    is_default = not options.global_ranks_in_group
    if is_default and os.environ.get("PCCL_MASTER"):
        asked.check(open_run=True)
        return _join_world_at_master(options)
    default = dist.group.WORLD
    if isinstance(default, _C.PcclGroup) and default.open_run:
        raise no_groups_in_open_runs("new_group()")
    asked.check(open_run=False)
    return join_fixed_world(options)


def _join_world_at_master(options: Any) -> _C.PcclGroup:
    """Join a world of known size at a master outside rank 0; all ranks begin together.

    The launch text prevents the master from taking another launch for a part of this world. A world
    of size 1 is one machine of many, each with its own launcher.
    """
    run = _read_master_variable()
    if options.group_size == 1:
        return join_open_run(run, options.timeout)
    run = dataclasses.replace(run, founders=max(options.group_size, run.founders))
    return join_open_run(run, options.timeout, rank=options.group_rank, launch=_launch())


def _launch() -> str:
    """Return the text that the processes of one launch share: torchrun's id, or the rendezvous.

    Two launches on one machine that use neither get the same text.
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


def no_groups_in_open_runs(call: str) -> NotImplementedError:
    """Return the error of a call that makes a group of some ranks of an open run."""
    return NotImplementedError(
        f"{call} names ranks, and in an open run they change as peers come and go: use "
        "pccl_backend.join(url, peer_group=N) for another group of the run"
    )


def _base_store(store: Store) -> Store:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


def _join(
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
    _C.set_log_level(settings.log_level)
    options = _C.JoinOptions(
        host=host,
        port=port,
        run=run,
        peer_group=peer_group,
        founders=founders,
        min_peers=min_peers,
        rank=rank,
        launch=launch,
        open_run=open_run,
        timeout=timeout_s,
        retry_on_peer_loss=settings.on_peer_loss == "retry",
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
        name=settings.name or _settings.host_name(),
        secret_file="" if token else settings.secret_file,
        token=token,
        insecure=settings.insecure,
    )
    _exit.watch()
    return _C.join(options, store=store, hosted=hosted)


# --- A fixed world, with a master hosted by its rank 0 --------------------------------------------


def join_fixed_world(options: Any) -> _C.PcclGroup:
    """Create a group with a run of its own, which its rank 0 hosts. All its ranks call it."""
    if options.group_rank == 0:
        return _host_fixed_world(options, _base_store(options.store))
    with _Asker(options.store, options.group_rank) as asker:
        settings, timeout_s = _settings_for(options)
        _C.check_descriptors(options.group_size, hosts=False)
        place = _Place.parse(asker.ask(timeout_s))
        place.access.check(settings, options.group_rank)
        try:
            return _join_hosted(options, settings, timeout_s, place)
        except PcclError:
            failure = asker.failure()
            if failure is not None:
                raise failure from None
            raise


def _host_fixed_world(options: Any, base: Store) -> _C.PcclGroup:
    try:
        settings, timeout_s = _settings_for(options)
        listen_on, tell = _choose_address(_store_host(base), settings)
        access = _Access.of_rank_0(settings, beyond_this_machine=listen_on != LOOPBACK)
        _C.check_descriptors(options.group_size, hosts=True)
        run = _C.HostedRun(
            host=listen_on,
            token=access.masters_token(settings),
            drawn=access.kind is _Kind.DRAWN,
            name=f"group {options.group_id}" if options.global_ranks_in_group else "world",
            patience=settings.master_timeout,
        )
    except Exception as error:
        words = _to_words(error, "rank 0 cannot host the group: ")
        _tell_failure(options.store, options.group_size, words, {})
        raise
    if access.kind is _Kind.DRAWN:
        access = dataclasses.replace(access, drawn=run.token)
    place = _Place(tell, run.port, access, run.name)
    own_place = dataclasses.replace(place, host=listen_on or LOOPBACK)
    teller = _Teller(options.store, options.group_size, place.text(), run)
    try:
        return _join_hosted(options, settings, timeout_s, own_place, hosted=run)
    except PcclError:
        complaint = teller.complaint
        if complaint is None:
            raise
        teller.stop()
        words = _to_words(complaint)
        _tell_failure(options.store, options.group_size, words, teller.answered)
        raise complaint from None
    finally:
        teller.stop()


def _settings_for(options: Any) -> tuple[PeerSettings, float]:
    return PeerSettings.read(os.environ), _C.checked_timeout(options.timeout.total_seconds())


def _join_hosted(
    options: Any,
    settings: PeerSettings,
    timeout_s: float,
    place: _Place,
    *,
    hosted: _C.HostedRun | None = None,
) -> _C.PcclGroup:
    return _join(
        settings,
        timeout_s,
        options.store,
        host=place.host,
        port=place.port,
        run=place.run,
        peer_group=0,
        founders=options.group_size,
        min_peers=1,
        rank=options.group_rank,
        open_run=False,
        hosted=hosted,
        token=place.access.masters_token(settings),
    )


class _Kind(enum.Enum):
    LOCAL = "local"  # all ranks are on this machine: plain text
    INSECURE = "insecure"  # PCCL_INSECURE=1: plain text
    FILE = "file"  # all ranks have the same PCCL_SECRET_FILE
    DRAWN = "drawn"  # rank 0 has drawn a token for this launch


@dataclasses.dataclass(frozen=True)
class _Access:
    """How the ranks of a fixed world prove to the hosted master that they belong to it.

    Rank 0 decides, and tells the others through the store of torch. A token that is drawn is as
    secret as that store. All ranks keep the token with which they begin.

    Attributes:
        kind: the way.
        token_id: of a file: the id of its token.
        drawn: the text of a token that is drawn; "": none is.
    """

    kind: _Kind
    token_id: str = ""
    drawn: str = dataclasses.field(default="", repr=False)

    @classmethod
    def of_rank_0(cls, settings: PeerSettings, *, beyond_this_machine: bool) -> _Access:
        if settings.token is not None:
            return cls(_Kind.FILE, token_id=settings.token.id)
        if settings.insecure:
            return cls(_Kind.INSECURE)
        if beyond_this_machine:
            return cls(_Kind.DRAWN, drawn=Token.new().text())
        return cls(_Kind.LOCAL)

    @classmethod
    def parse(cls, text: str) -> _Access:
        kind, _, rest = text.partition(":")
        if kind == _Kind.DRAWN.value:
            return cls(_Kind.DRAWN, drawn=rest)
        return cls(_Kind(kind), token_id=rest)

    def text(self) -> str:
        """Return one word for the other ranks."""
        rest = self.drawn or self.token_id
        return f"{self.kind.value}:{rest}" if rest else self.kind.value

    def masters_token(self, settings: PeerSettings) -> str:
        """Return the text of the token that the master asks for; "": it asks for none."""
        if self.kind is _Kind.FILE and settings.token is not None:
            return settings.token.text()
        return self.drawn

    def check(self, settings: PeerSettings, rank: int) -> None:
        """Check that this rank has the settings that rank 0 has.

        Raises:
            ValueError: it has others; the message says which.
        """
        own = settings.token.id if settings.token is not None else ""
        if own != self.token_id:
            of_rank_0 = f"has the token {self.token_id}" if self.token_id else "has no token"
            of_this = f"has the token {own}" if own else "has no token"
            raise ValueError(
                f"rank 0 {of_rank_0} and rank {rank} {of_this}: set PCCL_SECRET_FILE to the same "
                "token on all ranks, or on none"
            )
        if settings.insecure != (self.kind is _Kind.INSECURE):
            of_rank_0, of_this = ("has not", "has") if settings.insecure else ("has", "has not")
            raise ValueError(
                f"rank 0 {of_rank_0} set PCCL_INSECURE=1 and rank {rank} {of_this}: set it on all "
                "ranks, or on none"
            )


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a hosted run is: what rank 0 tells the others.

    Attributes:
        host, port: the address of the master.
        access: the way to prove that one belongs to the world.
        run: the name of the run.
    """

    host: str
    port: int
    access: _Access
    run: str

    def text(self) -> str:
        return f"{self.host} {self.port} {self.access.text()} {self.run}"

    @classmethod
    def parse(cls, text: str) -> _Place:
        """Read what `text` has written.

        Raises:
            ValueError: rank 0 has written it in another form.
        """
        try:
            host, port, word, run = text.split(" ", 3)
            return cls(host, int(port), _Access.parse(word), run)
        except ValueError:
            raise ValueError(
                "rank 0 runs another version of pccl, which says in another way where its master "
                "is: install the same version for all ranks"
            ) from None


# The first word of a complaint and of a failure.
_WRONG_SETTINGS = "settings"  # a ValueError
_OTHER_ERROR = "error"
_FAILED = "! "  # begins a reply that is no place: rank 0 has failed, for the reason behind it
_NOTHING = "nothing"  # no question and no reply is like this


def _to_words(error: BaseException, what: str = "") -> str:
    kind = _WRONG_SETTINGS if isinstance(error, ValueError) else _OTHER_ERROR
    return f"{kind} {what}{error}"


def _from_words(words: str, what: str = "") -> Exception:
    kind, _, text = words.partition(" ")
    error_type = ValueError if kind == _WRONG_SETTINGS else PcclError
    return error_type(what + text)


def _look(store: Store, key: str) -> str | None:
    """Return the value of a key, or None if there is none: one round trip to the store."""
    value = str(store.compare_set(key, _NOTHING, _NOTHING).decode())
    return None if value == _NOTHING else value


def _tell_failure(store: Store, size: int, words: str, told: dict[int, str]) -> None:
    """Tell the other ranks, until each of them has failed too, or TELL_S has passed.

    Args:
        store, size: of the group.
        words: what has happened.
        told: the numbers of ranks that know it already.
    """
    waiting = set(range(1, size))
    deadline = time.monotonic() + TELL_S
    with contextlib.suppress(dist.DistError):
        for pause in _pauses():
            if not waiting or time.monotonic() > deadline:
                return
            time.sleep(pause)  # a store announces no new key, and its wait() prints warnings
            for rank in list(waiting):
                asked = _look(store, _question(rank))
                if asked is None:
                    continue
                number, complains, _ = asked.partition(" ")
                if told.get(rank) != number:
                    told[rank] = "" if complains else number  # a complaint of an earlier group
                    store.set(_reply(rank, number), _FAILED + words)
                elif complains:
                    waiting.remove(rank)


class _Teller:
    """Tells every other rank where the run is, until all have joined.

    A store may still hold what an earlier group of the same name wrote, for example after destroy
    and init, or after torchrun restarted workers. Therefore each rank asks with a random number of
    its own, and the answer is stored under that number.

    A rank that cannot join adds the reason to its question, after it has its answer. A complaint
    that was there before the answer is one of an earlier group. If rank 0 fails after its answer,
    it writes the reason in place of the answer.

    Attributes:
        complaint: of a rank that cannot join: the error to raise here; the join was stopped.
        answered: the numbers of the ranks that have their answer, and know of a complaint.
    """

    def __init__(self, store: Store, size: int, place: str, run: _C.HostedRun) -> None:
        self.complaint: Exception | None = None
        self._store = store
        self._size = size
        self._place = place
        self._run = run
        self.answered: dict[int, str] = {}
        self._outdated: set[str] = set()  # numbers of an earlier group
        self._stop = threading.Event()
        self._ended = threading.Event()
        if size > 1:
            # Thread.start() would wait until the thread runs, and the join would begin later.
            _thread.start_new_thread(self._run_thread, ())

    def stop(self) -> None:
        self._stop.set()
        if self._size > 1:
            self._ended.wait()

    def _run_thread(self) -> None:
        try:
            self._serve()
        finally:
            self._ended.set()

    def _serve(self) -> None:
        for pause in _pauses():
            if self.complaint is not None or self._stop.wait(pause):
                break
            try:
                for rank in range(1, self._size):
                    asked = _look(self._store, _question(rank))
                    if asked is not None:
                        self._answer(rank, *asked.partition(" ")[::2])
            except dist.DistError:  # the store is gone: a rank without an answer reports it
                return
        if self.complaint is not None:
            with contextlib.suppress(dist.DistError):
                for rank, number in self.answered.items():
                    self._store.set(_reply(rank, number), _FAILED + _to_words(self.complaint))
            self._run.give_up()

    def _answer(self, rank: int, number: str, complaint: str) -> None:
        if self.answered.get(rank) != number:
            if complaint:
                self._outdated.add(number)
            self._store.set(_reply(rank, number), self._place)
            self.answered[rank] = number
        elif complaint and number not in self._outdated:
            self.complaint = _from_words(complaint, f"rank {rank} cannot join: ")


class _Asker:
    """Asks rank 0 where the master is. An error inside the `with` block is told to rank 0."""

    def __init__(self, store: Store, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._number = secrets.token_hex(8)
        self._answer = ""

    def ask(self, timeout_s: float) -> str:
        """Return the answer of rank 0."""
        self._ask_within(timeout_s)
        if not self._answer:
            raise TooFewPeersError(
                f"rank {self._rank} asked in the store where rank 0 hosts the master and had no "
                f"answer within {timeout_s:g} s: did rank 0 call init_process_group?"
            )
        if self._answer.startswith(_FAILED):
            raise _from_words(self._answer.removeprefix(_FAILED))
        return self._answer

    def failure(self) -> Exception | None:
        """Return why rank 0 has failed, if it has said so after its answer."""
        with contextlib.suppress(dist.DistError):  # the store is gone, and so is rank 0
            reply = _look(self._store, _reply(self._rank, self._number)) or ""
            if reply.startswith(_FAILED):
                return _from_words(reply.removeprefix(_FAILED))
        return None

    def _ask_within(self, timeout_s: float) -> None:
        reply = _reply(self._rank, self._number)
        deadline = time.monotonic() + timeout_s
        self._store.set(_question(self._rank), self._number)
        for pause in _pauses():
            time.sleep(pause)  # a store announces no new key; _ask_within ends at `deadline`
            answer = _look(self._store, reply)  # store.wait would not react to Ctrl-C
            if answer is not None:
                self._answer = answer
            if answer is not None or time.monotonic() > deadline:
                return

    def __enter__(self) -> _Asker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        asked_in_vain = kind is TooFewPeersError and not self._answer
        if not isinstance(error, Exception) or asked_in_vain:
            return
        with contextlib.suppress(dist.DistError):  # the store is gone, and so is rank 0
            if not self._answer:
                self._ask_within(TELL_S)
            if self._answer:
                self._store.set(_question(self._rank), f"{self._number} {_to_words(error)}")


def _pauses() -> Iterator[float]:
    """Yield how long to wait before each look into the store: ranks often come together."""
    yield 0.0
    pause = POLL_FIRST_S
    while True:
        yield pause
        pause = min(1.5 * pause, POLL_S)


def _question(rank: int) -> str:
    return f"pccl/where_is_the_master/{rank}"


def _reply(rank: int, number: str) -> str:
    return f"pccl/the_master_is_at/{rank}/{number}"


def _store_host(store: Store) -> str | None:
    return store.host if isinstance(store, TCPStore) else None


def _choose_address(store_host: str | None, settings: PeerSettings) -> tuple[str, str]:
    """Return the address that the hosted master listens on ("": all), and the host for others."""
    if settings.advertise:
        return "", settings.advertise
    world = os.environ.get("WORLD_SIZE")
    one_machine = world is not None and world == os.environ.get("LOCAL_WORLD_SIZE")
    if store_host is None or one_machine or _settings.is_loopback(store_host):
        return LOOPBACK, LOOPBACK
    facing = _facing_address(store_host)
    if not _settings.is_loopback(facing):
        mine = facing in _addresses_of(store_host)
        return facing, store_host if mine else facing
    # /etc/hosts maps this machine's own name to loopback; the other machines resolve it correctly.
    return "", store_host


def _addresses_of(host: str) -> set[str]:
    return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)}


def _facing_address(host: str) -> str:
    """Return this machine's address on the path to `host`, without sending anything."""
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
