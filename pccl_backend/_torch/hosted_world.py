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
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from pccl_backend import _C, _settings
from pccl_backend._settings import PeerSettings
from pccl_backend._tokens import Token
from pccl_backend._torch.open_run import connect
from pccl_backend._torch.store_dialogue import Asker, Run, Teller, tell_failure, to_words
from pccl_backend.errors import PcclError

__all__ = ["LOOPBACK", "Founding", "base_store", "choose_address", "found_world"]
__all__ += ["join_hosted_world", "store_host"]

LOOPBACK = "127.0.0.1"


def _ignore(run: Run) -> None:
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Founding:
    """What one rank of a hosted world knows before the world begins.

    Attributes:
        store: where the ranks meet. No other world may use it at the same time.
        rank, size: position in the world, and its number of ranks.
        timeout: limit for the beginning, and for each operation later.
        name: name of the run, for people. The master adds a number if it had this name before.
        store_host: the host where the store is, which decides where rank 0 listens. None: all ranks
            are on this machine.
        from_launcher: WORLD_SIZE and LOCAL_WORLD_SIZE describe this world. If they are equal, all
            ranks are on this machine.
        on_peer_loss: overrides PCCL_ON_PEER_LOSS, if given.
        on_hosted: rank 0 calls it with its run before it waits for the others.
        is_over: whether rank 0 has given up. The other ranks look while they wait for its answer.
    """

    store: Store
    rank: int
    size: int
    timeout: timedelta
    name: str
    store_host: str | None
    from_launcher: bool
    on_peer_loss: str | None = None
    on_hosted: Callable[[Run], None] = _ignore
    is_over: Callable[[], bool] = lambda: False


def join_hosted_world(options: Any) -> _C.PcclGroup:
    """Create the group that torch asks for, with a run of its own. All its ranks call it."""
    return found_world(
        Founding(
            store=options.store,
            rank=options.group_rank,
            size=options.group_size,
            timeout=options.timeout,
            name=f"group {options.group_id}" if options.global_ranks_in_group else "world",
            store_host=store_host(options.store),
            from_launcher=True,
        )
    )


def found_world(founding: Founding) -> _C.PcclGroup:
    """Create a group with a run of its own, which its rank 0 hosts. All its ranks call it.

    Raises:
        ValueError: a setting is invalid, or differs between the ranks.
        TooFewPeersError: not all ranks called it in time.
        PcclError: another rank failed, or the run cannot be joined.
        OSError: this process cannot open the files that it needs.
    """
    if founding.rank == 0:
        return _host_fixed_world(founding)
    with Asker(founding.store, founding.rank, founding.is_over) as asker:
        settings, timeout_s = _settings_for(founding)
        _C.check_descriptors(founding.size, hosts=False)
        place = _Place.parse(asker.ask(timeout_s))
        place.access.check(settings, founding.rank)
        try:
            return _join_hosted(founding, settings, timeout_s, place)
        except PcclError:
            failure = asker.failure()
            if failure is not None:
                raise failure from None
            raise


def _host_fixed_world(founding: Founding) -> _C.PcclGroup:
    try:
        settings, timeout_s = _settings_for(founding)
        listen_on, tell = choose_address(
            founding.store_host, settings, from_launcher=founding.from_launcher
        )
        access = _Access.of_rank_0(settings, beyond_this_machine=listen_on != LOOPBACK)
        _C.check_descriptors(founding.size, hosts=True)
        run = _C.HostedRun(
            host=listen_on,
            token=access.masters_token(settings),
            drawn=access.kind is _Kind.DRAWN,
            name=founding.name,
            patience=settings.master_timeout,
        )
    except Exception as error:
        words = to_words(error, "rank 0 cannot host the group: ")
        tell_failure(founding.store, founding.size, words, {})
        raise
    if access.kind is _Kind.DRAWN:
        access = dataclasses.replace(access, drawn=run.token)
    place = _Place(tell, run.port, access, run.name)
    own_place = dataclasses.replace(place, host=listen_on or LOOPBACK)
    founding.on_hosted(run)
    teller = Teller(founding.store, founding.size, place.text(), run)
    try:
        return _join_hosted(founding, settings, timeout_s, own_place, hosted=run)
    except PcclError:
        complaint = teller.complaint
        if complaint is None:
            raise
        teller.stop()
        words = to_words(complaint)
        tell_failure(founding.store, founding.size, words, teller.answered)
        raise complaint from None
    finally:
        teller.stop()


def _settings_for(founding: Founding) -> tuple[PeerSettings, float]:
    settings = PeerSettings.read(os.environ)
    if founding.on_peer_loss is not None:
        settings = dataclasses.replace(settings, on_peer_loss=founding.on_peer_loss)
    return settings, _C.checked_timeout(founding.timeout.total_seconds())


def _join_hosted(
    founding: Founding,
    settings: PeerSettings,
    timeout_s: float,
    place: _Place,
    *,
    hosted: _C.HostedRun | None = None,
) -> _C.PcclGroup:
    return connect(
        settings,
        timeout_s,
        founding.store,
        host=place.host,
        port=place.port,
        run=place.run,
        peer_group=0,
        founders=founding.size,
        min_peers=1,
        rank=founding.rank,
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


def store_host(store: Store) -> str | None:
    """Return the host of a store, or None if it has none."""
    base = base_store(store)
    return base.host if isinstance(base, TCPStore) else None


def choose_address(
    host: str | None, settings: PeerSettings, *, from_launcher: bool = True
) -> tuple[str, str]:
    """Return the address that the hosted master listens on ("": all), and the host for others.

    The first two arguments are the host of the store, and the settings of rank 0.
    """
    if settings.advertise:
        return "", settings.advertise
    world = os.environ.get("WORLD_SIZE") if from_launcher else None
    one_machine = world is not None and world == os.environ.get("LOCAL_WORLD_SIZE")
    if host is None or one_machine or _settings.is_loopback(host):
        return LOOPBACK, LOOPBACK
    facing = _facing_address(host)
    if not _settings.is_loopback(facing):
        mine = facing in _addresses_of(host)
        return facing, host if mine else facing
    # /etc/hosts maps this machine's own name to loopback; the other machines resolve it correctly.
    return "", host


def _addresses_of(host: str) -> set[str]:
    return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)}


def _facing_address(host: str) -> str:
    """Return this machine's address on the path to `host`, without sending anything."""
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
