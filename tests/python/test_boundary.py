"""The boundary between Python and C++: what one of them declares, the other has."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore
from world import run_program

import pccl_backend
from pccl_backend import _C, _limits, api, cli

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
    "on_peer_loss": None,
    "pattern": None,
    "peer_timeout": 10.0,
    "first_call_timeout": None,
    "call_timeout": None,
    "master_timeout": 60.0,
    "advertise": "",
    "advertised_port": 0,
    "port_range": (0, 0),
    "lanes": 0,
    "tcp_congestion": "",
    "restore": True,
    "check_callsite": True,
    "name": "tokyo-3",
    "open_run": True,
    "secret_file": "",
    "token": "",
    "insecure": False,
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


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("run", "", "the length of the run's name is 0; it must be from 1 to 128"),
        ("run", "x" * 129, "the length of the run's name is 129; it must be from 1 to 128"),
        ("founders", 129, "the world size is 129; it must be from 0 to 128"),
    ],
)
def test_join_refuses_what_no_setting_bounds(name: str, value: Any, says: str) -> None:
    options = _C.JoinOptions(**{**OPTIONS, name: value})
    with pytest.raises(ValueError, match=says):
        _C.join(options, store=HashStore(), hosted=None)


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


# --- Limits ---------------------------------------------------------------------------------------


def test_the_stub_declares_the_limits() -> None:
    stub = ast.parse((PACKAGE / "_limits.pyi").read_text())
    types = {
        node.target.id: ast.unparse(node.annotation)
        for node in stub.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    limits = {name: value for name, value in vars(_limits).items() if not name.startswith("_")}
    assert {name: type(value).__name__ for name, value in limits.items()} == types


def test_limits_do_not_load_torch() -> None:
    program = "import sys, pccl_backend._limits; print('torch' in sys.modules)"
    assert run_program([sys.executable, "-c", program]).stdout == "False\n"


def test_the_docstring_of_tag_has_its_limit() -> None:
    assert f"up to {_limits.TAG_BYTES_MAX} bytes" in str(api.tag.__doc__)
    with pccl_backend.tag("x" * _limits.TAG_BYTES_MAX):
        pass
    with pytest.raises(ValueError, match="at most"), api.tag("x" * (_limits.TAG_BYTES_MAX + 1)):
        pass


def test_the_master_names_its_port() -> None:
    done = run_program([str(cli.MASTER), "--help"])
    assert f"(default {_limits.MASTER_PORT_DEFAULT})" in done.stdout
