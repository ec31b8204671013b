"""Bases: the unshared tensors of each peer, and a check that they are equal on all peers.

DiLoCo does not share frozen parameters, nor buffers with `buffers="own"`. If the peers train
adapters on different bases, the mean of the adapters is useless, and no error shows it. Therefore
each peer hashes each such tensor before it joins. One number that represents all hashes of a peer
travels with each outer step. If the numbers of the peers differ, the peers exchange their hashes
once, and each logs a warning that names the tensors and the peers.

The hashes travel in a table of a fixed size, because the peers may have different tensors. Each
tensor adds its hash to one slot of the first half, chosen by its name, and to one slot of the
second half. A tensor is reported if both of its slots differ. So a warning may also name a tensor
that is equal, if its slots collide with the slots of different ones.

When a newcomer is admitted, frozen parameters that have changed are hashed again. Buffers are
expected to change, so their hashes remain as of the start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pccl_backend import _C
from pccl_backend.trainers.shards import is_dtensor, local_of, reshard

__all__ = ["NUMBER_MAX", "Bases"]

Numbers = Sequence[tuple[str, int]]  # name and number of each peer

NUMBER_MAX = (1 << 23) - 1  # largest number of a peer: a float32 holds twice as much exactly
SLOTS = 2048  # number of slots in each half of a table
PIECE_BYTES = 1 << 26
SHOWN_MAX = 4  # names in a warning


class Bases:
    """The hashes of the tensors that this peer does not share.

    If the processes of a host have only shards of them, this peer compares nothing: other hosts may
    be cut differently.

    Args:
        model: the model.
        buffers: whether its buffers are each peer's own.

    Attributes:
        number: represents all hashes, from 1 to NUMBER_MAX; 0: there is nothing to compare.
    """

    def __init__(self, model: torch.nn.Module, *, buffers: bool) -> None:
        self._model = model
        self._has_buffers = buffers
        self._hashes: dict[str, int] = {}
        self._marks: dict[str, tuple[object, ...]] = {}  # of the hashed tensors; see _mark()
        self._whole = True  # whether this process has all elements of the tensors
        self._compared: Numbers = ()
        self._told: set[str] = set()  # names of the peers that a warning has named
        self.number = 0

    def read(self) -> None:
        """Hash the tensors of the model. Tensors unchanged since the last call keep their hash."""
        found = self._tensors()
        self._hashes = {name: each for name, each in self._hashes.items() if name in found}
        self._whole = not any(is_dtensor(t) and t.device_mesh.size() > 1 for t in found.values())
        self._hash(found)

    def read_again(self) -> None:
        """Hash again the frozen parameters that have changed."""
        found = self._tensors()
        known = [name for name in self._hashes if name.startswith("parameter") and name in found]
        self._hash({name: found[name] for name in known})

    def is_due(self, numbers: Numbers) -> bool:
        """Return whether the peers compare their hashes now: the same result on all peers.

        Args:
            numbers: the numbers of all members in an outer step.
        """
        sure = {number for _, number in numbers if number}
        if len(sure) < 2 or list(self._compared) == list(numbers):
            return False
        self._compared = numbers
        return True

    def table(self) -> torch.Tensor:
        """Return the hashes as a table of int64: each slot is a sum of hashes."""
        table = torch.zeros(2 * SLOTS, dtype=torch.int64, device="cpu")
        for name, value in self._hashes.items():
            for slot in _slots(name):
                table[slot] += value
        return table

    def difference(self, tables: Mapping[str, torch.Tensor]) -> str:
        """Return the text of a warning; empty if there is nothing new to report.

        Args:
            tables: the tables of the other peers that have one, by the peers' names.
        """
        mine, names, peers = self.table(), set[str](), []
        if not self.number:
            return ""
        for peer, table in tables.items():
            differs = (table != mine).tolist()
            unlike = {name for name in self._hashes if all(differs[s] for s in _slots(name))}
            if unlike and peer not in self._told:
                peers.append(peer)
                names |= unlike
        self._told.update(peers)
        if not peers:
            return ""
        which = _some(name for name in self._hashes if name in names)
        return (
            f"{', '.join(peers)}: not the same {which} as here. The trainer does not share them, "
            "because they are frozen or buffers of each peer's own: what the peers average was "
            "learned on different bases. Load the same on all peers"
        )

    def _tensors(self) -> dict[str, torch.Tensor]:
        reshard(self._model)
        found: dict[str, torch.Tensor] = {
            f"parameter {name!r}": parameter
            for name, parameter in self._model.named_parameters()
            if not parameter.requires_grad
        }
        if self._has_buffers:
            found |= {f"buffer {name!r}": buffer for name, buffer in self._model.named_buffers()}
        return found

    def _hash(self, tensors: Mapping[str, torch.Tensor]) -> None:
        for name, tensor in tensors.items():
            mark = _mark(tensor)
            if name in self._hashes and self._marks[name] == mark:
                continue
            try:
                self._hashes[name], self._marks[name] = _hash_of(name, tensor), mark
            except (RuntimeError, TypeError, ValueError):  # torch cannot return its bytes
                self._hashes.pop(name, None)
        digest = hashlib.blake2b(str(sorted(self._hashes.items())).encode(), digest_size=8).digest()
        number = int.from_bytes(digest, "little") % NUMBER_MAX + 1
        self.number = number if self._hashes and self._whole else 0


def _mark(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a mark that changes when an operation changes the tensor, except through `.data`."""
    version = 0 if tensor.is_inference() else tensor._version
    return id(tensor), version, tensor.dtype, tensor.shape, tensor.device


def _hash_of(name: str, tensor: torch.Tensor) -> int:
    """Return a number that depends on name, dtype, shape and bytes, and not on the device.

    Raises:
        RuntimeError, TypeError, ValueError: torch cannot return its bytes.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=7)
    with torch.no_grad():
        for plain in _plain(local_of(tensor)):
            digest.update(f";{plain.dtype} {tuple(plain.shape)}".encode())
            for piece in _pieces(plain):
                whole = piece.to("cpu").resolve_conj().resolve_neg().contiguous()
                digest.update(_C.state_hash(whole).to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little") + 1


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the dense tensors inside a tensor, unwrapping subclasses."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain(getattr(tensor, name))
        return
    dense = tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested)
    if not dense or tensor.is_meta:
        raise ValueError(f"a tensor of {tensor.dtype} in the layout {tensor.layout}")
    if tensor.numel() and tensor.untyped_storage().nbytes() == 0:
        raise ValueError("its memory was freed")
    yield tensor


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the parts of a tensor in order, each small, so that a copy needs little memory."""
    count = tensor.numel()
    if tensor.dim() == 0 or count * tensor.itemsize <= PIECE_BYTES:
        yield tensor
        return
    rows = max(1, PIECE_BYTES // (count // len(tensor) * tensor.itemsize))
    for part in torch.split(tensor, rows):
        if len(part) == 1:
            yield from _pieces(part[0])
        else:
            yield part


def _slots(name: str) -> tuple[int, int]:
    """Return the places of a tensor in both halves of a table."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    first, second = (int.from_bytes(half, "little") % SLOTS for half in (digest[:4], digest[4:]))
    return first, SLOTS + second


def _some(names: Iterable[str]) -> str:
    """Return the first names of many."""
    every = list(names)
    more = len(every) - SHOWN_MAX
    return ", ".join(every[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
