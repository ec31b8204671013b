"""Object graph: copies and fingerprints of all objects that an optimizer refers to.

`copy.deepcopy` of an optimizer drops its hooks and all that its class does not pickle, and copies
the model with it. Here containers, objects of Python classes, functions and optimizers are copied
by hand, and `known` has the existing copies.
"""

from __future__ import annotations

import copy
import enum
import functools
import hashlib
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, cast

import torch
from torch.optim import Optimizer

__all__ = ["attributes_of", "copied", "fingerprint", "like", "optimizers_in"]

OBJECTS_MAX = 1 << 18  # maximum number of objects that an optimizer can refer to
SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)
DICTS = (dict, OrderedDict, defaultdict)
SEQUENCES = (list, tuple, set, frozenset, deque)


def optimizers_in(optimizer: Optimizer) -> Iterator[tuple[str, Optimizer]]:
    """Yield an optimizer and all optimizers that it refers to, with prefixes for their names."""
    seen: dict[int, object] = {}
    todo: deque[tuple[str, object]] = deque([("", optimizer)])
    while todo:
        path, value = todo.popleft()
        if type(value) in SIMPLE or isinstance(value, torch.Tensor) or id(value) in seen:
            continue
        seen[id(value)] = value
        _require_few(seen)
        inner: Mapping[Any, object] = _parts(value) or {}
        if isinstance(value, Optimizer):
            yield f"(in {path}) " if path else "", value
            seen |= {id(known): known for known in (value.state, value.param_groups)}
            inner = attributes_of(value)
        for number, (key, part) in enumerate(inner.items()):
            name = str(key if isinstance(key, (str, int)) else number)
            todo.append((f"{path}.{name}" if path else name, part))


def attributes_of(value: object) -> dict[str, Any]:
    """Return the attributes of an object, from its __dict__ and its slots."""
    result = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                result[name] = getattr(value, name)
    return result


# --- Copies ---------------------------------------------------------------------------------------


def copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a copy of a value and of all that it refers to.

    An optimizer's copy has no state and no hooks. Objects that cannot be copied, such as a lock or
    a process group, are returned themselves.

    Args:
        value: the original.
        known: the copies so far, by the ids of the originals.

    Raises:
        TypeError: it refers to a generator.
        ValueError: it refers to too many objects.
    """
    if type(value) in SIMPLE or isinstance(value, (type, types.ModuleType, enum.Enum)):
        return value
    if id(value) in known:
        return known[id(value)]
    _require_few(known)
    if isinstance(value, types.GeneratorType):
        raise TypeError(f"it refers to {value!r}, which cannot be copied")
    if hasattr(value, "__del__"):  # a copy would close resources that the original needs
        known[id(value)] = value
    elif isinstance(value, torch.Tensor):
        known[id(value)] = like(value, value.detach().clone())
    elif isinstance(value, types.MethodType):
        return types.MethodType(copied(value.__func__, known), copied(value.__self__, known))
    elif isinstance(value, types.FunctionType):
        _copy_function(value, known)
    elif not _copy_container(value, known) and not _copy_object(value, known):
        try:
            known[id(value)] = copy.deepcopy(value, known)
        except Exception:  # noqa: BLE001 - a failed copy raises any exception
            known[id(value)] = value
    return known[id(value)]


def like(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values as a tensor of the same class."""
    if isinstance(tensor, torch.nn.Parameter):
        values = torch.Tensor._make_subclass(type(tensor), values)
    return values.requires_grad_(tensor.requires_grad)


def _copy_container(value: Any, known: dict[int, Any]) -> bool:
    """Copy a container into `known`. Return whether the value is a container."""
    if type(value) in DICTS:
        result = known[id(value)] = value.copy()
        result.clear()
        result.update((known.get(id(k), k), copied(inner, known)) for k, inner in value.items())
    elif type(value) is list:
        result = known[id(value)] = []
        result.extend(copied(inner, known) for inner in value)
    elif type(value) is deque:
        result = known[id(value)] = deque(maxlen=value.maxlen)
        result.extend(copied(inner, known) for inner in value)
    elif type(value) in SEQUENCES or hasattr(type(value), "_make"):
        make = getattr(type(value), "_make", type(value))
        known[id(value)] = make([copied(inner, known) for inner in value])
    elif type(value) is functools.partial:
        function, arguments = copied(value.func, known), copied(value.args, known)
        known[id(value)] = functools.partial(function, *arguments, **copied(value.keywords, known))
    else:
        return False
    return True


def _copy_function(function: types.FunctionType, known: dict[int, Any]) -> None:
    cells = function.__closure__ or ()
    if not cells:
        known[id(function)] = function
        return
    new = [known.setdefault(id(cell), types.CellType()) for cell in cells]
    result = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, tuple(new)
    )
    known[id(function)] = result
    result.__defaults__ = copied(function.__defaults__, known)
    result.__kwdefaults__ = copied(function.__kwdefaults__, known)
    vars(result).update(vars(function))
    for cell, its in zip(cells, new, strict=True):
        if _content(its) is None and (content := _content(cell)) is not None:
            its.cell_contents = copied(content, known)


def _copy_object(value: object, known: dict[int, Any]) -> bool:
    """Copy an object of a Python class into `known`. Return whether the value is one."""
    if not _is_plain(cast("Hashable", type(value))):
        return False
    attributes = attributes_of(value)
    if type(value) is object:  # a mark, which programs compare by identity
        known[id(value)] = value
        return True
    result = known[id(value)] = object.__new__(type(value))
    for name, inner in attributes.items():
        if isinstance(value, Optimizer):
            if name.startswith("_optimizer_") and name.endswith("_hooks"):
                object.__setattr__(result, name, OrderedDict())
                continue
            if name == "state":
                vars(result)[name] = known.setdefault(id(inner), defaultdict(dict))
                for owner, part in inner.items():
                    if isinstance(owner, str):  # some make these before their first step
                        vars(result)[name][owner] = copied(part, known)
                continue
            if callable(inner) and callable(getattr(type(value), name, None)):
                continue  # a scheduler or a compiler has wrapped the original's method
        new = copied(inner, known)
        if name in getattr(value, "__dict__", {}):
            vars(result)[name] = new
        else:
            object.__setattr__(result, name, new)
    return True


# --- Fingerprints ---------------------------------------------------------------------------------


def fingerprint(
    value: Any, known: Mapping[int, object], seen: dict[int, tuple[int, object]]
) -> object:
    """Return a fingerprint: equal for equal values, and different after a step changed one.

    Args:
        value: the value.
        known: objects with fingerprints elsewhere, by id.
        seen: the objects that this function has visited, by id, each with a number.
    """
    if type(value) in SIMPLE:
        return type(value), repr(value)  # NaN equals NaN here
    if id(value) in known or id(value) in seen:
        return "known", id(value) if id(value) in known else seen[id(value)][0]
    seen[id(value)] = len(seen), value
    _require_few(seen)
    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.shape, _digest(value)
    parts = _parts(value)
    if parts is not None:
        inner = parts.items()
        return type(value), [
            (fingerprint(name, known, seen), fingerprint(part, known, seen)) for name, part in inner
        ]
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - an opaque object raises any exception
        return type(value), id(value)
    return type(value), fingerprint(reduced, known, seen)


def _digest(tensor: torch.Tensor) -> bytes:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return str(tensor).encode()
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    return hashlib.blake2b(dense.view(torch.uint8).numpy().data, digest_size=16).digest()


# --- Its parts ------------------------------------------------------------------------------------


def _parts(value: object) -> Mapping[Any, object] | None:
    """Return the objects that a value refers to, by a name; None: unknown."""
    result: Mapping[Any, object] | None = None
    if isinstance(value, dict):
        result = {**value, **attributes_of(value)}
    elif isinstance(value, SEQUENCES):
        result = dict(enumerate(value))
    elif isinstance(value, types.MethodType):
        result = {"self": value.__self__, "function": value.__func__}
    elif isinstance(value, functools.partial):
        result = {"function": value.func, "arguments": value.args, "options": value.keywords}
    elif isinstance(value, types.FunctionType):
        result = {n: _content(cell) for n, cell in enumerate(value.__closure__ or ())}
    elif not isinstance(value, (type, types.ModuleType, enum.Enum)) and _is_plain(
        cast("Hashable", type(value))
    ):
        result = attributes_of(value)
    return result


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


@functools.cache
def _is_plain(kind: Hashable) -> bool:
    """Return whether objects of a class have only attributes."""
    assert isinstance(kind, type)
    if issubclass(kind, type) or hasattr(kind, "__deepcopy__") or hasattr(kind, "__del__"):
        return False
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return False
    try:
        object.__new__(kind)
    except TypeError:  # its memory has more than attributes
        return False
    return True


def _require_few(objects: Mapping[int, object]) -> None:
    if len(objects) > OBJECTS_MAX:
        raise ValueError(
            f"it refers to more than {OBJECTS_MAX} objects, beside its state: give it no reference "
            "to such things as a data set"
        )
