"""The public surface: the names of the package, the modules beside them, and the types of both."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest
from world import run_program

import pccl_backend as pccl
from pccl_backend import errors
from pccl_backend.state_sync import StateHash

NAMES = [
    *("AuthenticationError", "CollectiveMismatchError", "HostLostError", "InvalidStateError"),
    *("KickedError", "MasterLostError", "MembershipChangedError", "OperationTimeoutError"),
    *("OutOfRunError", "PcclError", "PeerLostError", "SharedState", "SharedStateError"),
    *("TooFewPeersError", "TopologyError", "__version__", "all_reduce", "are_peers_pending"),
    *("contributors", "join", "optimize_topology", "report", "run_info", "sync_shared_state"),
    *("tag", "update_topology"),
]
MODULES = {
    "api": ["Contribution", "all_reduce", "contributors", "join", "tag"],
    "hooks": ["QuantizeState", "ddp_hook", "quantize_hook"],
    "info": ["Link", "Member", "PastOperation", "RunInfo", "TimeSpent", "report", "run_info"],
    "monitor": ["Scalars"],
    "quantization": [
        *("BFloat16", "ErrorFeedback", "Format", "MinMax", "quantize", "quantize_dequantize"),
    ],
    "state_sync": ["StateHash", "StateSync", "SyncInfo", "sync_shared_state"],
    "topology": [
        *("Topology", "TopologyPlan", "are_peers_pending", "optimize_topology", "update_topology"),
    ],
    "torchft": ["PcclTransport", "ProcessGroupPccl"],
    "trainers": ["DDP", "DiLoCo", "Observer", "OuterStep"],
}


def test_the_names_of_the_package() -> None:
    assert pccl.__all__ == NAMES
    assert len(pccl.__all__) <= 26
    assert {*pccl.__all__, *MODULES} <= {*dir(pccl)}
    for name in pccl.__all__:
        assert getattr(pccl, name) is not None, name


@pytest.mark.parametrize("module", MODULES)
def test_the_names_of_a_module(module: str) -> None:
    found = import_module(f"pccl_backend.{module}")
    assert found.__all__ == MODULES[module]
    if module == "torchft":
        pytest.importorskip("torchft", reason='SKIPPED: needs torchft: pip install ".[torchft]"')
    for name in found.__all__:
        assert hasattr(found, name), name


def test_each_name_has_one_home() -> None:
    """Each name of the package belongs to a module, and no other class has two homes."""
    homes: dict[str, set[str]] = {}
    for module, names in MODULES.items():
        for name in names:
            homes.setdefault(name, set()).add(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
    for name in set(homes) & set(NAMES):
        (module,) = homes[name]
        assert getattr(pccl, name) is getattr(getattr(pccl, module), name)


def test_a_type_checker_sees_the_same() -> None:
    """It reads the imports that only it makes."""
    tree = ast.parse(Path(pccl.__file__).read_text())
    (only,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = [alias.name for node in ast.walk(only) if isinstance(node, ast.ImportFrom)
            for alias in node.names]  # fmt: skip
    assert sorted(seen) == sorted({*NAMES, *MODULES} - {"__version__"})


@pytest.mark.parametrize(
    "program",
    [
        "print(pccl.quantization.MinMax(bits=4).block)",
        "print({pccl.trainers.DiLoCo: 64}[pccl.trainers.DiLoCo])",
        "from pccl_backend.hooks import ddp_hook; print(64 * (pccl.hooks.ddp_hook is ddp_hook))",
        "import pccl_backend.info; print(64 * (pccl.run_info is pccl.info.run_info))",
        "import sys; print(64 * ('torch' not in sys.modules))",
    ],
)
def test_one_import_is_enough_and_loads_no_torch(program: str) -> None:
    program = f"import pccl_backend as pccl; {program}"
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = run_program([sys.executable, "-c", program], environment=environment)
    assert done.stdout == "64\n", done.stderr


def test_a_missing_torchft_is_named() -> None:
    program = "import sys; sys.modules['torchft'] = None; import pccl_backend as pccl; "
    done = run_program([sys.executable, "-c", program + "pccl.torchft.ProcessGroupPccl"])
    assert done.returncode == 1
    needs = 'ProcessGroupPccl needs torchft: pip install "pccl-torch[torchft]"\n'
    assert done.stderr.endswith(needs), done.stderr


@pytest.mark.parametrize("name", ["last_error", "ErrorFeedback", "SyncInfo", "ddp_hook"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'pccl_backend' has no attribute '{name}'"):
        getattr(pccl, name)


@pytest.mark.parametrize("name", ["MinMax", "quantize_dequantize"])
def test_names_from_before_the_modules(name: str) -> None:
    assert getattr(pccl, name) is getattr(pccl.quantization, name)


# --- Errors ---------------------------------------------------------------------------------------


def test_errors_of_a_peer_that_is_out_of_the_run_share_a_base() -> None:
    out = {name for name in errors.__all__ if issubclass(getattr(errors, name), pccl.OutOfRunError)}
    assert out == {"OutOfRunError", "KickedError", "MasterLostError", "HostLostError"}
    assert all(issubclass(getattr(errors, name), pccl.PcclError) for name in errors.__all__)


# --- Hashes ---------------------------------------------------------------------------------------


def test_a_hash_has_the_text_that_resume_from_takes() -> None:
    value = StateHash(0xC0FFEE00C0FFEE)
    assert (str(value), f"{value}", repr(value)) == ("00c0ffee00c0ffee",) * 3
    info = pccl.state_sync.SyncInfo(revision=3, hash=value, tx_bytes=0, rx_bytes=0)
    assert "hash=00c0ffee00c0ffee," in repr(info)
    assert f"{value:x}" == "c0ffee00c0ffee"
