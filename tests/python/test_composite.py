"""Each device gets the backend that was requested, for example "cpu:pccl,cuda:nccl".

No test needs a GPU. Gloo takes the place of NCCL, because torch gives it CUDA without a device.
"""

from __future__ import annotations

from typing import Any

import pytest
import work_composite as work
from conftest import MakeWorld
from world import Master

PCCL, GLOO = "pccl", "gloo"

SERVED = {
    "pccl": {"cpu": PCCL, "cuda": PCCL},
    "cpu:pccl,cuda:pccl": {"cpu": PCCL, "cuda": PCCL},
    "cpu:pccl": {"cpu": PCCL},
    "cuda:pccl": {"cuda": PCCL},
    "cpu:pccl,cuda:gloo": {"cpu": PCCL, "cuda": GLOO},
    "cuda:gloo,cpu:pccl": {"cpu": PCCL, "cuda": GLOO},
    "cpu:gloo,cuda:pccl": {"cpu": GLOO, "cuda": PCCL},
    "cpu:pccl,cuda:pccl,xpu:gloo": {"cpu": PCCL, "cuda": PCCL, "xpu": GLOO},
    "cpu:pccl,xpu:gloo,cuda:pccl": {"cpu": PCCL, "cuda": PCCL, "xpu": GLOO},
}


@pytest.mark.parametrize("backend", SERVED)
def test_each_device_has_its_backend(make_world: MakeWorld, backend: str) -> None:
    config = "cpu:pccl,cuda:pccl" if backend == "pccl" else backend
    for found in make_world(2).run(work.serves, backend, setup="nothing"):
        assert found["serve"] == SERVED[backend]
        assert (found["backend"], found["config"]) == (backend, config)
        alone = set(SERVED[backend].values()) == {PCCL}
        assert found["group"] == ("PcclGroup" if alone else "ProcessGroup")


@pytest.mark.parametrize(
    ("backend", "through_pccl"), [("cpu:pccl,cuda:gloo", True), ("cpu:gloo,cuda:pccl", False)]
)
def test_cpu_tensors_go_where_they_should(
    make_world: MakeWorld, backend: str, through_pccl: bool
) -> None:
    results = make_world(2).run(work.pccl_moved_it, backend, setup="nothing")
    assert results == [through_pccl] * 2


def test_collectives_are_checked(make_world: MakeWorld) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps each backend in one that compares calls first."""
    world = make_world(2, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    for found in world.run(work.serves, "cpu:pccl,cuda:gloo", setup="nothing"):
        assert found["group"] == "ProcessGroup"


def test_options_of_another_backend(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.options_of_another, setup="nothing"):
        assert found["type"] == "TypeError", found
        assert "pccl takes no pg_options" in found["text"]


def test_groups_below_a_composite(make_world: MakeWorld) -> None:
    composite = {"cpu": PCCL, "cuda": GLOO}
    for rank, found in enumerate(make_world(2).run(work.groups_beside, setup="nothing")):
        assert found["as the default"]["serve"] == composite
        assert found["pccl"]["serve"] == SERVED["pccl"]
        assert set(found["gloo"]["serve"].values()) == {GLOO}
        assert found["the other way"]["serve"] == SERVED["cpu:gloo,cuda:pccl"]
        assert ("of one" in found) == (rank == 0)
        says = found["topology"]
        assert says["type"] == "ValueError"
        assert "cpu:pccl,cuda:gloo" in says["text"]
        assert 'dist.new_group(backend="pccl")' in says["text"]


def test_a_composite_below_pccl(make_world: MakeWorld) -> None:
    for found in make_world(2).run(work.below_plain, setup="nothing"):
        assert found["serve"] == SERVED["cpu:pccl,cuda:gloo"]
        assert found["group"] == "ProcessGroup"


def test_a_loss_in_a_composite(make_world: MakeWorld) -> None:
    world = make_world(2)
    world.start(work.a_peer_is_lost, setup="nothing")
    survivor, _ = world.outcomes(20, expect_success=False)
    found: dict[str, Any] = survivor.value
    assert found["type"] == "PeerLostError", found
    assert found["next"]["type"] == "PeerLostError", found
    assert found["size"] == 2


# --- Combinations that torch cannot make ----------------------------------------------------------


@pytest.mark.parametrize("backend", ["cpu:pccl,cuda:fake", "cpu:fake,cuda:pccl"])
def test_two_backends_that_torch_does_not_know(make_world: MakeWorld, backend: str) -> None:
    """torch would give both devices the backend that it made first."""
    for found in make_world(2).run(work.refused_then_right, backend, setup="nothing"):
        assert found["type"] == "ValueError", found
        assert backend in found["text"]
        assert "fake" in found["text"]
        assert 'dist.new_group(backend="pccl")' in found["text"]


def test_a_composite_that_repeats(make_world: MakeWorld) -> None:
    world = make_world(2, environment={"PCCL_ON_PEER_LOSS": "retry"})
    for found in world.run(work.refused_then_right, "cpu:pccl,cuda:gloo", setup="nothing"):
        assert found["type"] == "ValueError", found
        assert "PCCL_ON_PEER_LOSS=retry" in found["text"]
        assert 'dist.new_group(backend="pccl")' in found["text"]


def test_a_composite_at_a_master(make_world: MakeWorld, master: Master) -> None:
    world = make_world(2, environment={"PCCL_MASTER": master.url()})
    for found in world.run(work.refusal, "cpu:pccl,cuda:gloo", setup="nothing"):
        assert found["type"] == "ValueError", found
        assert "PCCL_MASTER" in found["text"]
        assert "pccl_backend.join(url)" in found["text"]


@pytest.mark.parametrize(
    ("backend", "named"),
    [
        ("cpu:pccl,cuda:gloo", "cpu:pccl,cuda:gloo"),
        ("cpu:gloo,cuda:pccl", "cpu:gloo,cuda:pccl"),
        ("gloo", "cpu:gloo"),
        (None, "PCCL_MASTER"),  # torch chooses by the devices of the machine
    ],
)
def test_another_backend_in_an_open_run(
    make_open_world: MakeWorld, backend: str | None, named: str
) -> None:
    """Its own store and size would never agree with the run's."""
    for found in make_open_world(2).run(work.refused_at_a_url, backend, setup="nothing"):
        assert found["type"] == "ValueError", found
        assert named in found["text"]
        assert "pccl_backend.join(url)" in found["text"]


@pytest.mark.parametrize("backend", ["pccl", "cpu:pccl", "cuda:pccl", "cuda:pccl,cpu:pccl"])
def test_pccl_alone_in_an_open_run(make_open_world: MakeWorld, backend: str) -> None:
    for found in make_open_world(2).run(work.joins_url, backend, setup="nothing"):
        devices = {"cpu", "cuda"} if backend == "pccl" else set(found["serve"])
        assert found["serve"] == dict.fromkeys(sorted(devices), PCCL)
        assert ("cuda" in found["serve"]) == (backend != "cpu:pccl")
        assert ("cpu" in found["serve"]) == (backend != "cuda:pccl")
        assert found["group"] == "PcclGroup"


def test_a_store_of_an_open_run(make_world: MakeWorld, master: Master) -> None:
    url = master.url()
    (found,) = make_world(1).run(work.store_of_a_url, url, setup="nothing")
    assert found["type"] == "ValueError", found
    assert "cpu:pccl,cuda:gloo" in found["text"]
