"""Turns a nested state into a list of tensors and a text, and back, without pickle.

The text is JSON. Numbers, texts, booleans and None stand for themselves, and everything else is an
array that begins with its kind: ["dict", [key, value], ...], ["tensor", 3] for tensor 3 of the
list. A tensor that is at two places of the state (tied weights) is in the list once, and at both
places again after decoding.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

__all__ = ["decode", "encode"]

Path = tuple[object, ...]

DEPTH_MAX = 100  # Python and json limit recursion; a state that contains itself is refused here

_SEQUENCES: dict[str, type] = {
    "list": list,
    "tuple": tuple,
    "size": torch.Size,
    "set": set,
    "frozenset": frozenset,
}
_MAPPINGS: dict[str, type] = {"dict": dict, "ordered": OrderedDict}
_KINDS = {kind: name for name, kind in (*_SEQUENCES.items(), *_MAPPINGS.items())}
_ITSELF = (str, bool, int, float, type(None))

_DAMAGES = (KeyError, IndexError, TypeError, AttributeError, RecursionError, json.JSONDecodeError)


def encode(state: object, *, allow_pickle: bool) -> tuple[str, list[torch.Tensor]]:
    """Return the text and the tensors of a state.

    The tensors are those of the state, not copies. Only a tensor that is not contiguous, that
    shares a part of its memory with another one, or that torch conjugates or negates on reading, is
    copied.

    Args:
        state: dicts, lists, tuples, sets, numbers, texts, bytes, dtypes, devices, dense tensors of
            any shape and dtype, and DTensors, nested in any way. A Parameter becomes a tensor.
        allow_pickle: encode other objects by pickle.

    Raises:
        TypeError: the state has another object, and `allow_pickle` is not set. The message has its
            place.
        ValueError: a tensor is not dense, or on another device; or the state is too deep.
    """
    encoder = _Encoder(allow_pickle)
    text = json.dumps(encoder.node(state, ()), separators=(",", ":"))
    return text, list(_apart(encoder.tensors))


def decode(
    text: str,
    tensors: Sequence[torch.Tensor],
    *,
    allow_pickle: bool,
    own_state: Callable[[], object] | None = None,
) -> Any:
    """Return the state that `encode` has encoded.

    Args:
        text: its text.
        tensors: its tensors. The state refers to these, not to copies.
        allow_pickle: decode objects that were encoded by pickle, which runs code of the sender.
        own_state: returns a state of this process. It is called if the state has DTensors: each
            gets the mesh and the placements of the DTensor at the same place in it.

    Raises:
        ValueError: the text is not of this form, or has a pickle that is not allowed; or this
            process has no DTensor of the same shape at some place.
    """
    try:
        return _Decoder(tensors, allow_pickle, own_state).state(json.loads(text), ())
    except _DAMAGES as error:
        raise ValueError(
            f"the checkpoint has another form ({type(error).__name__}: {error}): install the same "
            "version of pccl for all replicas"
        ) from error


class _Encoder:
    """Collects the tensors of one state."""

    def __init__(self, allow_pickle: bool) -> None:
        self._allow_pickle = allow_pickle
        self._known: dict[object, int] = {}
        self.tensors: list[torch.Tensor] = []

    def node(self, value: object, path: Path) -> object:
        kind = type(value)
        if kind in _ITSELF:
            return value
        if len(path) > DEPTH_MAX:
            raise ValueError(f"the state is deeper than {DEPTH_MAX}, or contains itself")
        if kind in _SEQUENCES.values():
            items: Iterable[Any] = value  # type: ignore[assignment]
            return [_KINDS[kind], *(self.node(v, (*path, i)) for i, v in enumerate(items))]
        if kind in _MAPPINGS.values():
            mapping: dict[Any, Any] = value  # type: ignore[assignment]
            pairs = ([self.node(k, (*path, "key")), self.node(v, (*path, k))]
                     for k, v in mapping.items())  # fmt: skip
            if kind is OrderedDict and hasattr(value, "_metadata"):  # of a module's state_dict()
                return ["module", self.node(value._metadata, path), *pairs]
            return [_KINDS[kind], *pairs]
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        return self._leaf(value, path)

    def _leaf(self, value: object, path: Path) -> object:
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, torch.device):
            return ["device", str(value)]
        if type(value) is complex:
            return ["complex", value.real, value.imag]
        if type(value) is bytes:
            return ["bytes", base64.b64encode(value).decode()]
        if not self._allow_pickle:
            raise TypeError(
                f"{_place(path)} is of the type {type(value).__module__}."
                f"{type(value).__qualname__}, which PcclTransport does not send: put a dict of "
                "tensors, numbers and texts there, or set allow_pickle=True on all replicas"
            )
        return ["pickle", base64.b64encode(pickle.dumps(value)).decode()]

    def _tensor(self, value: torch.Tensor, path: Path) -> object:
        if isinstance(value, DTensor):
            return ["dtensor", self._add(value.to_local(), path), *value.shape]
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            return self._leaf(value, path)
        return ["tensor", self._add(value, path)]

    def _add(self, tensor: torch.Tensor, path: Path) -> int:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ValueError(
                f"{_place(path)} is no dense tensor: use .to_dense(), or .dequantize()"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"{_place(path)} is on {tensor.device}, not on the CPU or a CUDA device"
            )
        plain = tensor.detach()
        same: tuple[object, ...] = (len(self.tensors),)
        if plain.numel() > 0:
            same = (plain.data_ptr(), plain.device, plain.dtype, plain.shape, plain.stride())
            same = (*same, plain.is_conj(), plain.is_neg())
        if same not in self._known:
            self._known[same] = len(self.tensors)
            self.tensors.append(plain)
        return self._known[same]


def _apart(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the tensors in order, with copies of those that a shared state cannot have as they are.

    A later tensor that may share memory with an earlier one is copied.
    """
    taken: dict[int, list[tuple[int, int]]] = {}
    for tensor in tensors:
        if tensor.is_conj() or tensor.is_neg() or not tensor.is_contiguous():
            yield tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
            continue
        start = tensor.data_ptr()
        end = start + tensor.numel() * tensor.element_size()
        spans = taken.setdefault(tensor.untyped_storage().data_ptr(), [])
        if any(start < other_end and other < end for other, other_end in spans):
            yield tensor.clone()
        else:
            spans.append((start, end))
            yield tensor


class _Decoder:
    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        allow_pickle: bool,
        own_state: Callable[[], object] | None,
    ) -> None:
        self._tensors = tensors
        self._allow_pickle = allow_pickle
        self._own_state = own_state
        self._own: dict[Path, DTensor] | None = None

    def state(self, node: object, path: Path) -> Any:
        if not isinstance(node, list):
            return node
        kind, rest = node[0], node[1:]
        if kind in _SEQUENCES:
            return _SEQUENCES[kind]([self.state(n, (*path, i)) for i, n in enumerate(rest)])
        if kind in _MAPPINGS:
            return _MAPPINGS[kind](self._pairs(rest, path))
        if kind == "module":
            return self._module(rest, path)
        if kind == "dtensor":
            return self._dtensor(self._tensors[rest[0]], tuple(rest[1:]), path)
        return self._leaf(kind, *rest)

    def _module(self, rest: Sequence[Any], path: Path) -> OrderedDict[Any, Any]:
        state: OrderedDict[Any, Any] = OrderedDict(self._pairs(rest[1:], path))
        state._metadata = self.state(rest[0], path)  # type: ignore[attr-defined]
        return state

    def _pairs(self, nodes: Iterable[Any], path: Path) -> Iterator[tuple[Any, Any]]:
        for key_node, value_node in nodes:
            key = self.state(key_node, (*path, "key"))
            yield key, self.state(value_node, (*path, key))

    def _leaf(self, kind: str, *rest: Any) -> object:
        if kind == "tensor":
            return self._tensors[rest[0]]
        if kind == "dtype":
            dtype = getattr(torch, rest[0])
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"the checkpoint has {rest[0]!r} as a dtype")
            return dtype
        if kind == "device":
            return torch.device(rest[0])
        if kind == "complex":
            return complex(*rest)
        if kind == "bytes":
            return base64.b64decode(rest[0])
        if kind != "pickle":
            raise KeyError(kind)
        if not self._allow_pickle:
            raise ValueError(
                "the checkpoint has an object that was pickled, and this replica has not set "
                "allow_pickle=True: set it on all replicas, or on none"
            )
        return pickle.loads(base64.b64decode(rest[0]))

    def _dtensor(self, local: torch.Tensor, shape: tuple[int, ...], path: Path) -> DTensor:
        if self._own is None:
            state = None if self._own_state is None else self._own_state()
            self._own = dict(_dtensors(state, ()))
        own = self._own.get(path)
        if own is None or own.shape != shape or own.to_local().shape != local.shape:
            raise ValueError(
                f"{_place(path)} is a DTensor of the shape {tuple(shape)}, whose part here has the "
                f"shape {tuple(local.shape)}, and this replica has none like it there: give "
                "PcclTransport a state_dict= that returns such a state"
            )
        # from_local() would give an empty part to a process that is not in the mesh.
        part = local.to(own.to_local().device)
        return DTensor(part, own._spec, requires_grad=False)


def _dtensors(state: object, path: Path) -> Iterator[tuple[Path, DTensor]]:
    if isinstance(state, DTensor):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _dtensors(value, (*path, key))
    elif isinstance(state, (list, tuple)):
        for index, value in enumerate(state):
            yield from _dtensors(value, (*path, index))


def _place(path: Path) -> str:
    return "state_dict" + "".join(f"[{part!r}]" for part in path)
