"""The compiled module, csrc/torch/module.cc. Durations are in seconds."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, overload

from torch import Tensor
from torch._C._distributed_c10d import Backend, Store
from torch.distributed import ProcessGroup, Work

class PcclBackend(Backend):
    """The backend behind a group, without the group: for groups that combine several backends."""

    def join_composite(self, *, serves_cuda: bool) -> None:
        """Leave other devices of the group to other backends.

        Call it before the first collective.

        Args:
            serves_cuda: whether this backend serves CUDA tensors. It refuses them otherwise.
        """

    @property
    def in_composite(self) -> bool:
        """Whether other backends serve other devices of the group."""

    @property
    def open_run(self) -> bool:
        """As `PcclGroup.open_run`."""

    @property
    def reconfigurable(self) -> bool:
        """Whether `enable_reconfigure=True` has made the group."""

    @property
    def store(self) -> Store:
        """The store of the group."""

    @property
    def timeout_s(self) -> float: ...
    def place(self) -> tuple[int, int]:
        """Return rank and size, which follow the membership."""

    def perform_nocolor_split(self, device: object) -> None:
        """Do nothing. torch calls it on the ranks that a new group leaves out."""

    def shrink(
        self,
        ranks_to_exclude: Sequence[int],
        shrink_flags: int = 0,
        opts_override: object | None = None,
    ) -> PcclBackend:
        """As `pccl_backend._torch.split.shrink`."""

class PcclGroup(ProcessGroup):
    """A process group whose rank and size follow the membership of its run."""

    @property
    def open_run(self) -> bool:
        """Whether peers may join and leave at any time; False for an env:// start."""

    @property
    def backend(self) -> PcclBackend: ...
    def serve(self, devices: Sequence[str]) -> None:
        """Serve tensors on these devices. Call it before the first collective."""

    def count_split(self) -> int:
        """Return the number of earlier calls of this method."""

    def update_topology(self) -> dict[str, Any]: ...
    def are_peers_pending(self) -> bool: ...
    def optimize_topology(self, budget_ms: int, max_bytes: int) -> dict[str, Any]: ...
    def sync_shared_state(
        self,
        *,
        revision: int,
        strategy: int,
        tensors: BoundState,
        progress: Callable[[int, int, int], object] | None,
    ) -> dict[str, Any]: ...
    def begin_sync(self, *, revision: int, strategy: int, tensors: BoundState) -> SyncCall: ...
    def run_info(self) -> dict[str, Any]: ...
    def report(self, numbers: Sequence[tuple[str, float]]) -> None: ...
    def add_saving(self, seconds: float) -> None:
        """Count this time of the application's thread as saving (pccl_backend.info.TimeSpent)."""

    def raise_last_error(self) -> None: ...

class BoundState:
    """The tensors of a SharedState, by name, for all its calls.

    With `added_bytes_max`, the calls also take other tensors, of at most this number of bytes
    together. Their names must not be among the `other_names`.
    """

    @overload
    def __init__(self, tensors: Sequence[tuple[str, Tensor]]) -> None: ...
    @overload
    def __init__(
        self,
        tensors: Sequence[tuple[str, Tensor]],
        *,
        added_bytes_max: int,
        other_names: Set[str],
    ) -> None: ...

class SyncCall:
    """A sync_shared_state that continues in the background."""

    def wait(
        self, timeout: float | None, progress: Callable[[int, int, int], object] | None
    ) -> dict[str, Any]: ...
    def is_completed(self) -> bool: ...
    def is_concluded(self) -> bool:
        """Whether a `wait` has given its outcome, so that nothing is lent any more."""

    @property
    def receives(self) -> bool: ...
    @property
    def revision(self) -> int: ...
    @property
    def hash(self) -> int: ...

class HostedRun:
    """A run at the master inside this process. All hosted runs of a process share one master.

    Args:
        host: where the master listens; "" is every address.
        token: the text of the token that all peers have; "": they join in plain text.
        drawn: the token was drawn for this run. If an earlier run of this process has a drawn
            token, that token is used instead.
        name: the name of the run. The master adds a number if it had a run of this name before.
        patience: seconds that this process, at its exit, waits for peers that make no call.
    """

    def __init__(
        self, *, host: str, token: str, drawn: bool, name: str, patience: float
    ) -> None: ...
    @property
    def port(self) -> int: ...
    @property
    def token(self) -> str:
        """The token that the peers have to prove."""
    @property
    def name(self) -> str: ...
    def give_up(self) -> None:
        """Make the `join` of this run end with an error. Any thread may call it."""

@dataclass(kw_only=True)
class JoinOptions:
    """How this process joins a run. Every field must be given.

    The class has the constructor and the attributes of a dataclass, but is not one.

    Attributes:
        host, port: address of the master.
        run: name of the run.
        peer_group: number of the peer group.
        founders: number of peers that begin the group; 0: min_peers.
        min_peers: smallest number of members of a group that continues.
        rank: the rank that a founder requests; -1: none.
        launch: text that all ranks of one fixed world share; "": there is no fixed world.
        timeout: limit for the admission and for each operation, unless a call has its own.
        on_peer_loss, pattern, peer_timeout, first_call_timeout, call_timeout, master_timeout,
            advertise, port_range, lanes, tcp_congestion, restore, check_callsite, name: as in
            `_settings.PeerSettings`.
        advertised_port: the port under which others reach the first one of `port_range`; 0: the
            same.
        open_run: what `PcclGroup.open_run` returns.
        secret_file: absolute path of the file that has this peer's token; "": there is none.
        token: the text of this peer's token, in place of a file; "": there is none.
        insecure: a peer without a token may join a master on another machine.

    Raises:
        TypeError: a field is missing or unknown, or has another type.
    """

    host: str
    port: int
    run: str
    peer_group: int
    founders: int
    min_peers: int
    rank: int
    launch: str
    timeout: float
    on_peer_loss: str | None
    pattern: str | None
    peer_timeout: float | None
    first_call_timeout: float | None
    call_timeout: float | None
    master_timeout: float
    advertise: str
    advertised_port: int
    port_range: tuple[int, int]
    lanes: int
    tcp_congestion: str
    restore: bool
    check_callsite: bool
    name: str
    open_run: bool
    secret_file: str
    token: str
    insecure: bool

def check_descriptors(size: int, *, hosts: bool) -> None:
    """Check that this process can open the files that a group of `size` peers needs.

    Args:
        size: the number of peers.
        hosts: whether the master of the group is in this process.

    Raises:
        OSError: it cannot; the message has the limit.
    """

def join(options: JoinOptions, *, store: Store, hosted: HostedRun | None) -> PcclGroup:
    """Connect to a master, wait for admission, and return the group.

    Args:
        options: how to join.
        store: the store that torch gets as the store of the group.
        hosted: the run, if its master is in this process. The run ends with its last peer, or with
            this process.

    Raises:
        ValueError: an option is out of range.
        PcclError: the run cannot be joined; the message has the reason.
    """

def make_reconfigurable(
    options: JoinOptions,
    *,
    store: Store,
    host: str,
    token: str,
    keys: bool,
    advertised: str,
    rank: int,
    size: int,
    timeout: float,
) -> PcclGroup:
    """Make a group without members, for `init_process_group(..., enable_reconfigure=True)`.

    Args:
        options: how to join each run; address, run, rank and size are filled in.
        store: the store that torch gets as the store of the group.
        host: where the master of this process listens; "": on every address.
        token: the text of the token that all peers have; "": they need none.
        keys: handles have keys, and all connections are encrypted with them.
        advertised: the host of this process for the others, in its handles.
        rank, size: what the group has until its first reconfigure.
        timeout: limit of operations and of reconfigure, in seconds.

    Raises:
        OSError: the master cannot listen there.
    """

def leave_all(failed: bool) -> None:
    """Leave every group, and wait for the peers that need the master of this process.

    Args:
        failed: the program has failed: the runs that this process hosts end at once.
    """

def checked_timeout(seconds: float) -> float:
    """Return a user's timeout as every call understands it: "for ever" becomes some years.

    torch turns a timedelta of more than 292,000 years into a negative number; that is "for ever"
    too.

    Raises:
        ValueError: it is zero or negative.
    """

def state_hash(tensor: Tensor) -> int:
    """Return the hash that a contiguous tensor on the CPU has as an entry of a shared state."""

def check_storage(what: str, tensor: Tensor) -> None:
    """Raise ValueError, naming the tensor `what`, if its storage does not hold all its elements."""

def share_memory(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share a byte.

    An element of one tensor may lie in a gap between elements of the other: then they share none.
    """

def shares_with_itself(tensor: Tensor) -> bool:
    """Return whether two elements of the tensor share memory."""

def set_call_options(
    *,
    tag: str | None,
    keep: bool | None,
    quantize: tuple[int, int, int, int] | None,
    priority: int | None,
) -> tuple[str, bool, tuple[int, int, int, int], int]:
    """Set this thread's options where they are not None, and return those from before.

    `tag`: the tag of the thread's collectives; "" is the default tag. `keep`: if a loss interrupts
    an all-reduce of the thread, its finished parts keep their result. `quantize`: the format of the
    thread's all-reduces that can be quantized: bits, block, bits of the result, and 1 for
    stochastic rounding; zeros: they are not quantized. `priority`: from -8 to 7; ready work of a
    higher priority leaves first.
    """

def quantize_dequantize(
    tensor: Tensor, *, quantize: tuple[int, int, int, int], seed: int
) -> Tensor:
    """Return the values that all members decode if this contiguous CPU tensor is contributed.

    `seed`: the seed of stochastic rounding, below 2**64.
    """

def ended_before_call(work: Work) -> bool: ...
def parts(work: Work) -> list[tuple[int, list[str]]]:
    """List the parts of a finished, kept all-reduce: (end element, names of the peers in it)."""

def gradient_work(work: Work, gradient: Tensor) -> Work:
    """Return a Work whose future is the result of a hook of DistributedDataParallel.

    The future ends when `work` ends: with `gradient`, or with the error of `work`.
    """

def cuda_library() -> str: ...
def set_log_level(name: str) -> bool: ...

class LogRecord:
    """A line of the log. Unknown facts are empty or None."""

    @property
    def level(self) -> int:
        """0: error, 1: warning, 2: info, 3: debug."""

    @property
    def event(self) -> str: ...
    @property
    def message(self) -> str:
        """The line for people, without the time and the level; printable."""

    @property
    def created(self) -> float:
        """Seconds since 1970."""

    @property
    def run(self) -> str: ...
    @property
    def group(self) -> int | None: ...
    @property
    def peer(self) -> str: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def epoch(self) -> str: ...

def route_logs(to_queue: bool) -> None:
    """Open the queue of the log, or close it and write what waits to stderr."""

def take_logs(limit: float) -> list[LogRecord]:
    """Wait for records until the queue is closed, but for `limit` seconds at most."""

def close_logs() -> list[LogRecord]:
    """Close the queue, and return what waits."""

def write_log(record: LogRecord) -> None:
    """Write a record to stderr."""
