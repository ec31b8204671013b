"""Hosted worlds: rank and world size are given, and rank 0 hosts the run of the group.

The first time, the process of rank 0 starts a master, and its later groups are further runs of this
master. It announces the master's address and the name of the run to the other ranks through the
store, which has no other use. All ranks begin together. After a loss the remaining ranks continue,
even if only one is left.

Address of the hosted master: loopback if all ranks appear to be on this machine (the store's host
is loopback, or WORLD_SIZE equals LOCAL_WORLD_SIZE, or the store has no host). Otherwise it is the
local address that faces the store's host. If PCCL_ADVERTISE is set on rank 0, the master listens on
every address, and the other ranks connect to the host that PCCL_ADVERTISE names.

Access to the hosted master: if it listens beyond loopback, the ranks have to prove a token, and all
traffic is encrypted. Rank 0 draws the token and publishes it in the store, unless all ranks have
PCCL_SECRET_FILE. A master keeps the token that was drawn for its first run.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import socket
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from pccl_backend import _C, _settings
from pccl_backend._settings import PeerSettings
from pccl_backend._tokens import Token
from pccl_backend._torch.open_run import connect
from pccl_backend._torch.store_dialogue import Asker, Teller, tell_failure, to_words
from pccl_backend.errors import PcclError

__all__ = ["base_store", "join_hosted_world"]

LOOPBACK = "127.0.0.1"


def join_hosted_world(options: Any) -> _C.PcclGroup:
    """Create a group with a run of its own, which its rank 0 hosts. All its ranks call it."""
    if options.group_rank == 0:
        return _host_fixed_world(options, base_store(options.store))
    with Asker(options.store, options.group_rank) as asker:
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
        words = to_words(error, "rank 0 cannot host the group: ")
        tell_failure(options.store, options.group_size, words, {})
        raise
    if access.kind is _Kind.DRAWN:
        access = dataclasses.replace(access, drawn=run.token)
    place = _Place(tell, run.port, access, run.name)
    own_place = dataclasses.replace(place, host=listen_on or LOOPBACK)
    teller = Teller(options.store, options.group_size, place.text(), run)
    try:
        return _join_hosted(options, settings, timeout_s, own_place, hosted=run)
    except PcclError:
        complaint = teller.complaint
        if complaint is None:
            raise
        teller.stop()
        words = to_words(complaint)
        tell_failure(options.store, options.group_size, words, teller.answered)
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
    return connect(
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

    Rank 0 decides, and publishes the decision in torch's store. So a drawn token is only as secret
    as that store. Each rank keeps its first token.

    Attributes:
        kind: how the ranks prove it.
        token_id: the id of the token in the file; "": there is no file.
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
            ValueError: they differ; the message names them.
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
    """The address of a hosted run, as rank 0 announces it.

    Attributes:
        host, port: the address of the master.
        access: how a rank proves that it belongs to the world.
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


def base_store(store: Store) -> Store:
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store


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
