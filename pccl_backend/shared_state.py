"""SharedState: the tensors that all members of a group hold alike, and their revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from pccl_backend import _C, _memory
from pccl_backend._limits import STATE_KEY_BYTES_MAX, STATE_KEYS_MAX
from pccl_backend.errors import InvalidStateError

__all__ = ["SharedState"]


class SharedState(Mapping[str, torch.Tensor]):
    """Named tensors with a revision, which `sync_shared_state` makes equal on all members.

    The tensors are shared, not copied: if this peer's state is out of date, a sync writes to the
    tensors in place. They must be dense, of any dtype and shape. Each may be on the CPU or on a
    CUDA device, and the other peers may have the same tensor elsewhere. On the CPU they may be
    views that are not contiguous, such as columns of a matrix: a sync works on a copy of these. Two
    names may stand for the same tensor (tied weights). Such a tensor is shared once and must be
    tied in the same way on all peers. Add one to `revision` each time the tensors change together,
    for example after an optimizer step. All members must do so alike.

    With `allow_missing=True` the state may have fewer tensors than the other members' states, or
    none. It can only be synchronized with "receive_only". The first sync that succeeds adds the
    tensors that it did not have, under the names, and with the dtypes and shapes, that they have on
    the others. They are new tensors on the CPU. From then on the state is an ordinary one. So a
    newcomer can take the state of an optimizer that has not made its first step.

    Args:
        tensors: the tensors by name. Names and shapes must be the same on all peers, except that a
            state with `allow_missing=True` may lack some.
        revision: number of changes that the tensors have had.
        allow_missing: a sync adds tensors that only the others have; with `async_op=True`, in
            `wait()`. If they do not fit into the free memory of this host, nothing is added: a
            newcomer is removed from the run (KickedError), and otherwise the call raises
            SharedStateError on all members.

    Raises:
        TypeError: a name is not a str, a value is not a tensor, the revision is not an int,
            `allow_missing` is not a bool.
        ValueError: a tensor or a name is unsuitable; the message names it and the reason.

    Example:
        >>> state = SharedState({"weight": model.weight.detach()}, revision=0)
        >>> state.revision += 1

        A newcomer whose optimizer has no state yet:

        >>> state = pccl.SharedState({"weight": weight}, allow_missing=True)
        >>> info = pccl.sync_shared_state(state, strategy="receive_only")
        >>> info.added
        ('weight.exp_avg', 'weight.exp_avg_sq', 'weight.step')
        >>> optimizer.state[weight]["exp_avg"] = state["weight.exp_avg"]
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        *,
        revision: int = 0,
        allow_missing: bool = False,
    ) -> None:
        if not isinstance(tensors, Mapping):
            raise TypeError(f"tensors must be a dict by name, not {type(tensors).__name__}")
        if len(tensors) > STATE_KEYS_MAX:
            raise ValueError(
                f"a shared state of {len(tensors)} tensors; at most {STATE_KEYS_MAX} fit"
            )
        if not isinstance(allow_missing, bool):
            raise TypeError(f"allow_missing must be a bool, not {type(allow_missing).__name__}")
        for key, tensor in tensors.items():
            _check(key, tensor)
        self._tensors = dict(tensors)
        self._distinct = _distinct(self._tensors)
        self._allow_missing = allow_missing
        self._bound: _C.BoundState | None = None
        self._lent = 0  # to syncs without a `wait` so far
        self.revision = revision

    def distinct(self) -> list[tuple[str, torch.Tensor]]:
        """Return names and tensors in the order that all peers use: by the bytes of the name.

        A tensor with several names appears once, under the first one.
        """
        return [(key, self._tensors[key]) for key in self._distinct]

    def bound(self) -> _C.BoundState:
        """Return the tensors as the compiled module keeps them from one sync to the next."""
        if self._allow_missing:
            return _C.BoundState(
                self.distinct(),
                added_bytes_max=_memory.available(),
                other_names=self._tensors.keys() - set(self._distinct),
            )
        if self._bound is None:
            self._bound = _C.BoundState(self.distinct())
        return self._bound

    @property
    def allow_missing(self) -> bool:
        """Whether the next sync may add tensors; False after it."""
        return self._allow_missing

    def take(self, revision: int, added: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take the agreed revision, and the tensors that only the others had."""
        self.revision = revision
        if self._allow_missing:
            self._tensors.update(added)
            self._distinct = _distinct(self._tensors)
            self._allow_missing = False

    @property
    def revision(self) -> int:
        """Number of changes that the tensors have had; never negative."""
        return self._revision

    @revision.setter
    def revision(self, value: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"the revision must be an int, not {type(value).__name__}")
        if not 0 <= value < 2**63:
            raise ValueError(f"the revision is {value}; it must be from 0 to 2**63 - 1")
        self.require_own(f"the revision cannot change to {value}")
        self._revision = value

    def require_own(self, what: str) -> None:
        """Raise InvalidStateError with the text `what`, if the state is lent."""
        if self._lent > 0:
            raise InvalidStateError(
                f"{what} while sync_shared_state(async_op=True) has the state: first wait() for "
                "what it returned"
            )

    def lend(self) -> None:
        """Keep the revision as it is until `give_back`."""
        self._lent += 1

    def give_back(self) -> None:
        """End a `lend`."""
        self._lent -= 1

    def __getitem__(self, key: str) -> torch.Tensor:
        return self._tensors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_bound": None}

    def __repr__(self) -> str:
        missing = ", allow_missing=True" if self._allow_missing else ""
        return f"SharedState({len(self)} tensors, revision={self.revision}{missing})"


def _distinct(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the sorted names, one per tensor: the smallest of its names.

    Raises:
        ValueError: two tensors share a part of their memory, so they cannot be written separately.
    """
    names = sorted(tensors, key=str.encode)
    spans = []
    for order, name in enumerate(names):
        tensor = tensors[name]
        if tensor.numel() > 0:
            last = sum(
                (size - 1) * stride
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            start = tensor.data_ptr()
            spans.append((start, start + (last + 1) * tensor.element_size(), order))
    spans.sort()
    again = set()
    reaching: list[tuple[int, int]] = []  # end and order of tensors whose memory may reach here
    for start, end, order in spans:
        reaching = [(other_end, other) for other_end, other in reaching if other_end > start]
        for _, other in reaching:
            if _is_same(tensors[names[other]], tensors[names[order]]):
                again.add(names[max(other, order)])
            elif _C.share_memory(tensors[names[other]], tensors[names[order]]):
                raise ValueError(
                    f"{names[other]!r} and {names[order]!r} share a part of their memory, and one "
                    "would overwrite the other: share them as one tensor, or .clone() one of them"
                )
        reaching.append((end, order))
    return [name for name in names if name not in again]


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether these are two names for one tensor."""

    def layout(tensor: torch.Tensor) -> tuple[object, ...]:
        steps = [
            (size, stride)
            for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            if size > 1
        ]
        return tensor.data_ptr(), tensor.dtype, tensor.shape, steps

    return layout(one) == layout(other)


def _check(key: object, tensor: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"names must be str, and {key!r} is {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the name {key[:40]!r} is no valid text") from None
    if not 0 < size <= STATE_KEY_BYTES_MAX:
        raise ValueError(
            f"the name {key[:40]!r} takes {size} bytes, not 1 to {STATE_KEY_BYTES_MAX}"
        )
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{key!r} must be a tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(f"{key!r} must be a dense tensor: use .to_dense(), or .dequantize()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{key!r} is on {tensor.device}: pccl shares tensors on the CPU and on CUDA devices"
        )
    _C.check_storage(repr(key), tensor)
    contiguous = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    if not contiguous and tensor.device.type != "cpu":
        raise ValueError(
            f"{key!r} is on {tensor.device} and not contiguous (shape {tuple(tensor.shape)}, "
            f"strides {tensor.stride()}): share .contiguous() instead, and copy it back"
        )
    if not contiguous and _C.shares_with_itself(tensor):
        raise ValueError(
            f"elements of {key!r} share memory (shape {tuple(tensor.shape)}, strides "
            f"{tensor.stride()}), and could not be written: share .clone() instead"
        )
