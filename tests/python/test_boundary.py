"""The boundary between Python and C++: what one of them declares, the other has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pccl_backend
from pccl_backend import _C

PACKAGE = Path(pccl_backend.__file__).parent

OPTIONS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 48148,
    "run": "tokyo",
    "peer_group": 0,
    "founders": 2,
    "min_peers": 1,
    "rank": -1,
    "launch": "",
    "timeout": 30.0,
    "retry_on_peer_loss": False,
    "peer_timeout": 10.0,
    "first_call_timeout": 10.0,
    "master_timeout": 60.0,
    "advertise": "",
    "advertised_port": 0,
    "port_range": (0, 0),
    "lanes": 0,
    "tcp_congestion": "",
    "restore": True,
    "open_run": True,
}


def test_join_options_keep_what_they_are_given() -> None:
    options = _C.JoinOptions(**OPTIONS)
    assert {name: getattr(options, name) for name in OPTIONS} == OPTIONS
    options.lanes = 4
    assert options.lanes == 4


@pytest.mark.parametrize("missing", OPTIONS)
def test_join_options_refuse_a_missing_field(missing: str) -> None:
    given = {name: value for name, value in OPTIONS.items() if name != missing}
    with pytest.raises(TypeError):
        _C.JoinOptions(**given)
    with pytest.raises(TypeError):
        _C.JoinOptions(**given, **{missing + "s": OPTIONS[missing]})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hots", "127.0.0.1"),
        ("port", 65536),
        ("port", "48148"),
        ("min_peers", -1),
        ("timeout", None),
        ("restore", "off"),
        ("restore", None),
        ("port_range", (1, 2, 3)),
    ],
)
def test_join_options_refuse_an_unfit_field(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        _C.JoinOptions(**{**OPTIONS, name: value})


def test_the_stub_declares_the_fields_of_join_options() -> None:
    declared = next(
        node
        for node in ast.parse((PACKAGE / "_C.pyi").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "JoinOptions"
    )
    assert set(_declared(declared.body)) == set(OPTIONS)
    assert {name for name in vars(_C.JoinOptions) if not name.startswith("_")} == set(OPTIONS)


def _declared(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
